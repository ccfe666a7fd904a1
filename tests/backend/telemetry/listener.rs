//! `/metrics`, `/healthz` and `/readyz`.

use std::net::{SocketAddr, TcpListener};

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use xmtp_protocol::TopicKind;
use xmtp_server::config::sections::LogLevel;
use xmtp_test_support::payloads::{group_message, topic};
use xmtp_test_support::{TestDatabase, eventually};

use super::watch::Watch;
use crate::harness::{Backend, configured, within};
use crate::raw;
use crate::storage::{Stranger, publishes_wait};
use crate::streams::LockedTable;

/// Asks a telemetry listener.
pub(super) async fn ask(
    address: SocketAddr,
    method: Method,
    path: &str,
) -> (StatusCode, String, String) {
    let request = Request::builder().method(method).uri(path);
    let request = request.body(Full::<Bytes>::default()).expect("legal");
    let response = raw::http1(address, request).await;
    let kind = response.headers().get("content-type");
    let kind = kind.map_or("", |kind| kind.to_str().expect("text"));
    let (kind, status) = (kind.to_owned(), response.status());
    let body = within(response.into_body().collect()).await;
    let body = body.expect("the body arrives").to_bytes();
    (status, kind, String::from_utf8(body.into()).expect("text"))
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> (StatusCode, String) {
    let (status, _, body) = ask(address, Method::GET, path).await;
    (status, body)
}

/// An address that nobody listens on.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|free| free.local_addr())
        .expect("a free port")
}

#[test]
fn ops_016_the_endpoints_answer_with_their_bodies_and_nothing_else_is_served() {
    Watch::run(LogLevel::Off, async |watch| {
        let database = TestDatabase::create().await;
        let server = configured(&database, "telemetry.metrics_listen = \"127.0.0.1:0\"");
        let running = server.with_metrics(watch.metrics.clone()).start().await;
        let running = running.expect("starts");
        let address = running.telemetry_addr().expect("it is configured");

        let (status, kind, body) = ask(address, Method::GET, "/metrics").await;
        assert_eq!(status, 200);
        assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
        assert!(body.contains("\nxmtp_backend_ready 1\n"));
        for (path, said) in [
            ("/healthz", "{\"alive\":true}"),
            ("/readyz", "{\"ready\":true}"),
        ] {
            let (status, kind, body) = ask(address, Method::GET, path).await;
            assert_eq!((status.as_u16(), &*body), (200, said));
            assert_eq!(kind, "application/json");
        }
        for path in ["/", "/metrics/", "/ready", "/healthz/x"] {
            assert_eq!(
                get(address, path).await,
                (StatusCode::NOT_FOUND, String::new())
            );
        }
        for method in [Method::POST, Method::HEAD, Method::OPTIONS, Method::DELETE] {
            for path in ["/metrics", "/healthz", "/readyz"] {
                let (status, _, body) = ask(address, method.clone(), path).await;
                assert_eq!((status.as_u16(), &*body), (405, ""), "{method} {path}");
            }
        }
        running.stop().await;
        assert!(tokio::net::TcpStream::connect(address).await.is_err());
    });
}

#[test]
fn ops_005_readyz_says_what_the_start_waits_for_and_healthz_that_it_lives() {
    Watch::run(LogLevel::Off, async |watch| {
        let database = Backend::start().await.stop().await;
        // Whoever starts waits for this.
        let held = LockedTable::new(&database, "_sqlx_migrations").await;
        let (address, grpc) = (free_address(), free_address());
        let settings =
            format!("server.listen = \"{grpc}\"\ntelemetry.metrics_listen = \"{address}\"");
        let server = configured(&database, &settings);
        let starting = server.with_metrics(watch.metrics.clone()).start();
        let looking = async {
            eventually("the port is open", async || {
                tokio::net::TcpStream::connect(address).await.ok()
            })
            .await;
            let waiting = "{\"ready\":false,\"waiting\":[\"database\",\"retention\",\"boundary\",\
                       \"streams\",\"configuration\",\"listener\"]}";
            let unavailable = StatusCode::SERVICE_UNAVAILABLE;
            assert_eq!(
                get(address, "/readyz").await,
                (unavailable, waiting.to_owned())
            );
            assert_eq!(get(address, "/healthz").await.0, 200);
            let (status, metrics) = get(address, "/metrics").await;
            assert_eq!(status, 200);
            assert!(metrics.contains("\nxmtp_backend_ready 0\n"));
            assert!(tokio::net::TcpStream::connect(grpc).await.is_err());

            held.unlock().await;
        };
        let (running, ()) = futures::future::join(starting, looking).await;
        let running = running.expect("starts");
        assert_eq!(get(address, "/readyz").await.0, 200);
        running.stop().await;
    });
}

