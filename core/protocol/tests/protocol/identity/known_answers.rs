//! What published clients sent, and what was crafted to lie on either side of a rule.

use std::collections::HashMap;

use prost::Message;
use xmtp_fixtures::{StubChain, block_on};
use xmtp_protocol::{
    Content,
    identity::{AssociationError, Identifier, IdentityError, SignatureError, fold, signed_text},
    proto::xmtp::{backend::v1::ClientEnvelope, identity::associations::IdentityUpdate},
};

use super::{judge, judge_on, members};
use crate::data::{
    IdentityRefusal, crafted_identity_updates, inbox_id_cases, parsed, recorded_envelopes,
    recorded_identity_states,
};

/// The chains of the wallets in the test data.
fn chain() -> StubChain {
    StubChain::new([1, 8453])
}

fn decoded(bytes: &[u8]) -> IdentityUpdate {
    IdentityUpdate::decode(bytes).expect("an update of the test data decodes")
}

/// How the test data call an error.
fn refusal(error: IdentityError) -> IdentityRefusal {
    let (reason, kind) = match error {
        IdentityError::Signature(error) => (
            "REASON_INVALID_SIGNATURE",
            match error {
                SignatureError::Missing => "missing_signature",
                SignatureError::KeyLength => "key_length",
                SignatureError::Length => "signature_length",
                SignatureError::PasskeyClientData => "passkey_client_data",
                SignatureError::AccountIdForm => "account_id_form",
                SignatureError::StaleBlock => "stale_block",
                SignatureError::Invalid => "signature_invalid",
            },
        ),
        IdentityError::Association(error) => (
            "REASON_INVALID_IDENTITY_UPDATE",
            match error {
                AssociationError::EmptyUpdate => "empty_update",
                AssociationError::ActionUnset | AssociationError::MemberUnset => "unset_kind",
                AssociationError::IdentifierForm => "identifier_form",
                AssociationError::NotCreated => "not_created",
                AssociationError::AlreadyCreated => "already_created",
                AssociationError::SignerMismatch => "signer_mismatch",
                AssociationError::SignatureNotAllowed => "signature_not_allowed",
                AssociationError::NewMemberMismatch => "new_member_mismatch",
                AssociationError::AddSelf => "add_self",
                AssociationError::AlreadyMember => "already_member",
                AssociationError::NotAMember => "not_a_member",
                AssociationError::MemberNotAllowed => "member_not_allowed",
                AssociationError::NotRecovery => "not_recovery",
                AssociationError::ChainMismatch => "chain_mismatch",
                AssociationError::Replay => "replay",
                AssociationError::WrongInboxId => "wrong_inbox_id",
            },
        ),
        IdentityError::Chain(_) => ("UNAVAILABLE", ""),
    };
    IdentityRefusal {
        reason: reason.to_owned(),
        kind: kind.to_owned(),
    }
}

#[test]
fn api_230_crafted_identity_updates_have_their_verdicts() {
    let cases = crafted_identity_updates();
    assert_eq!(cases.len(), 70);
    for case in cases {
        let history: Vec<_> = case
            .history
            .iter()
            .map(|update| decoded(&update.0))
            .collect();
        let verdict = judge_on(&chain(), &history, &decoded(&case.update.0));
        match (verdict, case.refused) {
            (Ok(admission), None) => {
                assert_eq!(members(&admission.state), case.members, "{}", case.name);
                let recovery = admission.state.recovery_identifier().text();
                assert_eq!(recovery, case.recovery, "{}", case.name);
            }
            (Err(error), Some(refused)) => assert_eq!(refusal(error), refused, "{}", case.name),
            (Ok(_), Some(refused)) => panic!("{} is accepted, not {refused:?}", case.name),
            (Err(error), None) => panic!("{} is refused: {error}", case.name),
        }
    }
}

#[test]
fn ident_020_crafted_identity_updates_have_their_texts() {
    let mut texts = 0;
    for case in crafted_identity_updates() {
        let text = signed_text(&decoded(&case.update.0));
        // An identifier that does not decode has none; clients of the time made one from it.
        if case
            .refused
            .is_some_and(|refused| refused.kind == "identifier_form")
        {
            let error = IdentityError::Association(AssociationError::IdentifierForm);
            assert!(
                text == Err(error) || text.ok() == case.text,
                "{}",
                case.name
            );
            continue;
        }
        assert_eq!(text.ok(), case.text, "{}", case.name);
        texts += usize::from(case.text.is_some());
    }
    assert!(texts > 50, "{texts} texts were compared");
}

#[test]
fn ident_005_recorded_identity_updates_apply_in_their_order() {
    let mut logs: HashMap<[u8; 32], Vec<IdentityUpdate>> = HashMap::new();
    let mut states: HashMap<[u8; 32], _> = recorded_identity_states()
        .into_iter()
        .map(|state| (state.hash, state))
        .collect();
    let mut applied = 0;
    for recorded in recorded_envelopes() {
        let envelope = ClientEnvelope::decode(&recorded.envelope[..]).expect("it decodes");
        let parsed = parsed(envelope);
        let Content::IdentityUpdate { inbox_id, .. } = parsed.content else {
            continue;
        };
        let update = parsed.identity_update().expect("it decodes again");
        let log = logs.entry(inbox_id).or_default();
        let verdict = if recorded.needs_chain {
            let error = judge(log, &update).expect_err("there is no chain");
            assert_eq!(refusal(error).reason, "UNAVAILABLE", "{}", recorded.source);
            judge_on(&chain(), log, &update)
        } else {
            judge(log, &update)
        };
        let admission = verdict.unwrap_or_else(|error| panic!("{}: {error}", recorded.source));
        if let Some(state) = states.remove(&recorded.hash) {
            assert_eq!(members(&admission.state), state.members);
            assert_eq!(admission.state.recovery_identifier().text(), state.recovery);
        }
        log.push(update);
        applied += 1;
    }
    assert!(applied >= 20, "{applied} updates were applied");
    assert_eq!(states.len(), 0, "every state was compared");
    for log in logs.values().filter(|log| log.len() > 1) {
        let out_of_order = block_on(fold(None, &log[1..], &chain()));
        assert_eq!(
            out_of_order.map(|_| ()),
            Err(IdentityError::Association(AssociationError::NotCreated))
        );
    }
}

#[test]
fn ident_010_inbox_ids_are_as_published_clients_make_them() {
    for case in inbox_id_cases() {
        let initial = Identifier::from_text(&case.identifier, case.kind);
        let inbox_id = initial
            .map(|initial| xmtp_protocol::identity::inbox_id(&initial, case.nonce))
            .ok();
        assert_eq!(
            inbox_id, case.inbox_id,
            "{} {}",
            case.identifier, case.nonce
        );
    }
}
