//! Topics: TOPIC-001 to TOPIC-003.

use xmtp_protocol::{
    ParseError, Topic, TopicError, TopicKind,
    proto::xmtp::{
        backend::v1::{ClientEnvelope, client_envelope::Payload},
        identity::associations::IdentityUpdate,
    },
};

use crate::data::{
    commit_log_entry, envelope, group_message, group_message_data, inline_welcome, parse_error,
    parsed, welcome_pointer,
};

/// Kind, kind byte, identifier length.
const KINDS: [(TopicKind, u8, usize); 5] = [
    (TopicKind::GroupMessage, 0x00, 16),
    (TopicKind::Welcome, 0x01, 32),
    (TopicKind::IdentityUpdate, 0x02, 32),
    (TopicKind::KeyPackage, 0x03, 32),
    (TopicKind::CommitLogEntry, 0x04, 16),
];

fn bytes_of(kind: u8, identifier_len: usize) -> Vec<u8> {
    [vec![kind], vec![0xab; identifier_len]].concat()
}

fn update_of(inbox_id: &str) -> ClientEnvelope {
    envelope(Payload::IdentityUpdate(IdentityUpdate {
        inbox_id: inbox_id.to_owned(),
        ..Default::default()
    }))
}

#[test]
fn topic_001_kind_bytes_and_identifier_lengths_are_fixed() {
    assert_eq!(TopicKind::ALL, KINDS.map(|(kind, ..)| kind));
    for (kind, byte, len) in KINDS {
        assert_eq!((kind as u8, kind.identifier_len()), (byte, len));
        let topic = Topic::new(kind, &vec![0xab; len]).expect("an identifier of the right length");
        assert_eq!(topic.as_bytes(), bytes_of(byte, len));
        assert_eq!(topic.identifier(), vec![0xab; len]);
        assert_eq!(topic.kind(), kind);
    }
}

#[test]
fn topic_001_the_topic_comes_from_the_payload() {
    let group_id = [0x11; 16];
    let topic = |envelope| parsed(envelope).topic;
    let data = group_message_data("private_minimal");
    assert_eq!(
        topic(group_message(data)).as_bytes(),
        [&[0][..], &group_id].concat()
    );
    assert_eq!(
        topic(inline_welcome(vec![0xab; 32])).as_bytes(),
        bytes_of(1, 32)
    );
    assert_eq!(
        topic(welcome_pointer(vec![0xab; 32])).as_bytes(),
        bytes_of(1, 32)
    );
    assert_eq!(
        topic(update_of(&"ab".repeat(32))).as_bytes(),
        bytes_of(2, 32)
    );
    let entry = [&[0x0a, 16][..], &group_id].concat();
    assert_eq!(
        topic(commit_log_entry(entry)).as_bytes(),
        [&[4][..], &group_id].concat()
    );
}

#[test]
fn topic_002_an_identifier_of_another_length_is_unroutable() {
    let unroutable = Some(ParseError::Topic(TopicError::IdentifierLength));
    for len in [0, 16, 31, 33] {
        assert_eq!(parse_error(inline_welcome(vec![7; len])), unroutable);
        assert_eq!(parse_error(welcome_pointer(vec![7; len])), unroutable);
    }
    assert_eq!(
        parse_error(group_message(group_message_data(
            "private_application_gid17"
        ))),
        unroutable
    );
    assert_eq!(parse_error(commit_log_entry(vec![])), unroutable);
}

#[test]
fn topic_002_an_inbox_id_is_64_hex_characters() {
    for inbox_id in [
        "",
        &"a".repeat(63),
        &"a".repeat(65),
        &"a".repeat(66),
        &"g".repeat(64),
        &"é".repeat(32),
    ] {
        assert_eq!(
            parse_error(update_of(inbox_id)),
            Some(ParseError::InboxId),
            "{inbox_id}"
        );
    }
    let prefixed = format!("0x{}", "a".repeat(62));
    assert_eq!(parse_error(update_of(&prefixed)), Some(ParseError::InboxId));
}

#[test]
fn topic_002_the_case_of_an_inbox_id_routes_alike_and_is_kept() {
    let lower = parsed(update_of(&"ab".repeat(32)));
    let upper = parsed(update_of(&"AB".repeat(32)));
    assert_eq!(lower.topic, upper.topic);
    assert_ne!(lower.payload, upper.payload);
    assert_ne!(lower.hash, upper.hash);
}

#[test]
fn topic_003_unknown_kinds_are_refused() {
    for kind in 5..=u8::MAX {
        for len in [0, 16, 32] {
            assert_eq!(
                Topic::parse(&bytes_of(kind, len)),
                Err(TopicError::UnknownKind)
            );
        }
    }
}

#[test]
fn topic_003_wrong_lengths_are_refused() {
    assert_eq!(Topic::parse(&[]), Err(TopicError::Empty));
    for (_, byte, legal) in KINDS {
        for len in 0..=130 {
            let parsed = Topic::parse(&bytes_of(byte, len));
            assert_eq!(
                parsed.is_ok(),
                len == legal,
                "kind {byte}, identifier of {len} bytes"
            );
        }
    }
}

#[test]
fn topics_order_as_their_bytes_do() {
    let mut topics = Vec::new();
    for (kind, _, len) in KINDS {
        for first in [0x00, 0x7f, 0xff] {
            let mut identifier = vec![0x55; len];
            identifier[0] = first;
            topics.push(Topic::new(kind, &identifier).expect("an identifier of the right length"));
        }
    }
    for a in &topics {
        for b in &topics {
            assert_eq!(a.cmp(b), a.as_bytes().cmp(b.as_bytes()));
        }
    }
}
