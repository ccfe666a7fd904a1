//! Requests and answers that the gRPC library would refuse by itself: they are refused with statuses of our own.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tonic::{Code, Status};
use xmtp_test_support::payloads::group_message;

use super::{CONFIGURATION, UNKNOWN};
use crate::harness::Backend;
use crate::publish;
use crate::raw::{self, Answer, frame};

const HEALTH: &str = "/grpc.health.v1.Health/Check";
const SUBSCRIBE: &str = "/xmtp.backend.v1.SubscriptionService/Subscribe";
const SUBSCRIBE_STATIC: &str = "/xmtp.backend.v1.SubscriptionService/SubscribeStatic";
const QUERY: &str = "/xmtp.backend.v1.QueryService/Query";
const INBOXES: &str = "/xmtp.backend.v1.IdentityService/GetInboxIds";

/// One of each kind: those that are decoded at once, those that stay encoded, and both streams.
const PATHS: [&str; 7] = [
    CONFIGURATION,
    HEALTH,
    publish::PATH,
    QUERY,
    INBOXES,
    SUBSCRIBE_STATIC,
    SUBSCRIBE,
];

const UNDECODABLE: (Code, &str) = (Code::Internal, "request cannot be decoded");

/// How a body is answered, over both flavours.
async fn statuses(
    backend: &Backend,
    path: &str,
    body: &[u8],
    headers: &[(&str, &str)],
) -> [Status; 2] {
    let body = Bytes::copy_from_slice(body);
    [
        raw::native(backend.address, path, body.clone(), headers).await,
        raw::web(backend.address, path, body, headers).await,
    ]
    .map(|answer| answer.status())
}

#[track_caller]
fn assert_status(status: &Status, (code, text): (Code, &str), of: &str) {
    assert_eq!((status.code(), status.message()), (code, text), "{of}");
}

#[tokio::test]
async fn api_281_what_is_no_message_is_refused_in_our_words() {
    let backend = Backend::start().await;
    for body in [
        // Compressed, without a header that says how; flags that there are not.
        &b"\x01\0\0\0\0"[..],
        b"\x02\0\0\0\0",
        b"\xff\0\0\0\0",
        // Cut in the prefix, and in the message.
        b"\0",
        b"\0\0\0\0",
        b"\0\0\0\0\x02\x0a",
        // No protobuf.
        b"\0\0\0\0\x01\xff",
    ] {
        for path in PATHS {
            for status in statuses(&backend, path, body, &[]).await {
                let of = format!("{path} {body:?}");
                if path == SUBSCRIBE {
                    // The stream has begun, and says how it ends.
                    assert_eq!(status.code(), Code::Internal, "{of}");
                    assert!(!status.message().contains("protocol error"), "{of}");
                } else {
                    assert_status(&status, UNDECODABLE, &of);
                }
            }
        }
    }
    // Something after the message. A stream has an answer to the message by then.
    for path in PATHS.into_iter().filter(|path| *path != SUBSCRIBE) {
        for status in statuses(&backend, path, b"\0\0\0\0\0\x07", &[]).await {
            assert_status(&status, UNDECODABLE, path);
        }
    }
    // A text that is no text.
    for status in statuses(&backend, HEALTH, &frame(b"\x0a\x01\xff"), &[]).await {
        assert_status(&status, UNDECODABLE, "a name");
    }
}

#[tokio::test]
async fn api_281_a_request_without_a_message_is_refused_in_our_words() {
    let backend = Backend::start().await;
    for path in PATHS.into_iter().filter(|path| *path != SUBSCRIBE) {
        for status in statuses(&backend, path, b"", &[]).await {
            let expected = (Code::Internal, "request message is missing");
            assert_status(&status, expected, path);
        }
    }
}

#[tokio::test]
async fn api_282_a_message_above_the_limit_is_refused_in_our_words() {
    let backend =
        Backend::with("limits.max_envelope_bytes = 500\nlimits.max_request_bytes = 1000").await;
    let expected = (Code::OutOfRange, "request exceeds byte limit");
    // The length alone decides, whether or not so much comes.
    for body in [
        &frame(&[0; 1001])[..],
        b"\0\0\0\x03\xe9",
        b"\0\xff\xff\xff\xff",
    ] {
        for path in PATHS.into_iter().filter(|path| *path != SUBSCRIBE) {
            for status in statuses(&backend, path, body, &[]).await {
                assert_status(&status, expected, path);
            }
        }
        for status in statuses(&backend, SUBSCRIBE, body, &[]).await {
            assert_eq!(status.code(), Code::OutOfRange);
            assert!(!status.message().contains("decoded"));
        }
    }
}

#[tokio::test]
async fn api_283_an_answer_above_the_limit_is_refused_in_our_words() {
    let backend =
        Backend::with("limits.max_envelope_bytes = 500\nlimits.max_response_bytes = 800").await;
    let texts = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    let messages = texts.map(|text| group_message(1, text));
    let body = frame(&publish::encoded(messages));
    for status in statuses(&backend, publish::PATH, &body, &[]).await {
        let expected = (Code::OutOfRange, "response exceeds byte limit");
        assert_status(&status, expected, "the metadata of all");
    }
}

#[tokio::test]
async fn api_281_a_compressed_request_is_refused_in_our_words() {
    let backend = Backend::start().await;
    for path in PATHS.into_iter().chain([UNKNOWN[0]]) {
        // The header is the caller's, and is not repeated.
        let headers = [("grpc-encoding", "planted")];
        for status in statuses(&backend, path, &frame(b""), &headers).await {
            let expected = (Code::Unimplemented, "compression is not supported");
            assert_status(&status, expected, path);
        }
    }
}

#[tokio::test]
async fn api_281_base64_that_is_none_is_refused_in_our_words() {
    let backend = Backend::start().await;
    for body in ["????", "AAAAAAA", "AAAA?AA="] {
        let request = Request::post(publish::PATH)
            .header("content-type", "application/grpc-web-text")
            .body(Full::new(Bytes::from(body)))
            .expect("legal");
        let answer = raw::http1(backend.address, request).await;
        let answer = Answer::collect(answer, true).await;
        assert_status(&answer.status(), UNDECODABLE, body);
    }
}
