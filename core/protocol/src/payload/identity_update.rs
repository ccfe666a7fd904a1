//! Identity updates: routed by the inbox id that they name.

use crate::{
    ParseError, Topic, TopicKind,
    proto::xmtp::identity::associations::{
        IdentityUpdate, identity_action::Kind, signature::Signature,
    },
};

/// An inbox id as bytes.
const INBOX_ID_LEN: usize = 32;

/// Reads the topic and the inbox id, which may be written in either case (TOPIC-002).
///
/// # Errors
///
/// An inbox id that is not exactly 64 hex characters.
pub(crate) fn parse(update: &IdentityUpdate) -> Result<(Topic, [u8; INBOX_ID_LEN]), ParseError> {
    let mut inbox_id = [0; INBOX_ID_LEN];
    hex::decode_to_slice(&update.inbox_id, &mut inbox_id).map_err(|_| ParseError::InboxId)?;
    Ok((Topic::new(TopicKind::IdentityUpdate, &inbox_id)?, inbox_id))
}

/// Counts the contract-wallet signatures (ERC-6492) in every slot of every action.
pub(crate) fn contract_wallet_signatures(update: &IdentityUpdate) -> usize {
    update
        .actions
        .iter()
        .filter_map(|action| action.kind.as_ref())
        .flat_map(|kind| match kind {
            Kind::CreateInbox(create) => [create.initial_identifier_signature.as_ref(), None],
            Kind::Add(add) => [
                add.existing_member_signature.as_ref(),
                add.new_member_signature.as_ref(),
            ],
            Kind::Revoke(revoke) => [revoke.recovery_identifier_signature.as_ref(), None],
            Kind::ChangeRecoveryAddress(change) => {
                [change.existing_recovery_identifier_signature.as_ref(), None]
            }
        })
        .flatten()
        .filter(|slot| matches!(slot.signature, Some(Signature::Erc6492(_))))
        .count()
}
