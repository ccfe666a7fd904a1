//! The fixtures of the workspace are what they say: ARC-012.

use xmtp_fixtures::{
    ContentType, GroupMessageBuilder, KeyPackageBuilder, commit_log_entry, envelope, malformed,
    pointer, registration,
    signers::{Installation, Wallet},
    welcome,
};
use xmtp_protocol::{ParsedEnvelope, TopicKind};

use crate::data::parsed;

#[test]
fn arc_012_fixtures_of_every_kind_parse() {
    let phone = Installation::new("phone");
    let update = registration(&Wallet::new("owner"), 0, &phone);
    for (kind, envelope) in [
        (
            TopicKind::GroupMessage,
            envelope(GroupMessageBuilder::new(7, ContentType::Application).private()),
        ),
        (TopicKind::Welcome, envelope(welcome([7; 32], "data"))),
        (TopicKind::Welcome, envelope(pointer([7; 32], "data"))),
        (TopicKind::IdentityUpdate, envelope(update)),
        (
            TopicKind::KeyPackage,
            envelope(KeyPackageBuilder::new(&phone, "inbox").build()),
        ),
        (
            TopicKind::CommitLogEntry,
            envelope(commit_log_entry(&[7; 16], 1, &phone)),
        ),
    ] {
        assert_eq!(parsed(envelope).topic.kind(), kind);
    }
}

#[test]
fn api_212_fixtures_of_both_framings_have_their_flag() {
    for content_type in [
        ContentType::Application,
        ContentType::Proposal,
        ContentType::Commit,
    ] {
        let builder = GroupMessageBuilder::new(7, content_type);
        for message in [builder.private(), builder.public()] {
            let parsed = parsed(envelope(message));
            assert_eq!(parsed.topic.identifier(), [7; 16]);
            let is_handshake = content_type != ContentType::Application;
            assert_eq!(
                parsed.is_commit_or_proposal, is_handshake,
                "{content_type:?}"
            );
        }
    }
}

#[test]
fn arc_092_bytes_after_a_fixture_are_kept() {
    let builder = GroupMessageBuilder {
        trailing: vec![0xff; 5],
        ..GroupMessageBuilder::new(7, ContentType::Commit)
    };
    for message in [builder.private(), builder.public()] {
        assert!(
            parsed(envelope(message.clone()))
                .payload
                .ends_with(&message.data)
        );
        assert!(message.data.ends_with(&[0xff; 5]));
    }
}

#[test]
fn arc_012_malformed_fixtures_do_not_parse() {
    for (name, envelope) in malformed() {
        assert!(ParsedEnvelope::parse(envelope).is_err(), "{name}");
    }
}
