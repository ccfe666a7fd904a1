//! What browsers send and read: gRPC-Web over HTTP/1.1 and HTTP/2, and CORS (API-285).

use bytes::Bytes;
use http::{Request, Version};
use http_body_util::{BodyExt, Full};
use prost::Message;
use tonic::Code;
use xmtp_protocol::proto::xmtp::backend::v1::publish_error::Reason;
use xmtp_protocol::proto::xmtp::backend::v1::subscribe_static_response::Response;
use xmtp_protocol::proto::xmtp::backend::v1::{
    PublishRequest, PublishResponse, SubscribeStaticRequest, SubscribeStaticResponse,
};
use xmtp_protocol::{Topic, TopicKind};
use xmtp_test_support::payloads::{group_message, topic};

use super::{CONFIGURATION, UNKNOWN};
use crate::harness::{Backend, meta_id, publish_error, query, sequence_id};
use crate::publish;
use crate::raw::{self, Answer, frame};

const EXPOSED: [&str; 4] = [
    "grpc-status",
    "grpc-message",
    "grpc-status-details-bin",
    "x-request-id",
];

#[track_caller]
fn readable_by_scripts(answer: &Answer) {
    assert_eq!(answer.http, 200);
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    assert_eq!(answer.header("access-control-allow-credentials"), None);
    let exposed = answer
        .header("access-control-expose-headers")
        .expect("headers are exposed")
        .to_lowercase();
    let exposed: Vec<&str> = exposed.split(',').map(str::trim).collect();
    for name in EXPOSED {
        assert!(exposed.contains(&name), "{name}");
    }
}

fn request(group: u8, text: &str) -> Bytes {
    let request = PublishRequest {
        envelopes: vec![group_message(group, text)],
    };
    frame(&request.encode_to_vec())
}

#[tokio::test]
async fn api_285_a_browser_publishes_over_http_1_1() {
    let backend = Backend::start().await;
    let answer = raw::web(backend.address, publish::PATH, request(1, "a"), &[]).await;
    readable_by_scripts(&answer);
    assert_eq!(answer.code(), Code::Ok);
    assert_eq!(
        answer.header("content-type"),
        Some("application/grpc-web+proto")
    );
    let response = PublishResponse::decode(answer.messages[0].clone()).expect("an answer");
    let rows = backend.read(&topic(TopicKind::GroupMessage, 1)).await;
    assert_eq!(sequence_id(&rows[0]), meta_id(&response.envelope_metas[0]));
}

#[tokio::test]
async fn s01_a_failure_before_any_message_can_be_read_by_scripts() {
    let backend =
        Backend::with("limits.max_request_bytes = 2000\nlimits.max_envelope_bytes = 1000").await;
    for (path, body, code) in [
        (publish::PATH, &b"\x0a\x00"[..], Code::InvalidArgument),
        (publish::PATH, b"\xff", Code::Internal),
        (publish::PATH, &[0; 2001], Code::OutOfRange),
        (UNKNOWN[0], b"", Code::Unimplemented),
        ("/grpc.health.v1.Health/Check", b"\x0a\x01?", Code::NotFound),
    ] {
        let answer = raw::web(backend.address, path, frame(body), &[]).await;
        readable_by_scripts(&answer);
        let status = answer.status();
        assert_eq!(status.code(), code, "{path}");
        assert!(answer.header("x-request-id").is_some());
        if code == Code::InvalidArgument {
            let detail = publish_error(&status).expect("the detail arrives");
            assert_eq!(detail.index, Some(0));
            assert!(detail.reason() == Reason::MalformedPayload);
        }
    }
}

#[tokio::test]
async fn s02_a_preflight_allows_every_header_that_it_names() {
    let named = "authorization,content-type,grpc-timeout,x-grpc-web,x-user-agent,x-app-version,\
                 x-libxmtp-version,traceparent,tracestate,x-made-up";
    let backend = Backend::start().await;
    for path in [publish::PATH, CONFIGURATION, UNKNOWN[0]] {
        let answer = raw::preflight(backend.address, path, named).await;
        assert!(answer.http.is_success());
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
        assert_eq!(answer.header("access-control-allow-headers"), Some(named));
        assert_eq!(answer.header("access-control-allow-methods"), Some("*"));
        assert_eq!(answer.header("access-control-allow-credentials"), None);
        assert!(answer.header("vary").is_some());
        assert!(answer.messages.is_empty());
    }
}

