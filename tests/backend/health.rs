//! `grpc.health.v1.Health`: one status under every name.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};

use tokio::net::TcpStream;
use tonic::Code;
use xmtp_protocol::client::HealthClient;
use xmtp_protocol::proto::grpc::health::v1::health_check_response::ServingStatus;
use xmtp_protocol::proto::grpc::health::v1::{HealthCheckRequest, HealthListRequest};

use crate::harness::{Backend, configured};
use crate::streams::LockedTable;

/// The names of a build without features.
const NAMES: [&str; 6] = [
    "",
    "xmtp.backend.v1.QueryService",
    "xmtp.backend.v1.PublishService",
    "xmtp.backend.v1.SubscriptionService",
    "xmtp.backend.v1.IdentityService",
    "xmtp.backend.v1.ConfigurationService",
];

pub(crate) fn named(service: &str) -> HealthCheckRequest {
    HealthCheckRequest {
        service: service.to_owned(),
    }
}

#[tokio::test]
async fn ops_004_every_service_is_serving_and_an_unknown_name_is_not_found() {
    let backend = Backend::start().await;
    let mut health = backend.health();
    for name in NAMES {
        let answer = health.check(named(name)).await.expect("known").into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{name}");
    }
    for name in ["xmtp.backend.v1.Nothing", "xmtp.backend.v1", "queryservice"] {
        let status = health.check(named(name)).await.expect_err("unknown");
        assert_eq!(status.code(), Code::NotFound, "{name}");
    }
}

#[tokio::test]
async fn ops_004_the_list_has_every_name_once_with_its_status() {
    let backend = Backend::start().await;
    let answer = backend.health().list(HealthListRequest {}).await;
    let statuses = answer.expect("answered").into_inner().statuses;
    let names: BTreeSet<&str> = statuses.keys().map(String::as_str).collect();
    assert_eq!(names, BTreeSet::from(NAMES));
    for answer in statuses.values() {
        assert_eq!(answer.status(), ServingStatus::Serving);
    }
}

#[tokio::test]
async fn ops_004_a_watch_says_how_it_is_and_an_unknown_name_is_no_error() {
    let backend = Backend::start().await;
    for (name, expected) in [
        ("", ServingStatus::Serving),
        ("xmtp.backend.v1.QueryService", ServingStatus::Serving),
        ("xmtp.backend.v1.Nothing", ServingStatus::ServiceUnknown),
    ] {
        let watch = backend.health().watch(named(name)).await;
        let mut watch = watch.expect("admitted").into_inner();
        let first = watch.message().await.expect("healthy").expect("open");
        assert_eq!(first.status(), expected, "{name}");
    }
}

#[tokio::test]
async fn ops_005_no_connection_is_accepted_before_the_server_is_ready() {
    let first = Backend::start().await;
    let database = first.stop().await;
    // Whoever starts waits for this.
    let mut held = LockedTable::new(&database, "_sqlx_migrations").await;
    let address: SocketAddr = TcpListener::bind("127.0.0.1:0")
        .and_then(|free| free.local_addr())
        .expect("a free port");
    let listen = format!("server.listen = \"{address}\"");
    let server = configured(&database, &listen);
    let looking = async {
        held.blocks(1).await;
        assert!(TcpStream::connect(address).await.is_err());
        held.unlock().await;
    };
    let (running, ()) = futures::future::join(server.start(), looking).await;
    let running = running.expect("starts");
    let channel = tonic::transport::Channel::from_shared(format!("http://{address}"))
        .expect("a URI")
        .connect()
        .await
        .expect("accepted");
    let answer = HealthClient::new(channel).check(named("")).await;
    assert_eq!(
        answer.expect("answered").into_inner().status(),
        ServingStatus::Serving
    );
    running.stop().await;
}
