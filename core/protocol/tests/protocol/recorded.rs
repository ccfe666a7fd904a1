//! Everything that was recorded from published clients.

use std::collections::HashSet;

use prost::Message;
use xmtp_protocol::{
    Content, ParsedEnvelope, Topic, TopicKind, canonical_len,
    proto::xmtp::backend::v1::ClientEnvelope,
};

use crate::data::{RecordedEnvelope, parsed, recorded_envelopes};

fn decoded(recorded: &RecordedEnvelope) -> ClientEnvelope {
    ClientEnvelope::decode(&recorded.envelope[..]).expect("a recorded envelope decodes")
}

fn each(check: impl Fn(&RecordedEnvelope, &ParsedEnvelope)) {
    for recorded in recorded_envelopes() {
        check(&recorded, &parsed(decoded(&recorded)));
    }
}

#[test]
fn recordings_cover_every_kind_and_repeat_nothing() {
    let recorded = recorded_envelopes();
    let kinds: HashSet<TopicKind> = recorded
        .iter()
        .map(|envelope| envelope.kind.into())
        .collect();
    assert_eq!(kinds.len(), TopicKind::ALL.len());
    let keys: HashSet<_> = recorded
        .iter()
        .map(|envelope| (&envelope.topic, envelope.hash))
        .collect();
    assert_eq!(keys.len(), recorded.len());
}

#[test]
fn topic_001_recordings_have_their_topics() {
    each(|recorded, parsed| {
        assert_eq!(
            parsed.topic.as_bytes(),
            recorded.topic,
            "{}",
            recorded.source
        );
        assert_eq!(
            parsed.topic.kind(),
            recorded.kind.into(),
            "{}",
            recorded.source
        );
        assert_eq!(
            Topic::parse(&recorded.topic),
            Ok(parsed.topic),
            "{}",
            recorded.source
        );
    });
}

#[test]
fn api_211_recordings_are_canonical_and_have_their_hashes() {
    each(|recorded, parsed| {
        assert_eq!(parsed.payload, recorded.envelope, "{}", recorded.source);
        assert_eq!(
            *parsed.hash.as_bytes(),
            recorded.hash,
            "{}",
            recorded.source
        );
        assert_eq!(
            canonical_len(&decoded(recorded)),
            recorded.envelope.len(),
            "{}",
            recorded.source
        );
    });
}

#[test]
fn api_212_recordings_have_their_commit_flag() {
    each(|recorded, parsed| {
        assert_eq!(
            parsed.is_commit_or_proposal, recorded.is_commit_or_proposal,
            "{}",
            recorded.source
        );
    });
}

#[test]
fn push_030_recorded_group_messages_carry_usable_sender_hmacs() {
    each(|recorded, parsed| {
        let is_group_message = parsed.topic.kind() == TopicKind::GroupMessage;
        assert_eq!(
            parsed.sender_hmac.is_some(),
            is_group_message,
            "{}",
            recorded.source
        );
    });
}

#[test]
fn recordings_give_validation_what_it_needs() {
    each(|recorded, parsed| match &parsed.content {
        Content::IdentityUpdate { inbox_id, .. } => {
            let update = parsed.identity_update().expect("an identity update");
            assert_eq!(inbox_id, parsed.topic.identifier());
            assert_eq!(update.inbox_id, hex::encode(inbox_id));
            assert!(!update.actions.is_empty(), "{}", recorded.source);
        }
        Content::KeyPackage { tls } => {
            assert!(recorded.envelope.ends_with(tls), "{}", recorded.source);
            assert!(!tls.is_empty(), "{}", recorded.source);
        }
        Content::GroupMessage => assert_eq!(parsed.topic.kind(), TopicKind::GroupMessage),
        Content::Welcome => assert_eq!(parsed.topic.kind(), TopicKind::Welcome),
        Content::CommitLogEntry => assert_eq!(parsed.topic.kind(), TopicKind::CommitLogEntry),
    });
}
