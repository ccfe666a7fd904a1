//! Everything that was recorded from published clients, and everything that was crafted on either side of a
//! rule, through the server.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use serde_json::Value;
use sqlx::Row;
use tonic::Code;
use xmtp_fixtures::{StubChain, envelope};
use xmtp_protocol::proto::xmtp::backend::v1::publish_error::Reason;
use xmtp_protocol::proto::xmtp::backend::v1::{
    ClientEnvelope, CommitLogEntry, EnvelopeMeta, GroupMessage, KeyPackage,
};
use xmtp_protocol::proto::xmtp::identity::associations::IdentityUpdate;
use xmtp_protocol::{MessageHash, ParsedEnvelope};
use xmtp_test_support::payloads::{Recorded, group_message, recorded};

use super::{Refusal, at, failed, refusal};
use crate::harness::Backend;
use crate::storage;

/// The chains of the recordings and of the crafted updates. They call every signature valid.
fn chains() -> Arc<StubChain> {
    Arc::new(StubChain::new([1, 8453]))
}

fn cases(lines: &'static str) -> impl Iterator<Item = Value> {
    lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of test data"))
}

fn text<'a>(case: &'a Value, field: &str) -> &'a str {
    case[field].as_str().expect("a text")
}

fn bytes(value: &Value) -> Bytes {
    let text = value.as_str().expect("a text");
    hex::decode(text).expect("test data is hex").into()
}

fn update(value: &Value) -> IdentityUpdate {
    IdentityUpdate::decode(bytes(value)).expect("an update")
}

#[track_caller]
fn is_of(meta: &EnvelopeMeta, recorded: &Recorded) {
    let topic = meta.topic.as_ref().expect("a topic");
    let mut hash = [0; MessageHash::LEN];
    hex::decode_to_slice(&recorded.hash, &mut hash).expect("hex");
    assert_eq!(hex::encode(&topic.topic), recorded.topic);
    assert_eq!(meta.message_hash, Some(MessageHash::from(hash).into()));
    assert_eq!(meta.is_commit_or_proposal, recorded.is_commit_or_proposal);
}

/// The identifiers that are associated with an inbox.
async fn associated(backend: &Backend, inbox_id: &[u8]) -> BTreeSet<String> {
    sqlx::query(
        "SELECT identifier FROM identifier_association
         WHERE inbox_id = $1 AND revocation_sequence_id IS NULL",
    )
    .bind(inbox_id)
    .fetch_all(&mut backend.database.connect().await)
    .await
    .expect("rows can be read")
    .iter()
    .map(|row| row.get(0))
    .collect()
}

/// Those of `members` that are no installations, whose keys have 32 bytes.
fn external(members: &Value) -> BTreeSet<String> {
    let members = members.as_array().expect("a list").iter();
    members
        .map(|member| member.as_str().expect("a text").to_owned())
        .filter(|member| member.len() != 64)
        .collect()
}

#[tokio::test]
async fn arc_092_every_recorded_payload_passes() {
    let backend = Backend::start().await;
    for recorded in recorded() {
        let answer = backend.try_publish([recorded.decode()]).await;
        if recorded.is_valid() {
            is_of(&answer.expect("a client has sent it")[0], recorded);
        } else if recorded.needs_chain {
            failed(answer, Code::Unavailable);
        } else {
            // Its lifetime is over since it was recorded.
            assert_eq!(recorded.kind, "key_package");
            assert_eq!(refusal(answer), at(Some(0), Reason::InvalidKeyPackage));
        }
    }
}

#[tokio::test]
async fn arc_022_the_projection_follows_the_recorded_logs() {
    let backend = Backend::with_chain("", chains()).await;
    let states: Vec<Value> =
        cases(include_str!("../../data/recorded-identity-states.jsonl")).collect();
    let updates = recorded().iter().filter(|it| it.kind == "identity_update");
    let mut compared = 0;
    for recorded in updates {
        let metas = backend.publish([recorded.decode()]).await;
        is_of(&metas[0], recorded);
        let inbox = hex::decode(&recorded.topic).expect("hex");
        for state in states.iter().filter(|state| state["hash"] == recorded.hash) {
            let found = associated(&backend, &inbox[1..]).await;
            assert_eq!(found, external(&state["members"]));
            compared += 1;
        }
    }
    assert_eq!(compared, states.len());
}

