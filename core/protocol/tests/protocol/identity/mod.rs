//! Identities: the rules of IDENT-001 to IDENT-062 as the contract has them.

mod associations;
mod chains;
mod known_answers;
mod lookups;
mod properties;
mod shape;
mod signatures;
mod texts;

use xmtp_fixtures::{IdentityUpdateBuilder, StubChain, block_on, inbox_id_of, signers::Signer};
use xmtp_protocol::{
    identity::{
        Admission, AssociationState, Identifier, IdentityError, NoChainVerifier, admit, fold,
    },
    proto::xmtp::identity::associations::{
        IdentityUpdate, Signature, identity_action::Kind, signature::Signature as SignatureKind,
    },
};

/// Judges an update without a chain.
fn judge(history: &[IdentityUpdate], update: &IdentityUpdate) -> Result<Admission, IdentityError> {
    block_on(admit(history, update, &NoChainVerifier))
}

/// Judges an update with chains.
fn judge_on(
    chain: &StubChain,
    history: &[IdentityUpdate],
    update: &IdentityUpdate,
) -> Result<Admission, IdentityError> {
    block_on(admit(history, update, chain))
}

/// What a log that applies leaves.
fn state_of(history: &[IdentityUpdate]) -> AssociationState {
    block_on(fold(None, history, &NoChainVerifier))
        .expect("a log that applies")
        .expect("a log that is not empty")
}

/// The members by their text, sorted.
fn members(state: &AssociationState) -> Vec<String> {
    let mut members: Vec<String> = state.members().keys().map(Identifier::text).collect();
    members.sort_unstable();
    members
}

/// The members that these signers are.
fn texts_of(signers: &[&dyn Signer]) -> Vec<String> {
    let mut texts: Vec<String> = signers
        .iter()
        .map(|signer| signer.identifier().text())
        .collect();
    texts.sort_unstable();
    texts
}

/// An update of the inbox that `owner` opens with nonce 0.
fn update_of<'a>(owner: &dyn Signer) -> IdentityUpdateBuilder<'a> {
    IdentityUpdateBuilder::new(&inbox_id_of(owner, 0))
}

/// The first update of an inbox.
fn created(owner: &dyn Signer) -> IdentityUpdate {
    update_of(owner).create(owner, 0).sign()
}

/// Every signature of an update, to be changed.
fn signatures_of(update: &mut IdentityUpdate) -> Vec<&mut Option<Signature>> {
    update
        .actions
        .iter_mut()
        .filter_map(|action| action.kind.as_mut())
        .flat_map(|kind| match kind {
            Kind::CreateInbox(create) => vec![&mut create.initial_identifier_signature],
            Kind::Add(add) => vec![
                &mut add.existing_member_signature,
                &mut add.new_member_signature,
            ],
            Kind::Revoke(revoke) => vec![&mut revoke.recovery_identifier_signature],
            Kind::ChangeRecoveryAddress(change) => {
                vec![&mut change.existing_recovery_identifier_signature]
            }
        })
        .collect()
}

/// The kind of the first signature of an update, to be changed.
fn first_signature(update: &mut IdentityUpdate) -> &mut SignatureKind {
    signatures_of(update)
        .swap_remove(0)
        .as_mut()
        .and_then(|signature| signature.signature.as_mut())
        .expect("a signed update")
}
