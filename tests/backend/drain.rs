//! Going down: what is finished, what is refused, and that nobody holds it up.

use std::time::Duration;

use prost::Message;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tonic::{Code, Status, Streaming};
use xmtp_protocol::TopicKind;
use xmtp_protocol::proto::grpc::health::v1::HealthCheckResponse;
use xmtp_protocol::proto::grpc::health::v1::health_check_response::ServingStatus;
use xmtp_protocol::proto::xmtp::backend::v1::{
    PublishRequest, QueryRequest, SubscribeRequest, SubscribeStaticRequest,
};
use xmtp_test_support::eventually;
use xmtp_test_support::payloads::{group_message, topic};

use crate::harness::{Backend, query, within};
use crate::health::named;
use crate::publish;
use crate::raw::{self, frame};
use crate::storage::{Stranger, publishes_wait};

/// Beyond every deadline of a drain, for a busy machine.
const MARGIN: Duration = Duration::from_secs(5);

fn one_message() -> PublishRequest {
    PublishRequest {
        envelopes: vec![group_message(1, "in flight")],
    }
}

/// The rest of a watch: every status until its end.
async fn rest(mut watch: Streaming<HealthCheckResponse>) -> Vec<ServingStatus> {
    let mut statuses = Vec::new();
    while let Ok(Some(answer)) = within(watch.message()).await {
        statuses.push(answer.status());
    }
    statuses
}

/// The status with which a stream ends.
async fn end<T>(mut stream: Streaming<T>) -> Status {
    loop {
        match within(stream.message()).await {
            Ok(frame) => assert!(frame.is_some(), "the stream ends with a status"),
            Err(end) => return end,
        }
    }
}

