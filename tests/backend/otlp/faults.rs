//! Collectors in trouble: serving goes on, failed batches are counted, and the process ends in time (OPS-015, OPS-008,
//! S33).

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tokio::net::TcpListener;
use xmtp_protocol::TopicKind;
use xmtp_server::telemetry::Catalogue;
use xmtp_test_support::payloads::topic;
use xmtp_test_support::{TestDatabase, eventually};

use super::collector::{Collector, Manner};
use super::{FAILURES, PUBLISH, publish_body, publish_one, until_spans};
use crate::process::Process;
use crate::storage::{Stranger, publishes_wait};
use crate::telemetry::{free_address, get};
use crate::{publish, raw};

/// The drain's deadline and five seconds, and what a busy machine needs beside them.
const EXIT_LIMIT: Duration = Duration::from_secs(1 + 5 + 4);

async fn serve(database: &TestDatabase, endpoint: &str) -> Process {
    let settings = format!(
        "telemetry.otlp_endpoint = \"{endpoint}\"\ntelemetry.otlp_logs = true
         telemetry.otlp_metrics = true\ntelemetry.otlp_metrics_interval_seconds = 1
         telemetry.metrics_listen = \"127.0.0.1:0\"\nserver.max_drain_duration_ms = 1000"
    );
    Process::serve(database, &settings).await
}

/// Failed batches so far.
async fn failures(server: &Process) -> u64 {
    let (_, text) = get(server.telemetry(), "/metrics").await;
    let line = text.lines().find_map(|line| line.strip_prefix(FAILURES));
    line.map_or(0, |count| count.trim().parse().expect("a number"))
}

async fn until_failures(server: &Process, least: u64) {
    eventually("failed batches are counted", async || {
        (failures(server).await >= least).then_some(())
    })
    .await;
}

/// How often something was said of a signal.
fn said(server: &Process, message: &str, signal: &str) -> usize {
    let log = server.log();
    let signal = format!("\"signal\":\"{signal}\"");
    let lines = log.lines().filter(|line| line.contains(message));
    lines.filter(|line| line.contains(&signal)).count()
}

/// A server whose collector is at `endpoint` serves as ever, counts failed batches, says once that it cannot export,
/// and ends in time with success.
async fn serves_and_ends(endpoint: &str) -> Duration {
    let database = TestDatabase::create().await;
    let mut server = serve(&database, endpoint).await;
    publish_one(&server, 1, &[]).await;
    // Of each signal at least one, and of some more than one.
    until_failures(&server, 4).await;
    for number in 0..20 {
        let start = Instant::now();
        publish_one(&server, number, &[]).await;
        assert!(
            start.elapsed() < Duration::from_secs(3),
            "{:?}",
            start.elapsed()
        );
    }
    for signal in ["traces", "logs", "metrics"] {
        assert_eq!(
            said(&server, "telemetry is not exported", signal),
            1,
            "{signal}"
        );
    }
    assert!(!server.log().contains("panicked"));
    let start = Instant::now();
    server.signal(Signal::SIGTERM);
    let status = server.ended().await;
    let took = start.elapsed();
    assert!(took < EXIT_LIMIT, "{took:?}");
    assert!(status.success(), "{status}: {}", server.log());
    took
}

#[tokio::test]
async fn ops_015_s33_a_port_that_nobody_listens_on() {
    let took = serves_and_ends(&format!("http://{}", free_address())).await;
    assert!(
        took < Duration::from_secs(5),
        "nothing is waited for: {took:?}"
    );
}

#[tokio::test]
async fn ops_015_s33_a_name_that_does_not_resolve() {
    serves_and_ends("http://collector.invalid:4317").await;
}

#[tokio::test]
async fn ops_015_s33_a_collector_that_never_answers() {
    let collector = Collector::start(Manner::Hangs);
    serves_and_ends(&collector.url()).await;
    assert!(!collector.received().traces.is_empty(), "it was asked");
}

#[tokio::test]
async fn ops_015_s33_a_port_that_says_nothing() {
    // The system accepts for it, and nobody reads.
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = silent.local_addr().expect("bound");
    serves_and_ends(&format!("http://{address}")).await;
}

#[tokio::test]
async fn ops_015_a_collector_that_refuses() {
    let collector = Collector::start(Manner::Refuses);
    serves_and_ends(&collector.url()).await;
}

