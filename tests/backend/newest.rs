//! `QueryNewest`: the head of each topic.

use prost::Message;
use tonic::{Code, Status};
use xmtp_protocol::client::QueryServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::{
    QueryNewestRequest, QueryNewestResponse, Topic as WireTopic,
};
use xmtp_protocol::{Topic, TopicKind};
use xmtp_test_support::payloads::{
    commit_log_entry, group_message, identity_update, key_package, topic, welcome,
};

use crate::harness::{Backend, wire};
use crate::query::{malformed_topics, refused};

fn group(identifier: u8) -> Topic {
    topic(TopicKind::GroupMessage, identifier)
}

fn request(topics: Vec<WireTopic>, include_full_envelope: bool) -> QueryNewestRequest {
    QueryNewestRequest {
        topics,
        include_full_envelope,
    }
}

async fn newest(
    backend: &Backend,
    topics: Vec<WireTopic>,
    full: bool,
) -> Result<QueryNewestResponse, Status> {
    let answer = backend.queries().query_newest(request(topics, full)).await;
    Ok(answer?.into_inner())
}

#[tokio::test]
async fn api_244_each_topic_with_rows_is_answered_once_with_its_head() {
    let backend = Backend::start().await;
    let envelopes = [
        welcome(1, "a"),
        identity_update(1, 1),
        key_package(),
        commit_log_entry(1, 1),
        group_message(1, "b"),
    ];
    backend.publish([group_message(1, "a")]).await;
    let metas = backend.publish(envelopes.clone()).await;
    let topics: Vec<WireTopic> = metas.iter().filter_map(|meta| meta.topic.clone()).collect();
    // Everything twice, and a topic without rows.
    let asked = [&topics[..], &[wire(&group(9))], &topics].concat();
    for full in [false, true] {
        let answer = newest(&backend, asked.clone(), full).await.expect("read");
        assert_eq!(answer.results.len(), 5);
        for (at, result) in answer.results.iter().enumerate() {
            assert_eq!(result.topic.as_ref(), Some(&topics[at]));
            assert_eq!(result.meta.as_ref(), Some(&metas[at]));
            let envelope = full.then_some(&envelopes[at]);
            assert_eq!(result.envelope.as_ref(), envelope);
        }
    }
}

#[tokio::test]
async fn api_131_the_bound_is_that_of_the_mode_and_counts_repeats() {
    let backend =
        Backend::with("limits.max_newest_full_topics = 2\nlimits.max_newest_metadata_topics = 3")
            .await;
    backend.publish([group_message(1, "a")]).await;
    for (full, limit) in [(true, 2), (false, 3)] {
        let topics = |count| vec![wire(&group(1)); count];
        let answer = newest(&backend, topics(limit), full).await;
        assert_eq!(answer.expect("the limit").results.len(), 1);
        refused(newest(&backend, topics(limit + 1), full).await);
        // Counted before anything is looked at.
        let status = newest(&backend, vec![WireTopic::default(); limit + 1], full)
            .await
            .expect_err("one past");
        assert_eq!(status.message(), "request exceeds item limit");
    }
}

#[tokio::test]
async fn api_131_the_default_bounds_are_100_in_full_and_1000_without_payload() {
    let backend = Backend::start().await;
    for (full, limit) in [(true, 100), (false, 1000)] {
        let topics = |count| vec![wire(&group(1)); count];
        newest(&backend, topics(limit), full)
            .await
            .expect("the limit");
        refused(newest(&backend, topics(limit + 1), full).await);
    }
}

#[tokio::test]
async fn topic_003_a_malformed_topic_fails_the_whole_request() {
    let backend = Backend::start().await;
    for malformed in malformed_topics().into_iter().flatten() {
        for full in [false, true] {
            let topics = vec![wire(&group(1)), malformed.clone()];
            refused(newest(&backend, topics, full).await);
        }
    }
}

#[tokio::test]
async fn a_request_for_nothing_has_an_empty_answer() {
    let backend = Backend::start().await;
    for topics in [vec![], vec![wire(&group(1))]] {
        for full in [false, true] {
            let answer = newest(&backend, topics.clone(), full).await.expect("read");
            assert_eq!(answer.results, []);
        }
    }
}

#[tokio::test]
async fn api_283_an_answer_that_is_too_long_fails_and_is_never_cut() {
    let backend = Backend::start().await;
    backend
        .publish((0..10u8).map(|group| group_message(group, vec![group; 500])))
        .await;
    let topics: Vec<WireTopic> = (0..10u8).map(|number| wire(&group(number))).collect();
    for full in [true, false] {
        let whole = newest(&backend, topics.clone(), full).await.expect("fits");
        for (room, fits) in [
            (whole.encoded_len(), true),
            (whole.encoded_len() - 1, false),
        ] {
            let limits =
                format!("limits.max_envelope_bytes = 600\nlimits.max_response_bytes = {room}");
            let (_tight, channel) = backend.another(&limits).await;
            let answer = QueryServiceClient::new(channel)
                .query_newest(request(topics.clone(), full))
                .await;
            if fits {
                assert_eq!(answer.expect("at the limit").into_inner(), whole);
            } else {
                let status = answer.expect_err("past the limit");
                assert_eq!(status.code(), Code::OutOfRange);
                assert!(status.details().is_empty());
            }
        }
    }
}

#[tokio::test]
async fn ops_002_an_expired_key_package_is_still_the_newest() {
    let backend = Backend::start().await;
    let metas = backend.publish([key_package()]).await;
    backend
        .database
        .execute("UPDATE envelopes SET server_ns = 1, expiry_ns = 2")
        .await;
    let topics: Vec<WireTopic> = metas[0].topic.iter().cloned().collect();
    let answer = newest(&backend, topics, true).await.expect("read");
    assert_eq!(answer.results[0].envelope.as_ref(), Some(&key_package()));
    let meta = answer.results[0].meta.as_ref().expect("set");
    assert_eq!(meta.expiry_ns, 2);
}