#[test]
fn ops_007_readyz_says_that_a_drain_runs_and_healthz_still_answers() {
    Watch::run(LogLevel::Off, async |watch| {
        let backend = Backend::with("telemetry.metrics_listen = \"127.0.0.1:0\"").await;
        let address = backend.telemetry();
        let group = topic(TopicKind::GroupMessage, 1);
        let stranger = Stranger::on_topic(&backend.database, &group).await;
        let mut publisher = backend.publisher();
        let in_flight = tokio::spawn(async move {
            let envelopes = vec![group_message(1, "in flight")];
            publisher
                .publish(xmtp_protocol::proto::xmtp::backend::v1::PublishRequest { envelopes })
                .await
        });
        publishes_wait(&backend.database, 1).await;
        assert_eq!(watch.value("xmtp_backend_ready"), Some(1));
        let stopping = tokio::spawn(backend.stop());
        let draining = "{\"ready\":false,\"waiting\":[\"draining\"]}".to_owned();
        eventually("readyz says so", async || {
            let said = get(address, "/readyz").await;
            (said == (StatusCode::SERVICE_UNAVAILABLE, draining.clone())).then_some(())
        })
        .await;
        assert_eq!(watch.value("xmtp_backend_ready"), Some(0));
        assert_eq!(get(address, "/healthz").await.0, 200);
        stranger.commit().await;
        in_flight.await.expect("no panic").expect("finished");
        stopping.await.expect("stops");
    });
}

#[test]
fn ops_006_readyz_stays_ready_while_streams_recover_and_says_so() {
    Watch::run(LogLevel::Off, async |watch| {
        let backend = Backend::with(
            "telemetry.metrics_listen = \"127.0.0.1:0\"\nstreams.poll_interval_ms = 10",
        )
        .await;
        let address = backend.telemetry();
        // The tailer reads no more, and its next generation cannot read either.
        let held = LockedTable::new(&backend.database, "allocation_boundary").await;
        backend.database.kill_sessions("xmtp-backend-tailer").await;
        let recovering = "{\"ready\":true,\"streams\":\"recovering\"}".to_owned();
        eventually("readyz says so", async || {
            let said = get(address, "/readyz").await;
            assert_eq!(said.0, 200);
            (said.1 == recovering).then_some(())
        })
        .await;
        assert_eq!(watch.value("xmtp_tailer_ready"), Some(0));
        assert_eq!(watch.value("xmtp_backend_ready"), Some(1));
        held.unlock().await;
        eventually("readyz says that it is over", async || {
            (get(address, "/readyz").await.1 == "{\"ready\":true}").then_some(())
        })
        .await;
        assert_eq!(watch.value("xmtp_tailer_ready"), Some(1));
        backend.stop().await;
    });
}

#[tokio::test]
async fn ops_022_a_telemetry_address_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("it has an address");
    let database = TestDatabase::create().await;
    let settings = format!("telemetry.metrics_listen = \"{address}\"");
    let error = configured(&database, &settings).start().await.err();
    let error = error.expect("refused").to_string();
    assert!(error.contains("telemetry.metrics_listen"), "{error}");
    assert!(error.contains(&address.to_string()), "{error}");
}
