//! Refusals: which, where, and that they leave nothing behind.

use bytes::Bytes;
use proptest::prelude::any;
use proptest::proptest;
use prost::Message;
use tonic::Code;
use xmtp_fixtures::signers::Installation;
use xmtp_fixtures::{IdentityUpdateBuilder, envelope, inbox_id_of};
use xmtp_protocol::client::PublishServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::client_envelope::Payload;
use xmtp_protocol::proto::xmtp::backend::v1::publish_error::Reason;
use xmtp_protocol::proto::xmtp::backend::v1::{
    ClientEnvelope, GroupMessage, KeyPackage, QueryRequest, WelcomeMessage, welcome_message,
};
use xmtp_protocol::proto::xmtp::identity::associations::IdentityUpdate;
use xmtp_protocol::{ParsedEnvelope, TopicKind};
use xmtp_test_support::payloads::{
    ContentType, commit_log_entry, group_message, identity_update, mls_message, owner, topic,
    welcome,
};

use super::{PATH, at, malformed, refusal, sized, stored};
use crate::harness::{Backend, meta_id, query, sequence_id};
use crate::raw::{self, frame};
use crate::storage;

fn welcome_to(installation_key: &[u8]) -> ClientEnvelope {
    let inline = welcome_message::V1 {
        installation_key: Bytes::copy_from_slice(installation_key),
        ..Default::default()
    };
    let version = Some(welcome_message::Version::V1(inline));
    ClientEnvelope {
        payload: Some(Payload::WelcomeMessage(WelcomeMessage { version })),
    }
}

fn update_of(inbox_id: &str) -> ClientEnvelope {
    let update = IdentityUpdate {
        inbox_id: inbox_id.to_owned(),
        ..Default::default()
    };
    ClientEnvelope {
        payload: Some(Payload::IdentityUpdate(update)),
    }
}

#[tokio::test]
async fn topic_001_the_case_of_an_inbox_id_makes_no_second_topic() {
    let backend = Backend::start().await;
    let lower = backend.publish([identity_update(1, 1)]).await;
    let (owner, added) = (owner(1), Installation::new("added"));
    let upper = IdentityUpdateBuilder::new(&inbox_id_of(&owner, 0).to_uppercase())
        .add(&owner, &added)
        .sign();
    let upper = envelope(upper);
    // The log is written in one case (IDENT-003), so what is new is refused; what is stored is found.
    assert_eq!(
        refusal(backend.try_publish([upper.clone()]).await),
        at(Some(0), Reason::InvalidIdentityUpdate)
    );
    let inbox = topic(TopicKind::IdentityUpdate, 1);
    storage::store(&backend.database, &inbox, &upper.encode_to_vec()).await;
    let upper = backend.publish([upper]).await;
    assert_eq!(lower[0].topic, upper[0].topic);
    assert_eq!(backend.read(&inbox).await.len(), 2);
}

#[tokio::test]
async fn topic_002_an_unroutable_envelope_is_malformed_and_leaves_no_trace() {
    let backend = Backend::start().await;
    let unroutable = [
        malformed(),
        mls_message(&[1; 15], ContentType::Application, b"short"),
        mls_message(&[1; 17], ContentType::Application, b"long"),
        welcome_to(&[1; 31]),
        welcome_to(&[1; 33]),
        ClientEnvelope {
            payload: Some(Payload::WelcomeMessage(WelcomeMessage { version: None })),
        },
        update_of(&"a".repeat(63)),
        update_of(&"a".repeat(65)),
        update_of(&"g".repeat(64)),
        update_of(""),
    ];
    for (case, envelope) in unroutable.into_iter().enumerate() {
        let result = backend.try_publish([envelope]).await;
        assert_eq!(
            refusal(result),
            at(Some(0), Reason::MalformedPayload),
            "case {case}"
        );
    }
    stored(&backend, 0, 0).await;
    // Not one of them has used up a sequence id.
    assert_eq!(
        meta_id(&backend.publish([group_message(1, "first")]).await[0]),
        1
    );
}

#[tokio::test]
async fn api_220_an_invalid_envelope_anywhere_stores_nothing() {
    let backend = Backend::start().await;
    for position in 0..3 {
        let mut envelopes = vec![group_message(1, "a"), welcome(2, "b")];
        envelopes.insert(position, malformed());
        let refused = refusal(backend.try_publish(envelopes).await);
        assert_eq!(
            refused,
            at(u32::try_from(position).ok(), Reason::MalformedPayload)
        );
    }
    stored(&backend, 0, 0).await;

    // The row of a duplicate stays as it was.
    let kept = backend.publish([group_message(1, "a")]).await;
    let refused = backend
        .try_publish([group_message(1, "a"), group_message(1, "b"), malformed()])
        .await;
    assert_eq!(refusal(refused), at(Some(2), Reason::MalformedPayload));
    stored(&backend, 1, 1).await;
    let rows = backend.read(&topic(TopicKind::GroupMessage, 1)).await;
    assert_eq!(rows[0].meta.as_ref(), Some(&kept[0]));
}

#[tokio::test]
async fn api_223_each_reason_names_its_position_behind_duplicates() {
    let backend = Backend::with("limits.max_envelope_bytes = 1000").await;
    let stored_before = group_message(1, "stored");
    backend.publish([stored_before.clone()]).await;
    for (at_fault, reason) in [
        (malformed(), Reason::MalformedPayload),
        (sized(1, 1001), Reason::TooLarge),
        (identity_update(7, 2), Reason::InvalidIdentityUpdate),
    ] {
        let result = backend
            .try_publish([
                stored_before.clone(),
                identity_update(7, 1),
                identity_update(7, 1),
                at_fault,
                group_message(1, "new"),
            ])
            .await;
        assert_eq!(refusal(result), at(Some(3), reason));
    }
    stored(&backend, 1, 1).await;
}

