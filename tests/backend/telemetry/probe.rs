//! `--health-probe`: the same question in every state of an instance.

use std::process::Output;

use nix::sys::signal::Signal;
use xmtp_protocol::TopicKind;
use xmtp_protocol::client::PublishServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::PublishRequest;
use xmtp_test_support::payloads::{group_message, topic};
use xmtp_test_support::{TestDatabase, eventually};

use super::listener::free_address;
use crate::harness::{Backend, connect};
use crate::process::{Process, run};
use crate::storage::{Stranger, publishes_wait};
use crate::streams::LockedTable;

/// The ports of one instance, and the configuration that says so.
fn document(database: &TestDatabase, telemetry: &str) -> (String, String) {
    let ports = format!(
        "server.listen = \"{}\"\ntelemetry.metrics_listen = \"{telemetry}\"\n",
        free_address()
    );
    let document = format!(
        "server.identifier = \"org.example.test\"\ndatabase.url = {:?}\n{ports}",
        database.url()
    );
    (document, ports)
}

async fn probe(document: &str) -> (Option<i32>, String) {
    let output: Output = run(["--health-probe", "--config", document]).await;
    assert!(output.stdout.is_empty());
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(said.lines().count() <= 1, "one line: {said}");
    (output.status.code(), said.trim_end().to_owned())
}

fn fails(reason: &str) -> (Option<i32>, String) {
    (Some(1), format!("NOT_READY: {reason}"))
}

const READY: (Option<i32>, String) = (Some(0), String::new());

/// An instance in every state, asked over its telemetry listener or, without one, over health.
async fn through_its_life(telemetry: &str, starting: &str, draining: &str) {
    let database = Backend::start().await.stop().await;
    let (document, ports) = document(&database, telemetry);
    assert_eq!(probe(&document).await, fails("no instance answers"));

    // Whoever starts waits for this.
    let held = LockedTable::new(&database, "_sqlx_migrations").await;
    let looking = async {
        eventually("the start is under way", async || {
            (probe(&document).await == fails(starting)).then_some(())
        })
        .await;
        held.unlock().await;
    };
    let (mut server, ()) = futures::future::join(Process::serve(&database, &ports), looking).await;
    assert_eq!(probe(&document).await, READY);

    let group = topic(TopicKind::GroupMessage, 1);
    let stranger = Stranger::on_topic(&database, &group).await;
    let mut client = PublishServiceClient::new(connect(server.address).await);
    let in_flight = tokio::spawn(async move {
        let envelopes = vec![group_message(1, "in flight")];
        client.publish(PublishRequest { envelopes }).await
    });
    publishes_wait(&database, 1).await;
    server.signal(Signal::SIGTERM);
    eventually("the drain shows", async || {
        (probe(&document).await == fails(draining)).then_some(())
    })
    .await;
    stranger.commit().await;
    in_flight.await.expect("no panic").expect("finished");
    assert!(server.ended().await.success());
    assert_eq!(probe(&document).await, fails("no instance answers"));
}

#[tokio::test]
async fn the_probe_tells_every_state_by_readyz() {
    // A wildcard is asked on the loopback.
    let telemetry = format!("0.0.0.0:{}", free_address().port());
    through_its_life(
        &telemetry,
        "not ready, waiting for: database, retention, boundary, streams, configuration, listener",
        "not ready, waiting for: draining",
    )
    .await;
}

#[tokio::test]
async fn the_probe_tells_every_state_by_health_where_there_is_no_telemetry_listener() {
    through_its_life("", "no instance answers", "not serving").await;
}

#[tokio::test]
async fn the_probe_cannot_ask_a_port_that_the_system_chooses_and_needs_a_configuration() {
    let database = TestDatabase::create().await;
    let dynamic = document(&database, "127.0.0.1:0").0;
    assert_eq!(probe(&dynamic).await, fails("port is dynamic"));
    let (code, said) = probe("server.identifier = \"x\"\nserver.colour = 1").await;
    assert_eq!(code, Some(1));
    assert!(
        said.contains("database.url") && said.contains("server.colour"),
        "{said}"
    );
    let output = run(["--health-probe"]).await;
    assert_eq!(output.status.code(), Some(1));
}

#[tokio::test]
async fn the_probe_takes_no_stranger_and_no_silence_for_an_instance() {
    let database = TestDatabase::create().await;
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = silent.local_addr().expect("an address").to_string();
    let (silent_document, _) = document(&database, &address);
    assert_eq!(
        probe(&silent_document).await,
        fails("no answer within 3 seconds")
    );
    // The gRPC port of an instance is no telemetry listener.
    let backend = Backend::start().await;
    let (stranger, _) = document(&database, &backend.address.to_string());
    assert_eq!(
        probe(&stranger).await,
        fails("what answers is no instance of this program")
    );
}
