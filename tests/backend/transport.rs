//! The one port: native gRPC and gRPC-Web, and what every answer carries.

mod balancer;
mod browser;
mod chromium;
mod deadline;
mod framing;
mod limits;
mod refused;
mod robustness;

use std::collections::HashSet;

use tonic::Code;

use crate::harness::Backend;
use crate::publish;
use crate::raw::{self, Answer, frame};

const CONFIGURATION: &str = "/xmtp.backend.v1.ConfigurationService/GetConfiguration";

/// The paths of no service, or of one that has gone.
const UNKNOWN: [&str; 6] = [
    "/nothing.Nothing/Nothing",
    "/xmtp.backend.v1.QueryService/Get",
    "/xmtp.backend.v1.PublishService/Nothing",
    "/xmtp.mls.api.v1.MlsApi/SendGroupMessages",
    "/xmtp.backend.v1.SubscriptionService/Nothing",
    "/xmtp.backend.v1.SubscriptionService/nothing/Subscribe",
];

fn request_id(answer: &Answer) -> String {
    let ids: Vec<_> = answer.headers.get_all("x-request-id").iter().collect();
    let [id] = &ids[..] else {
        panic!("one request id, not {}", ids.len())
    };
    let id = id.to_str().expect("text");
    let groups: Vec<usize> = id.split('-').map(str::len).collect();
    assert_eq!(groups, [8, 4, 4, 4, 12], "a UUID: {id}");
    id.to_owned()
}

#[tokio::test]
async fn ops_011_every_answer_has_a_request_id_of_its_own() {
    let backend = Backend::start().await;
    let address = backend.address;
    let chosen = [("x-request-id", "chosen-by-the-caller")];
    let health = "/grpc.health.v1.Health/Check";
    let mut seen = HashSet::new();
    for (path, body, code) in [
        (CONFIGURATION, &b""[..], Code::Ok),
        (publish::PATH, b"", Code::Ok),
        (publish::PATH, b"\x0a\x00", Code::InvalidArgument),
        (publish::PATH, b"\xff", Code::Internal),
        (health, b"", Code::Ok),
        (health, b"\x0a\x01?", Code::NotFound),
        (UNKNOWN[0], b"", Code::Unimplemented),
    ] {
        for answer in [
            raw::native(address, path, frame(body), &chosen).await,
            raw::web(address, path, frame(body), &chosen).await,
        ] {
            assert_eq!(answer.code(), code, "{path}");
            assert!(seen.insert(request_id(&answer)), "it was given before");
        }
    }
    let stream = raw::open_web(
        address,
        "/xmtp.backend.v1.SubscriptionService/SubscribeStatic",
        frame(b""),
        &chosen,
    )
    .await;
    assert!(stream.headers().contains_key("x-request-id"));
    assert_ne!(stream.headers()["x-request-id"], chosen[0].1);
}

#[tokio::test]
async fn api_152_an_unknown_path_is_unimplemented_with_http_200() {
    let backend = Backend::start().await;
    for path in UNKNOWN {
        for answer in [
            raw::native(backend.address, path, frame(b"anything"), &[]).await,
            raw::web(backend.address, path, frame(b"anything"), &[]).await,
        ] {
            assert_eq!(answer.http, 200, "{path}");
            assert_eq!(answer.code(), Code::Unimplemented, "{path}");
            assert!(answer.messages.is_empty());
        }
    }
}

#[tokio::test]
async fn a_failure_before_any_message_is_in_the_headers_alone() {
    let backend = Backend::start().await;
    let refused = frame(b"\x0a\x00");
    let answer = raw::native(backend.address, publish::PATH, refused, &[]).await;
    assert_eq!(answer.http, 200);
    assert_eq!(answer.header("grpc-status"), Some("3"));
    assert!(answer.trailers.is_empty());
}

#[tokio::test]
async fn a_compressed_request_is_unimplemented() {
    let backend = Backend::start().await;
    let paths = [
        publish::PATH,
        "/xmtp.backend.v1.SubscriptionService/Subscribe",
        "/xmtp.backend.v1.SubscriptionService/SubscribeStatic",
    ];
    for (encoding, path) in ["gzip", "deflate", "zstd", "made-up"]
        .into_iter()
        .flat_map(|encoding| paths.map(|path| (encoding, path)))
    {
        let headers = [("grpc-encoding", encoding)];
        for answer in [
            raw::native(backend.address, path, frame(b""), &headers).await,
            raw::web(backend.address, path, frame(b""), &headers).await,
        ] {
            assert_eq!(answer.code(), Code::Unimplemented, "{encoding}");
            assert_eq!(answer.header("grpc-accept-encoding"), Some("identity"));
        }
    }
    let headers = [("grpc-encoding", "identity")];
    let plain = raw::native(backend.address, publish::PATH, frame(b""), &headers).await;
    assert_eq!(plain.code(), Code::Ok);
    // Nothing is compressed for a caller that would take it.
    let headers = [("grpc-accept-encoding", "gzip,zstd,deflate,identity")];
    let plain = raw::native(backend.address, CONFIGURATION, frame(b""), &headers).await;
    assert_eq!(plain.code(), Code::Ok);
    assert_eq!(plain.header("grpc-encoding"), None);
}