#[tokio::test]
async fn ops_007_a_drain_finishes_what_runs_and_refuses_what_comes() {
    let backend = Backend::start().await;
    let address = backend.address;
    let group = topic(TopicKind::GroupMessage, 1);
    let stranger = Stranger::on_topic(&backend.database, &group).await;
    let (mut publisher, mut queries) = (backend.publisher(), backend.queries());
    let mut health = backend.health();
    let in_flight = tokio::spawn(async move { publisher.publish(one_message()).await });
    publishes_wait(&backend.database, 1).await;

    // Streams of both kinds, and watches of a known and of an unknown name (S37).
    let inbound = futures::stream::pending::<SubscribeRequest>();
    let subscription = backend
        .subscriptions()
        .subscribe(inbound)
        .await
        .expect("admitted")
        .into_inner();
    let subscribe_static = SubscribeStaticRequest {
        topics: vec![query(&group, 0)],
    };
    let static_subscription = backend
        .subscriptions()
        .subscribe_static(subscribe_static)
        .await
        .expect("admitted")
        .into_inner();
    let mut watches = Vec::new();
    for (name, status) in [
        ("", ServingStatus::Serving),
        ("xmtp.backend.v1.PublishService", ServingStatus::Serving),
        ("xmtp.backend.v1.Nothing", ServingStatus::ServiceUnknown),
    ] {
        let watch = health.watch(named(name)).await;
        let mut watch = watch.expect("admitted").into_inner();
        let first = watch.message().await.expect("healthy").expect("open");
        assert_eq!(first.status(), status);
        watches.push(watch);
    }

    let stopping = tokio::spawn(backend.stop());
    let not_serving = ServingStatus::NotServing;
    eventually("health says so", async || {
        let answer = health.check(named("")).await.expect("exempt").into_inner();
        (answer.status() == not_serving).then_some(())
    })
    .await;

    // Streams end at once, although a request is still in flight.
    assert_eq!(end(subscription).await.code(), Code::Unavailable);
    assert_eq!(end(static_subscription).await.code(), Code::Unavailable);

    // On an open connection and on new ones, over every transport.
    let status = queries
        .query(QueryRequest::default())
        .await
        .expect_err("refused");
    assert_eq!(status.code(), Code::Unavailable);
    for answer in [
        raw::native(address, publish::PATH, frame(b""), &[]).await,
        raw::web(address, publish::PATH, frame(b""), &[]).await,
        // No body is read, no path looked up.
        raw::native(address, publish::PATH, frame(b"\xff"), &[]).await,
        raw::native(address, "/nothing.Nothing/Nothing", frame(b""), &[]).await,
        raw::web(
            address,
            "/xmtp.backend.v1.SubscriptionService/SubscribeStatic",
            frame(b""),
            &[],
        )
        .await,
    ] {
        assert_eq!(answer.code(), Code::Unavailable);
        assert_eq!(answer.status().message(), "server is shutting down");
        assert!(answer.header("x-request-id").is_some());
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    }
    // S02: a browser's question is answered in every state.
    let preflight = raw::preflight(address, publish::PATH, "authorization,content-type").await;
    assert!(preflight.http.is_success());
    assert_eq!(
        preflight.header("access-control-allow-headers"),
        Some("authorization,content-type")
    );
    assert!(!stopping.is_finished());

    stranger.commit().await;
    let answer = in_flight.await.expect("no panic").expect("finished");
    assert_eq!(answer.into_inner().envelope_metas.len(), 1);
    let unknown = watches.pop().expect("three watches");
    assert!(rest(unknown).await.is_empty());
    for watch in watches {
        assert_eq!(rest(watch).await, [not_serving]);
    }
    within(stopping).await.expect("stops");
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn s37_watches_see_the_drain_end_and_hold_it_up_for_no_time() {
    let backend = Backend::start().await;
    let mut watches = Vec::new();
    for name in ["", "xmtp.backend.v1.QueryService", "unknown"] {
        let watch = backend.health().watch(named(name)).await;
        let mut watch = watch.expect("admitted").into_inner();
        watch.message().await.expect("healthy").expect("open");
        watches.push(tokio::spawn(rest(watch)));
    }
    let start = Instant::now();
    backend.stop().await;
    assert!(start.elapsed() < MARGIN);
    let mut seen = Vec::new();
    for watch in watches {
        seen.push(watch.await.expect("ended"));
    }
    let not_serving = vec![ServingStatus::NotServing];
    assert_eq!(seen, [not_serving.clone(), not_serving, vec![]]);
}

#[tokio::test]
async fn ops_008_a_hung_handler_is_answered_at_the_deadline() {
    let backend = Backend::with("server.max_drain_duration_ms = 300").await;
    let group = topic(TopicKind::GroupMessage, 1);
    let _stranger = Stranger::on_topic(&backend.database, &group).await;
    let mut publisher = backend.publisher();
    let hung = tokio::spawn(async move { publisher.publish(one_message()).await });
    publishes_wait(&backend.database, 1).await;
    let start = Instant::now();
    let database = backend.stop().await;
    let elapsed = start.elapsed();
    assert!(elapsed >= Duration::from_millis(300), "{elapsed:?}");
    assert!(elapsed < MARGIN, "{elapsed:?}");
    let status = hung.await.expect("no panic").expect_err("stopped");
    assert_eq!(status.code(), Code::Unavailable);
    publishes_wait(&database, 0).await;
}

#[tokio::test]
async fn s36_a_peer_that_reads_nothing_does_not_hold_the_exit() {
    let backend = Backend::with("server.max_drain_duration_ms = 2000").await;
    let group = topic(TopicKind::GroupMessage, 2);
    // More than the buffers of a connection hold.
    for number in 0..16u8 {
        backend
            .publish([group_message(2, vec![number; 900_000])])
            .await;
    }
    let subscribe = SubscribeStaticRequest {
        topics: vec![query(&group, 0)],
    };
    let frozen = raw::open_web(
        backend.address,
        "/xmtp.backend.v1.SubscriptionService/SubscribeStatic",
        frame(&subscribe.encode_to_vec()),
        &[],
    )
    .await;
    let stranger = Stranger::on_topic(&backend.database, &topic(TopicKind::GroupMessage, 1)).await;
    let mut publisher = backend.publisher();
    let in_flight = tokio::spawn(async move { publisher.publish(one_message()).await });
    publishes_wait(&backend.database, 1).await;

    let mut health = backend.health();
    let start = Instant::now();
    let stopping = tokio::spawn(backend.stop());
    eventually("health says so", async || {
        let answer = health.check(named("")).await.expect("exempt").into_inner();
        (answer.status() == ServingStatus::NotServing).then_some(())
    })
    .await;
    stranger.commit().await;
    in_flight.await.expect("no panic").expect("answered");
    within(stopping).await.expect("stops");
    // Nobody waited for the deadline: streams are no requests in flight.
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    drop(frozen);
}

#[tokio::test]
async fn ops_008_an_answer_that_nobody_reads_is_dropped_at_the_deadline() {
    let backend = Backend::with("server.max_drain_duration_ms = 300").await;
    let group = topic(TopicKind::GroupMessage, 2);
    for number in 0..16u8 {
        backend
            .publish([group_message(2, vec![number; 900_000])])
            .await;
    }
    let request = QueryRequest {
        queries: vec![query(&group, 0)],
        limit: 0,
    };
    let unread = raw::open_web(
        backend.address,
        "/xmtp.backend.v1.QueryService/Query",
        frame(&request.encode_to_vec()),
        &[],
    )
    .await;
    let start = Instant::now();
    backend.stop().await;
    let elapsed = start.elapsed();
    assert!(elapsed >= Duration::from_millis(300), "{elapsed:?}");
    assert!(elapsed < MARGIN, "{elapsed:?}");
    drop(unread);
}
