//! Push eligibility and the sender HMAC: PUSH-030, PUSH-031.

use xmtp_protocol::{
    ParsedEnvelope,
    proto::xmtp::{
        backend::v1::{GroupMessage, client_envelope::Payload},
        identity::associations::IdentityUpdate,
    },
};

use crate::data::{
    commit_log_entry, crafted_key_packages, envelope, group_message_data, inline_welcome,
    key_package, parsed, welcome_pointer,
};

fn group_message(name: &str, sender_hmac: Vec<u8>, should_push: bool) -> ParsedEnvelope {
    let data = group_message_data(name).into();
    parsed(envelope(Payload::GroupMessage(GroupMessage {
        data,
        sender_hmac: sender_hmac.into(),
        should_push,
    })))
}

#[test]
fn push_030_commits_and_proposals_are_eligible_and_so_is_what_the_sender_asks_for() {
    for (name, should_push, eligible) in [
        ("private_minimal", false, false),
        ("private_minimal", true, true),
        ("public_application", false, false),
        ("private_commit", false, true),
        ("private_commit", true, true),
        ("private_proposal", false, true),
        ("public_proposal", false, true),
    ] {
        assert_eq!(
            group_message(name, vec![], should_push).push_eligible,
            eligible,
            "{name} {should_push}"
        );
    }
}

#[test]
fn push_030_the_sender_hmac_is_kept_at_exactly_32_bytes() {
    for len in [0, 1, 31, 33, 64] {
        assert_eq!(
            group_message("private_commit", vec![7; len], true).sender_hmac,
            None
        );
    }
    assert_eq!(
        group_message("private_commit", vec![7; 32], true).sender_hmac,
        Some([7; 32])
    );
    assert_eq!(
        group_message("private_minimal", vec![7; 32], false).sender_hmac,
        Some([7; 32])
    );
}

#[test]
fn push_031_welcomes_are_eligible_and_have_no_sender_hmac() {
    for welcome in [inline_welcome(vec![7; 32]), welcome_pointer(vec![7; 32])] {
        let parsed = parsed(welcome);
        assert!(parsed.push_eligible);
        assert_eq!(parsed.sender_hmac, None);
    }
}

#[test]
fn push_031_other_kinds_are_not_eligible_and_have_no_sender_hmac() {
    let update = IdentityUpdate {
        inbox_id: "ab".repeat(32),
        ..Default::default()
    };
    let entry = [&[0x0a, 16][..], &[1; 16]].concat();
    for other in [
        key_package(crafted_key_packages().swap_remove(0).key_package),
        envelope(Payload::IdentityUpdate(update)),
        commit_log_entry(entry),
    ] {
        let parsed = parsed(other);
        assert!(!parsed.push_eligible);
        assert_eq!(parsed.sender_hmac, None);
        assert!(!parsed.is_commit_or_proposal);
    }
}
