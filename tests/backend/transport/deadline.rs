//! `grpc-timeout`: the caller's own deadline (contract decisions, 11).

use bytes::Bytes;
use prost::Message;
use tonic::Code;
use xmtp_protocol::TopicKind;
use xmtp_protocol::proto::xmtp::backend::v1::{PublishRequest, SubscribeStaticRequest};
use xmtp_test_support::payloads::{group_message, topic};

use super::request_id;
use crate::harness::{Backend, query};
use crate::publish;
use crate::raw::{self, frame};
use crate::storage::{Stranger, publishes_wait};

fn one_message() -> Bytes {
    let request = PublishRequest {
        envelopes: vec![group_message(1, "late")],
    };
    frame(&request.encode_to_vec())
}

#[tokio::test]
async fn arc_051_a_publish_ends_at_its_callers_deadline_and_leaves_no_lock() {
    let backend = Backend::start().await;
    let group = topic(TopicKind::GroupMessage, 1);
    let stranger = Stranger::on_topic(&backend.database, &group).await;
    let timeout = [("grpc-timeout", "200m")];
    for answer in [
        raw::native(backend.address, publish::PATH, one_message(), &timeout).await,
        raw::web(backend.address, publish::PATH, one_message(), &timeout).await,
    ] {
        assert_eq!(answer.http, 200);
        assert_eq!(answer.code(), Code::DeadlineExceeded);
        assert!(answer.status().details().is_empty());
        assert!(!request_id(&answer).is_empty());
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    }
    // Their places in the queue are given up although the lock is still held.
    publishes_wait(&backend.database, 0).await;
    assert_eq!(backend.count("envelopes").await, 0);
    stranger.commit().await;
    backend.publish([group_message(1, "late")]).await;
}

#[tokio::test]
async fn a_stream_ends_at_its_callers_deadline() {
    let backend = Backend::start().await;
    let request = SubscribeStaticRequest {
        topics: vec![query(&topic(TopicKind::GroupMessage, 1), 0)],
    };
    let body = frame(&request.encode_to_vec());
    let path = "/xmtp.backend.v1.SubscriptionService/SubscribeStatic";
    let timeout = [("grpc-timeout", "300m")];
    for answer in [
        raw::native(backend.address, path, body.clone(), &timeout).await,
        raw::web(backend.address, path, body.clone(), &timeout).await,
    ] {
        assert_eq!(answer.messages.len(), 1, "it had started");
        assert_eq!(answer.code(), Code::DeadlineExceeded);
    }
}

#[tokio::test]
async fn a_deadline_that_is_met_or_malformed_changes_nothing() {
    let backend = Backend::start().await;
    for timeout in ["30S", "99999999H", "", "5", "soon", "123456789S", "-1S"] {
        let headers = [("grpc-timeout", timeout)];
        let answer = raw::native(backend.address, publish::PATH, one_message(), &headers).await;
        assert_eq!(answer.code(), Code::Ok, "{timeout}");
        assert_eq!(answer.messages.len(), 1);
    }
}