#[tokio::test]
async fn api_223_the_lowest_failing_position_decides() {
    let backend = Backend::with("limits.max_envelope_bytes = 1000").await;
    let long = || sized(1, 1001);
    let fill = |text| group_message(1, text);
    for (envelopes, refused) in [
        (
            vec![fill("a"), malformed(), fill("b"), long()],
            at(Some(1), Reason::MalformedPayload),
        ),
        (
            vec![fill("a"), long(), fill("b"), malformed()],
            at(Some(1), Reason::TooLarge),
        ),
        (
            vec![
                identity_update(1, 1),
                identity_update(1, 2),
                malformed(),
                long(),
            ],
            at(Some(1), Reason::InvalidIdentityUpdate),
        ),
    ] {
        assert_eq!(refusal(backend.try_publish(envelopes).await), refused);
    }
    stored(&backend, 0, 0).await;
}

#[tokio::test]
async fn api_230_what_the_contract_does_not_check_is_not_checked() {
    let backend = Backend::start().await;
    // No such group, no such installation, an empty ciphertext, a commit log out of order.
    backend
        .publish([
            mls_message(&[9; 16], ContentType::Commit, b""),
            welcome_to(&[0; 32]),
            commit_log_entry(1, 7),
            commit_log_entry(1, 3),
        ])
        .await;
    stored(&backend, 4, 3).await;
}

#[tokio::test]
async fn undecodable_bytes_are_internal_and_store_nothing() {
    let backend = Backend::start().await;
    for body in [&b"\xff\xff\xff"[..], b"\x0a\x7f", b"\x0a\x02\x0a\x05"] {
        let native = raw::native(backend.address, PATH, frame(body), &[]).await;
        assert_eq!(native.code(), Code::Internal);
        assert!(native.status().details().is_empty());
        let web = raw::web(backend.address, PATH, frame(body), &[]).await;
        assert_eq!(web.code(), Code::Internal);
    }
    stored(&backend, 0, 0).await;
}

#[tokio::test]
async fn an_empty_publish_succeeds_with_an_empty_answer() {
    let backend = Backend::start().await;
    assert_eq!(backend.publish([]).await, []);
    stored(&backend, 0, 0).await;
}

#[tokio::test]
async fn api_201_a_reader_never_sees_an_id_below_one_that_it_has_seen() {
    let backend = Backend::start().await;
    let group = topic(TopicKind::GroupMessage, 1);
    let writers = (0..4).map(|writer| {
        let backend = &backend;
        async move {
            for number in 0..10 {
                backend
                    .publish([group_message(1, format!("{writer} {number}"))])
                    .await;
            }
        }
    });
    let writing = futures::future::join_all(writers);
    let reading = async {
        let mut seen: Vec<u64> = Vec::new();
        while seen.len() < 40 {
            let request = QueryRequest {
                queries: vec![query(&group, 0)],
                limit: 0,
            };
            let page = backend.queries().query(request).await.expect("read");
            let rows = page.into_inner().envelopes;
            let ids: Vec<u64> = rows.iter().map(sequence_id).collect();
            assert!(ids.starts_with(&seen), "a row appeared below a known one");
            assert!(ids.is_sorted());
            seen = ids;
        }
    };
    futures::future::join(writing, reading).await;
}

#[tokio::test]
async fn api_289_an_id_after_a_visible_one_is_greater_on_any_topic() {
    let backend = Backend::start().await;
    let (_other, channel) = backend.another("").await;
    let mut other = PublishServiceClient::new(channel);
    let mut last = 0;
    for number in 0..10 {
        let here = meta_id(&backend.publish([group_message(number, "here")]).await[0]);
        let there = other
            .publish(super::request([welcome(number, "there")]))
            .await
            .expect("published")
            .into_inner();
        let there = meta_id(&there.envelope_metas[0]);
        assert!(last < here && here < there);
        last = there;
    }
}

#[test]
fn api_230_an_envelope_of_arbitrary_bytes_is_stored_or_refused_and_nothing_else() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let backend = runtime.block_on(Backend::start());
    proptest!(|(data in any::<Vec<u8>>())| {
        let message = GroupMessage {
            data: data.into(),
            ..Default::default()
        };
        let envelope = ClientEnvelope { payload: Some(Payload::GroupMessage(message)) };
        let expected = ParsedEnvelope::parse(envelope.clone()).is_ok();
        let result = runtime.block_on(backend.try_publish([envelope]));
        if expected {
            assert!(result.is_ok());
        } else {
            assert_eq!(refusal(result), at(Some(0), Reason::MalformedPayload));
        }
    });
    runtime.block_on(async { drop(backend) });
}

#[tokio::test]
async fn api_230_a_key_package_of_garbage_is_malformed() {
    let backend = Backend::start().await;
    let package = KeyPackage {
        key_package_tls_serialized: Bytes::from_static(b"garbage"),
    };
    let envelope = ClientEnvelope {
        payload: Some(Payload::KeyPackage(package)),
    };
    assert_eq!(
        refusal(backend.try_publish([envelope]).await),
        at(Some(0), Reason::MalformedPayload)
    );
}
