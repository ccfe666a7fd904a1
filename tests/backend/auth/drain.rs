//! Authentication comes before drain admission (OPS-007).

use prost::Message;
use tonic::Code;
use xmtp_protocol::TopicKind;
use xmtp_protocol::proto::grpc::health::v1::health_check_response::ServingStatus;
use xmtp_protocol::proto::xmtp::backend::v1::PublishRequest;
use xmtp_test_support::eventually;
use xmtp_test_support::payloads::{group_message, topic};

use super::{API_KEY, ONE_API_KEY, QUERY, bearer};
use crate::harness::{Backend, within};
use crate::health::named;
use crate::publish;
use crate::raw::{self, frame};
use crate::storage::{Stranger, publishes_wait};

#[tokio::test]
async fn ops_007_s02_a_bad_credential_beats_the_drain_and_a_good_one_does_not() {
    let backend = Backend::with_auth(ONE_API_KEY).await;
    let address = backend.address;
    let good = bearer(API_KEY);
    let group = topic(TopicKind::GroupMessage, 1);
    // A publish that waits keeps the drain from ending.
    let stranger = Stranger::on_topic(&backend.database, &group).await;
    let publish = PublishRequest {
        envelopes: vec![group_message(1, "in flight")],
    };
    let body = frame(&publish.encode_to_vec());
    let authorization = good.clone();
    let in_flight = tokio::spawn(async move {
        let headers = [("authorization", authorization.as_str())];
        raw::native(address, publish::PATH, body, &headers).await
    });
    publishes_wait(&backend.database, 1).await;
    let mut health = backend.health();
    let stopping = tokio::spawn(backend.stop());
    eventually("health says so", async || {
        let answer = health.check(named("")).await.expect("exempt").into_inner();
        (answer.status() == ServingStatus::NotServing).then_some(())
    })
    .await;
    for (header, code) in [
        (None, Code::Unauthenticated),
        (Some("nonsense"), Code::Unauthenticated),
        (Some("Bearer unknown"), Code::Unauthenticated),
        (Some(good.as_str()), Code::Unavailable),
    ] {
        let headers: Vec<(&str, &str)> =
            header.map(|it| ("authorization", it)).into_iter().collect();
        for answer in [
            raw::native(address, QUERY, frame(b"\xff"), &headers).await,
            raw::web(address, QUERY, frame(b"\xff"), &headers).await,
        ] {
            assert_eq!(answer.code(), code, "{header:?}");
            assert!(answer.header("x-request-id").is_some());
            assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
        }
    }
    let preflight = raw::preflight(address, QUERY, "authorization").await;
    assert!(preflight.http.is_success());
    stranger.commit().await;
    assert_eq!(in_flight.await.expect("no panic").code(), Code::Ok);
    within(stopping).await.expect("stops");
}
