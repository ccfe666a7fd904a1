//! Going down: what is finished, what is refused, and that nobody holds it up.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use futures::stream::{self, StreamExt};
use http::{Request, Version};
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tonic::{Code, Status, Streaming};
use xmtp_protocol::TopicKind;
use xmtp_protocol::client::{ConfigurationServiceClient, SubscriptionServiceClient};
use xmtp_protocol::proto::grpc::health::v1::HealthCheckResponse;
use xmtp_protocol::proto::grpc::health::v1::health_check_response::ServingStatus;
use xmtp_protocol::proto::xmtp::backend::v1::{
    GetConfigurationRequest, PublishRequest, QueryRequest, SubscribeRequest, SubscribeStaticRequest,
};
use xmtp_test_support::payloads::{group_message, topic};
use xmtp_test_support::{TestDatabase, eventually};

use crate::harness::{Backend, connect, query, within};
use crate::health::named;
use crate::process::Process;
use crate::publish;
use crate::raw::{self, frame};
use crate::storage::{Stranger, publishes_wait};

const STATIC_PATH: &str = "/xmtp.backend.v1.SubscriptionService/SubscribeStatic";

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
    let inbound = stream::pending::<SubscribeRequest>();
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
        raw::web(address, STATIC_PATH, frame(b""), &[]).await,
    ] {
        assert_eq!(answer.code(), Code::Unavailable);
        assert_eq!(answer.status().message(), "server is shutting down");
        assert!(answer.header("x-request-id").is_some());
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    }
    // S02: a browser's question is answered in every state, whatever it asks about.
    let headers = "authorization,content-type,traceparent,tracestate,x-grpc-web";
    for version in [Version::HTTP_11, Version::HTTP_2] {
        for path in [publish::PATH, STATIC_PATH, "/nothing.Nothing/Nothing"] {
            let preflight = raw::preflight_over(version, address, path, headers).await;
            assert!(preflight.http.is_success(), "{path}");
            assert_eq!(preflight.header("access-control-allow-origin"), Some("*"));
            assert_eq!(
                preflight.header("access-control-allow-headers"),
                Some(headers)
            );
        }
    }
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
        STATIC_PATH,
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

#[tokio::test]
async fn ops_008_peers_that_say_nothing_or_half_of_it_do_not_hold_the_exit() {
    let backend = Backend::start().await;
    let mut peers = Vec::new();
    for said in [
        &b""[..],
        b"P",
        b"POST / HTTP/1.1\r\nhost: a",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        // And the start of a frame of settings.
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04",
    ] {
        let mut peer = TcpStream::connect(backend.address)
            .await
            .expect("connected");
        peer.write_all(said).await.expect("sent");
        peers.push(peer);
    }
    let start = Instant::now();
    backend.stop().await;
    // The deadline of the drain is twice as far away.
    assert!(start.elapsed() < MARGIN, "{:?}", start.elapsed());
    for mut peer in peers {
        let mut rest = Vec::new();
        // The end, or a reset: the connection is over.
        let _ = within(peer.read_to_end(&mut rest)).await;
    }
}

/// Sends the head of a publish over HTTP/1.1, with further lines, and waits until its handler asks for the body.
pub(crate) async fn half_a_request(address: SocketAddr, lines: &str) -> TcpStream {
    let mut peer = TcpStream::connect(address).await.expect("connected");
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: a\r\ncontent-type: application/grpc-web+proto\r\n\
         content-length: 1000\r\nexpect: 100-continue\r\n{lines}\r\n",
        publish::PATH
    );
    peer.write_all(head.as_bytes()).await.expect("sent");
    let mut answer = vec![0; 12];
    within(peer.read_exact(&mut answer))
        .await
        .expect("answered");
    assert_eq!(answer, b"HTTP/1.1 100");
    // A prefix that promises more than comes.
    peer.write_all(&[0, 0, 0, 3, 0xe3, 1]).await.expect("sent");
    peer
}

#[tokio::test]
async fn ops_008_half_sent_requests_are_answered_at_the_deadline() {
    let backend = Backend::with("server.max_drain_duration_ms = 300").await;
    let mut peer = half_a_request(backend.address, "").await;
    // The same over HTTP/2: one frame of a body that does not end.
    let stream = TcpStream::connect(backend.address)
        .await
        .expect("connected");
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .expect("HTTP/2 is spoken");
    tokio::spawn(connection);
    let part = Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from_static(&[0, 0])));
    let body = stream::once(async { part }).chain(stream::pending());
    let request = Request::post(format!("http://{}{}", backend.address, publish::PATH))
        .header("content-type", "application/grpc")
        .body(StreamBody::new(Box::pin(body)))
        .expect("legal");
    let answer = tokio::spawn(sender.send_request(request));

    let start = Instant::now();
    backend.stop().await;
    let elapsed = start.elapsed();
    assert!(elapsed >= Duration::from_millis(300), "{elapsed:?}");
    assert!(elapsed < MARGIN, "{elapsed:?}");
    let mut said = Vec::new();
    let _ = within(peer.read_to_end(&mut said)).await;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("grpc-status: 14"), "{said}");
    let answer = within(answer).await.expect("no panic").expect("answered");
    assert_eq!(answer.headers()["grpc-status"], "14");
}

#[tokio::test]
async fn ops_007_a_stream_that_opens_as_the_drain_begins_ends_as_well() {
    let backend = Backend::start().await;
    let channel = backend.connect().await;
    let openings = (0..50).map(|number| {
        let mut client = SubscriptionServiceClient::new(channel.clone());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_micros(100 * number)).await;
            let inbound = stream::pending::<SubscribeRequest>();
            match client.subscribe(inbound).await {
                Ok(opened) => end(opened.into_inner()).await,
                Err(refused) => refused,
            }
        })
    });
    let openings: Vec<_> = openings.collect();
    // A unary request in flight: connections are not what ends the streams.
    let _unfinished = half_a_request(backend.address, "").await;
    let stopping = tokio::spawn(backend.stop());
    for ended in within(join_all(openings)).await {
        let status = ended.expect("no panic");
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(status.message(), "server is shutting down");
    }
    assert!(!stopping.is_finished(), "a request is in flight");
    stopping.abort();
}

#[tokio::test]
async fn ops_008_a_log_that_nobody_reads_holds_up_neither_requests_nor_the_exit() {
    // Each request is a line: so many neither fit a pipe nor may wait to be written.
    const ROUNDS: usize = 180;
    const AT_ONCE: usize = 50;
    let database = TestDatabase::create().await;
    for is_read_later in [false, true] {
        let (mut child, mut log, address) = Process::serve_unread(&database, "").await;
        let client = ConfigurationServiceClient::new(connect(address).await);
        for _ in 0..ROUNDS {
            let calls = (0..AT_ONCE).map(|_| {
                let mut client = client.clone();
                async move { client.get_configuration(GetConfigurationRequest {}).await }
            });
            for answer in within(join_all(calls)).await {
                answer.expect("served");
            }
        }
        if is_read_later {
            let told = async {
                // It tells what is missing.
                loop {
                    let line = log.next_line().await.expect("it writes text");
                    if line.expect("it goes on").contains("log lines were dropped") {
                        break;
                    }
                }
            };
            within(told).await;
        }
        let pid = child.id().expect("it runs").try_into();
        kill(Pid::from_raw(pid.expect("a process id")), Signal::SIGTERM).expect("sent");
        let ended = within(child.wait()).await.expect("it ends");
        assert_eq!(ended.code(), Some(0));
    }
}
