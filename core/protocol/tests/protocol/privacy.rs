//! What `Debug` and errors tell.

use xmtp_protocol::{
    MessageHash, ParseError, ParsedEnvelope, SequenceId, Topic, TopicError, TopicKind,
    proto::xmtp::{
        backend::v1::{Cursor, client_envelope::Payload},
        identity::associations::IdentityUpdate,
    },
};

use crate::data::{envelope, inline_welcome, parsed};

#[test]
fn debug_shows_no_topic_cursor_hash_or_payload() {
    let topic =
        Topic::new(TopicKind::Welcome, &[0xab; 32]).expect("an identifier of the right length");
    assert_eq!(format!("{topic:?}"), "Topic { kind: Welcome, .. }");
    assert_eq!(format!("{:?}", SequenceId::MAX), "SequenceId(..)");
    assert_eq!(
        format!("{:?}", MessageHash::from([0xab; 32])),
        "MessageHash(..)"
    );
    assert_eq!(
        format!("{:?}", parsed(inline_welcome(vec![0xab; 32]))),
        "ParsedEnvelope { topic: Topic { kind: Welcome, .. }, .. }"
    );
    let update = IdentityUpdate {
        inbox_id: "ab".repeat(32),
        ..Default::default()
    };
    let content = parsed(envelope(Payload::IdentityUpdate(update))).content;
    assert_eq!(format!("{content:?}"), "IdentityUpdate { .. }");
}

#[test]
fn debug_of_wire_messages_shows_their_type_alone() {
    assert_eq!(format!("{:?}", Cursor { sequence_id: 41 }), "Cursor { .. }");
    let envelope = inline_welcome(vec![0xab; 32]);
    assert_eq!(format!("{envelope:?}"), "ClientEnvelope { .. }");
    assert_eq!(
        format!("{:?}", envelope.payload),
        "Some(ClientEnvelope.payload { .. })"
    );
}

#[test]
fn errors_carry_nothing_of_the_request() {
    let update = IdentityUpdate {
        inbox_id: "secret".to_owned(),
        ..Default::default()
    };
    let error = ParsedEnvelope::parse(envelope(Payload::IdentityUpdate(update)))
        .expect_err("not an inbox id");
    assert_eq!(error, ParseError::InboxId);
    assert_eq!(error.to_string(), "inbox id is not 64 hex characters");
    assert_eq!(
        ParseError::from(TopicError::IdentifierLength).to_string(),
        "payload gives no legal topic"
    );
}
