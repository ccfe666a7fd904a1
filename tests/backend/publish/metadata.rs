//! What the server says about an envelope (API-212), now and whenever it is read.

use bytes::Bytes;
use prost::Message;
use sha2::{Digest, Sha256};
use tonic::Code;
use xmtp_protocol::client::QueryServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::publish_error::Reason;
use xmtp_protocol::proto::xmtp::backend::v1::{
    ClientEnvelope, EnvelopeMeta, QueryNewestRequest, QueryRequest,
};
use xmtp_protocol::{Topic, TopicKind};
use xmtp_test_support::payloads::{
    ContentType, Recorded, commit_log_entry, group_message, identity_update, installation,
    key_package, mls_message, recorded, topic, welcome,
};

use super::canonical::hash;
use super::{at, failed, refusal};
use crate::harness::{Backend, meta_id, query, wire};

fn topic_of(meta: &EnvelopeMeta) -> Topic {
    let topic = &meta.topic.as_ref().expect("metadata has a topic").topic;
    Topic::parse(topic).expect("the topic is legal")
}

/// The newest row of a topic, with its payload: also of a key package.
async fn newest(backend: &Backend, topic: &Topic) -> (EnvelopeMeta, ClientEnvelope) {
    let request = QueryNewestRequest {
        topics: vec![wire(topic)],
        include_full_envelope: true,
    };
    let answer = backend.queries().query_newest(request).await.expect("read");
    let result = answer.into_inner().results.remove(0);
    (
        result.meta.expect("set"),
        result.envelope.expect("asked for"),
    )
}

#[tokio::test]
async fn api_212_metadata_of_every_kind() {
    const SECOND: u64 = 1_000_000_000;
    let backend = Backend::with(
        "retention.group_message_seconds = 100\n\
         retention.welcome_seconds = 200\n\
         retention.key_package_seconds = 300",
    )
    .await;
    let mls = |content, text: &str| mls_message(&[1; 16], content, text.as_bytes());
    let group = topic(TopicKind::GroupMessage, 1);
    let package_topic = Topic::new(TopicKind::KeyPackage, &installation().public_key());
    // What is sent, its topic, the seconds that it is kept, and the flag.
    let cases = [
        (mls(ContentType::Application, "a"), group, 100, false),
        (mls(ContentType::Proposal, "b"), group, 0, true),
        (mls(ContentType::Commit, "c"), group, 0, true),
        (welcome(2, "d"), topic(TopicKind::Welcome, 2), 200, false),
        (
            identity_update(3, 1),
            topic(TopicKind::IdentityUpdate, 3),
            0,
            false,
        ),
        (key_package(), package_topic.expect("legal"), 300, false),
        (
            commit_log_entry(4, 1),
            topic(TopicKind::CommitLogEntry, 4),
            0,
            false,
        ),
    ];
    let metas = backend
        .publish(cases.iter().map(|(envelope, ..)| envelope.clone()))
        .await;
    assert_eq!(metas.len(), cases.len());
    for (meta, (envelope, topic, kept, flag)) in metas.iter().zip(&cases) {
        assert_eq!(topic_of(meta), *topic);
        assert_eq!(
            hash(meta),
            <[u8; 32]>::from(Sha256::digest(envelope.encode_to_vec()))
        );
        assert_eq!(meta.is_commit_or_proposal, *flag);
        assert_eq!(meta.server_ns, metas[0].server_ns, "one transaction");
        let expiry = if *kept == 0 {
            0
        } else {
            meta.server_ns + kept * SECOND
        };
        assert_eq!(meta.expiry_ns, expiry);
    }
    let ids: Vec<u64> = metas.iter().map(meta_id).collect();
    assert!(ids[0] > 0 && ids.is_sorted_by(|a, b| a < b));
    let year_2025 = 1_735_689_600 * SECOND;
    assert!(metas[0].server_ns > year_2025 && i64::try_from(metas[0].server_ns).is_ok());
}

#[tokio::test]
async fn api_212_recorded_envelopes_are_described_as_they_were_recorded() {
    let backend = Backend::start().await;
    let (valid, refused): (Vec<&Recorded>, Vec<_>) =
        recorded().iter().partition(|it| it.is_valid());
    let mut receipts = Vec::new();
    for recorded in &valid {
        let meta = backend.publish([recorded.decode()]).await.remove(0);
        assert_eq!(hex::encode(topic_of(&meta).as_bytes()), recorded.topic);
        assert_eq!(hex::encode(hash(&meta)), recorded.hash);
        assert_eq!(meta.is_commit_or_proposal, recorded.is_commit_or_proposal);
        receipts.push(meta);
    }
    for recorded in &refused {
        let result = backend.try_publish([recorded.decode()]).await;
        if recorded.needs_chain {
            failed(result, Code::Unavailable);
        } else {
            assert_eq!(refusal(result), at(Some(0), Reason::InvalidKeyPackage));
        }
    }
    assert_eq!(receipts.len() + refused.len(), 110);
    assert!(
        receipts.len() >= 97,
        "all but two updates and eleven packages"
    );
    let rows = backend.count("envelopes").await;
    assert_eq!(usize::try_from(rows), Ok(receipts.len()));

    // Sent again: the same answers, and no new row.
    for (recorded, receipt) in valid.iter().zip(&receipts) {
        let again = backend.publish([recorded.decode()]).await;
        assert_eq!(again, std::slice::from_ref(receipt));
    }
    assert_eq!(backend.count("envelopes").await, rows);

    // SEND-007: what is read later is what the receipt said.
    for (recorded, receipt) in valid.iter().zip(&receipts) {
        let topic = topic_of(receipt);
        let (meta, envelope) = if topic.kind() == TopicKind::KeyPackage {
            newest(&backend, &topic).await
        } else {
            let request = QueryRequest {
                queries: vec![query(&topic, meta_id(receipt) - 1)],
                limit: 1,
            };
            let page = backend.queries().query(request).await.expect("read");
            let row = page.into_inner().envelopes.remove(0);
            (row.meta.expect("set"), row.envelope.expect("set"))
        };
        if meta_id(&meta) == meta_id(receipt) {
            assert_eq!(meta, *receipt);
            assert_eq!(hex::encode(envelope.encode_to_vec()), recorded.envelope);
        } else {
            // A later package of the same installation.
            assert_eq!(topic.kind(), TopicKind::KeyPackage);
            assert!(meta_id(&meta) > meta_id(receipt));
        }
    }
}

#[tokio::test]
async fn api_202_a_query_on_another_instance_sees_what_was_answered() {
    let backend = Backend::start().await;
    let (_other, channel) = backend.another("").await;
    let mut reader = QueryServiceClient::new(channel);
    let group = topic(TopicKind::GroupMessage, 1);
    for number in 0..20u8 {
        let receipt = backend.publish([group_message(1, [number])]).await;
        let request = QueryRequest {
            queries: vec![query(&group, meta_id(&receipt[0]) - 1)],
            limit: 0,
        };
        let page = reader.query(request).await.expect("read").into_inner();
        assert_eq!(page.envelopes.len(), 1);
        assert_eq!(page.envelopes[0].meta.as_ref(), Some(&receipt[0]));
    }
}

#[tokio::test]
async fn api_212_two_publishes_have_their_own_times_and_order() {
    let backend = Backend::start().await;
    let first = backend.publish([group_message(1, "a")]).await;
    let second = backend
        .publish([group_message(1, Bytes::from_static(b"b"))])
        .await;
    assert!(first[0].server_ns < second[0].server_ns);
    assert!(meta_id(&first[0]) < meta_id(&second[0]));
}