#[tokio::test]
async fn st_35_api_285_static_stream_frames_arrive_one_by_one_over_http_1_1() {
    frames_arrive_one_by_one(Version::HTTP_11).await;
}

#[tokio::test]
async fn api_285_static_stream_frames_arrive_one_by_one_over_http_2() {
    frames_arrive_one_by_one(Version::HTTP_2).await;
}

async fn frames_arrive_one_by_one(version: Version) {
    // No keepalive pushes out what waits in a buffer.
    let backend =
        Backend::with("streams.keepalive_interval_ms = 300000\nstreams.max_pong_wait_ms = 600000")
            .await;
    let group = topic(TopicKind::GroupMessage, 1);
    let mut stream = StaticStream::open(version, &backend, &group).await;
    assert!(matches!(stream.next().await, Response::Started(_)));
    // Each is published only when the one before has arrived.
    for text in ["a", "b", "c"] {
        let metas = backend.publish([group_message(1, text)]).await;
        let Response::Messages(messages) = stream.next().await else {
            panic!("the row comes next")
        };
        assert_eq!(messages.envelopes.len(), 1);
        assert_eq!(sequence_id(&messages.envelopes[0]), meta_id(&metas[0]));
    }
}

#[tokio::test]
async fn api_285_keepalives_reach_a_browser() {
    let backend = Backend::with("streams.keepalive_interval_ms = 100").await;
    let group = topic(TopicKind::GroupMessage, 1);
    let mut stream = StaticStream::open(Version::HTTP_11, &backend, &group).await;
    assert!(matches!(stream.next().await, Response::Started(_)));
    assert!(matches!(stream.next().await, Response::Keepalive(_)));
}

/// A browser's static stream of one topic.
struct StaticStream(raw::Messages);

impl StaticStream {
    async fn open(version: Version, backend: &Backend, topic: &Topic) -> Self {
        let request = SubscribeStaticRequest {
            topics: vec![query(topic, 0)],
        };
        let stream = raw::open_web_over(
            version,
            backend.address,
            "/xmtp.backend.v1.SubscriptionService/SubscribeStatic",
            frame(&request.encode_to_vec()),
            &[],
        )
        .await;
        assert_eq!(stream.version(), version);
        assert!(stream.headers().contains_key("x-request-id"));
        assert_eq!(stream.headers()["access-control-allow-origin"], "*");
        Self(raw::Messages::of(stream))
    }

    async fn next(&mut self) -> Response {
        SubscribeStaticResponse::decode(self.0.next().await)
            .expect("a frame")
            .response
            .expect("set")
    }
}

#[tokio::test]
async fn what_is_neither_grpc_nor_a_preflight_is_an_http_error() {
    let backend = Backend::start().await;
    for (method, kind, expected) in [
        ("GET", "application/grpc-web+proto", 405),
        ("PUT", "application/grpc-web", 405),
        ("POST", "application/grpc", 400),
        ("POST", "application/json", 400),
        ("GET", "text/html", 400),
    ] {
        let request = Request::builder()
            .method(method)
            .uri(publish::PATH)
            .header("content-type", kind)
            .body(Full::new(frame(b"")))
            .expect("legal");
        let answer = raw::http1(backend.address, request).await;
        assert_eq!(answer.status(), expected, "{method} {kind}");
    }
}

#[tokio::test]
async fn api_285_every_content_type_of_grpc_web_is_spoken() {
    let backend = Backend::start().await;
    // An empty publish, and the same in base64.
    for (kind, body) in [
        ("application/grpc-web", &b"\0\0\0\0\0"[..]),
        ("application/grpc-web+proto", b"\0\0\0\0\0"),
        ("application/grpc-web-text", b"AAAAAAA="),
        ("application/grpc-web-text+proto", b"AAAAAAA="),
    ] {
        let request = Request::post(publish::PATH)
            .header("content-type", kind)
            .header("accept", kind)
            .body(Full::new(Bytes::from_static(body)))
            .expect("legal");
        let answer = raw::http1(backend.address, request).await;
        assert_eq!(answer.status(), 200);
        let body = answer.into_body().collect().await.expect("arrives");
        assert!(!body.to_bytes().is_empty(), "{kind}");
    }
}