#[tokio::test]
async fn ops_015_https_to_who_does_not_speak_it() {
    let collector = Collector::start(Manner::Takes);
    serves_and_ends(&collector.url().replace("http:", "https:")).await;
    assert!(collector.received().traces.is_empty());
}

#[tokio::test]
async fn ops_015_a_batch_of_which_something_is_rejected_has_failed() {
    let collector = Collector::start(Manner::RejectsOne);
    let database = TestDatabase::create().await;
    let server = serve(&database, &collector.url()).await;
    publish_one(&server, 1, &[]).await;
    until_failures(&server, 1).await;
    assert_eq!(said(&server, "telemetry is not exported", "traces"), 1);
    assert!(
        !server.log().contains("one too many"),
        "a collector's words are not ours"
    );
    assert_eq!(said(&server, "telemetry is not exported", "logs"), 0);
}

#[tokio::test]
async fn ops_015_a_collector_that_disappears_and_comes_back() {
    let database = TestDatabase::create().await;
    let collector = Collector::start(Manner::Takes);
    let address = collector.address;
    let mut server = serve(&database, &collector.url()).await;
    publish_one(&server, 1, &[]).await;
    until_spans(&collector, PUBLISH, 1).await;
    assert_eq!(failures(&server).await, 0, "absent until the first failure");
    drop(collector);
    publish_one(&server, 2, &[]).await;
    until_failures(&server, 4).await;
    publish_one(&server, 3, &[]).await;

    let collector = Collector::on(address, Manner::Takes);
    eventually("it is exported again", async || {
        publish_one(&server, 4, &[]).await;
        let received = collector.received();
        let all = [
            received.traces.len(),
            received.logs.len(),
            received.metrics.len(),
        ];
        all.iter().all(|count| *count > 0).then_some(())
    })
    .await;
    for signal in ["traces", "logs", "metrics"] {
        assert_eq!(
            said(&server, "telemetry is not exported", signal),
            1,
            "{signal}"
        );
        eventually("it is said", async || {
            (said(&server, "telemetry is exported again", signal) == 1).then_some(())
        })
        .await;
    }
    // What the exporter says of itself is printed only: it would never end.
    server.signal(Signal::SIGTERM);
    assert!(server.ended().await.success());
    let told = format!("{:?}", collector.received().logs);
    assert!(!told.contains("telemetry is"), "{told}");
}

#[tokio::test]
async fn ops_008_what_is_left_is_sent_at_the_end() {
    let database = TestDatabase::create().await;
    let collector = Collector::start(Manner::Takes);
    let mut server = serve(&database, &collector.url()).await;
    for number in 0..20 {
        publish_one(&server, number, &[]).await;
    }
    server.signal(Signal::SIGTERM);
    assert!(server.ended().await.success());
    let received = collector.received();
    assert_eq!(received.named(PUBLISH).len(), 20, "no span is lost");
    assert_eq!(received.named("db.commit_publish").len(), 20);
    // And nothing but what is ours: libraries have spans as well, which tell what is in requests.
    let catalogue = Catalogue::new(&[]);
    let routes = catalogue.routes().iter().map(|route| route.name());
    let own: Vec<&str> = routes
        .chain(catalogue.operations().iter().copied())
        .collect();
    for span in received.spans() {
        assert!(own.contains(&&*span.name), "{}", span.name);
    }
}

#[tokio::test]
async fn ops_008_a_drain_that_takes_its_time_leaves_the_flush_what_is_left() {
    let database = TestDatabase::create().await;
    let collector = Collector::start(Manner::Hangs);
    let mut server = serve(&database, &collector.url()).await;
    let group = topic(TopicKind::GroupMessage, 1);
    let stranger = Stranger::on_topic(&database, &group).await;
    let (address, body) = (server.address, publish_body(1));
    let waits = tokio::spawn(async move { raw::native(address, publish::PATH, body, &[]).await });
    publishes_wait(&database, 1).await;
    let start = Instant::now();
    server.signal(Signal::SIGTERM);
    let status = server.ended().await;
    let took = start.elapsed();
    assert!(
        took >= Duration::from_secs(1),
        "the drain had its time: {took:?}"
    );
    assert!(took < EXIT_LIMIT, "{took:?}");
    assert!(status.success(), "{status}: {}", server.log());
    drop(stranger);
    waits.abort();
}