/// Publishes a crafted envelope behind a sound one.
async fn behind_another(backend: &Backend, envelope: ClientEnvelope) -> Option<Refusal> {
    let envelopes = [group_message(250, "sound"), envelope];
    match backend.try_publish(envelopes).await {
        Ok(_) => None,
        refused => Some(refusal(refused)),
    }
}

#[tokio::test]
async fn ident_every_crafted_update_is_stored_or_refused_with_its_reason() {
    let backend = Backend::with_chain("", chains()).await;
    for case in cases(include_str!("../../data/crafted-identity-updates.jsonl")) {
        // They are of the same inboxes.
        let forget = "TRUNCATE envelopes, topic_watermark, identifier_association";
        backend.database.execute(forget).await;
        let name = text(&case, "name");
        let new = envelope(update(&case["update"]));
        let history = case["history"].as_array().expect("a list").iter();
        let history: Vec<_> = history.map(|stored| envelope(update(stored))).collect();
        let is_copy = history.contains(&new);
        let Some(reason) = case["refused"]["reason"].as_str() else {
            for stored in history {
                backend.publish([stored]).await;
            }
            let parsed = ParsedEnvelope::parse(new.clone()).expect("it parses");
            assert_eq!(behind_another(&backend, new).await, None, "{name}");
            let found = associated(&backend, parsed.topic.identifier()).await;
            assert_eq!(found, external(&case["members"]), "{name}");
            continue;
        };
        // Not every log was written under today's rules.
        for stored in history {
            let parsed = ParsedEnvelope::parse(stored).expect("it parses");
            storage::store(&backend.database, &parsed.topic, &parsed.payload).await;
        }
        if is_copy {
            // The exact bytes of a stored update are a duplicate, which is no replay.
            assert_eq!(behind_another(&backend, new).await, None, "{name}");
            continue;
        }
        let rows = backend.count("envelopes").await;
        let expected = Reason::from_str_name(reason).expect("a reason");
        assert_eq!(
            behind_another(&backend, new).await,
            Some(at(Some(1), expected)),
            "{name}"
        );
        assert_eq!(backend.count("envelopes").await, rows, "{name}");
        assert_eq!(backend.count("identifier_association").await, 0, "{name}");
    }
}

#[tokio::test]
async fn join_007_every_crafted_key_package_is_stored_or_refused_with_its_reason() {
    let backend = Backend::start().await;
    for case in cases(include_str!("../../data/crafted-key-packages.jsonl")) {
        let expected = match text(&case, "expected") {
            "accepted" => None,
            "invalid" => Some(at(Some(1), Reason::InvalidKeyPackage)),
            "malformed" => Some(at(Some(1), Reason::MalformedPayload)),
            "either" => continue,
            other => panic!("{other} is no verdict"),
        };
        let package = KeyPackage {
            key_package_tls_serialized: bytes(&case["key_package"]),
        };
        let answer = behind_another(&backend, envelope(package)).await;
        assert_eq!(answer, expected, "{}", text(&case, "name"));
    }
}

#[tokio::test]
async fn topic_002_every_other_crafted_payload_is_stored_or_malformed() {
    let backend = Backend::start().await;
    let messages = cases(include_str!("../../data/crafted-group-messages.jsonl")).map(|case| {
        let message = GroupMessage {
            data: bytes(&case["data"]),
            ..Default::default()
        };
        (case, envelope(message))
    });
    let entries = cases(include_str!("../../data/crafted-commit-log-entries.jsonl")).map(|case| {
        let entry = CommitLogEntry {
            serialized_commit_log_entry: bytes(&case["entry"]),
            signature: None,
        };
        (case, envelope(entry))
    });
    for (case, envelope) in messages.chain(entries) {
        let accepted = case["accepted"].as_bool().expect("a verdict");
        let expected = (!accepted).then_some(at(Some(1), Reason::MalformedPayload));
        let answer = behind_another(&backend, envelope).await;
        assert_eq!(answer, expected, "{}", text(&case, "name"));
    }
    for (name, malformed) in xmtp_fixtures::malformed() {
        let answer = behind_another(&backend, malformed).await;
        let expected = at(Some(1), Reason::MalformedPayload);
        assert_eq!(answer, Some(expected), "{name}");
    }
}
