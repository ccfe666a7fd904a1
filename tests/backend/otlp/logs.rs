//! Log lines as the collector gets them (ARC-094).

use nix::sys::signal::Signal;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use serde_json::Value;
use xmtp_test_support::TestDatabase;

use super::collector::{Collector, Manner, Received};
use super::{PUBLISH, publish_one, texts, until_spans};
use crate::process::Process;
use crate::telemetry::free_address;

impl Received {
    fn records(&self) -> Vec<&LogRecord> {
        let resources = self.logs.iter().flat_map(|batch| &batch.resource_logs);
        let scopes = resources.flat_map(|resource| &resource.scope_logs);
        scopes.flat_map(|scope| &scope.log_records).collect()
    }
}

/// What a line says.
fn message(record: &LogRecord) -> &str {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    let body = record.body.as_ref().and_then(|body| body.value.as_ref());
    match body {
        Some(Value::StringValue(text)) => text,
        other => panic!("a line is text: {other:?}"),
    }
}

#[tokio::test]
async fn arc_094_the_collector_gets_the_lines_that_are_printed_with_their_traces() {
    let collector = Collector::start(Manner::Takes);
    let database = TestDatabase::create().await;
    let settings = format!(
        "telemetry.otlp_endpoint = \"{}\"\ntelemetry.otlp_logs = true",
        collector.url()
    );
    let mut server = Process::serve(&database, &settings).await;
    let answer = publish_one(&server, 1, &[]).await;
    server.signal(Signal::SIGTERM);
    assert!(server.ended().await.success());
    let received = collector.received();
    let records = received.records();
    let log = server.log();
    let printed: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect();
    let expected: Vec<&str> = printed
        .iter()
        .map(|line| line["message"].as_str().expect("text"))
        .collect();
    let told: Vec<&str> = records.iter().map(|record| message(record)).collect();
    assert_eq!(told, expected, "all that is printed, to the last line");

    let request = received.named(PUBLISH)[0];
    let completed = records
        .iter()
        .find(|record| message(record) == "request completed");
    let completed = completed.expect("it is told");
    assert_eq!(completed.trace_id, request.trace_id);
    assert_eq!(completed.severity_text, "INFO");
    let attributes = texts(&completed.attributes);
    assert_eq!(
        Some(&*attributes["request_id"]),
        answer.header("x-request-id")
    );
    assert_eq!(attributes["identifier"], "org.example.test");
    let resource = received.logs[0].resource_logs[0].resource.as_ref();
    let spans = received.traces[0].resource_spans[0].resource.as_ref();
    assert_eq!(resource, spans, "logs and spans come from one process");
}

#[tokio::test]
async fn arc_094_no_log_leaves_where_none_is_asked_for_and_the_level_holds_for_both() {
    let collector = Collector::start(Manner::Takes);
    let database = TestDatabase::create().await;
    let settings = format!("telemetry.otlp_endpoint = \"{}\"", collector.url());
    let mut server = Process::serve(&database, &settings).await;
    publish_one(&server, 1, &[]).await;
    until_spans(&collector, PUBLISH, 1).await;
    server.signal(Signal::SIGTERM);
    assert!(server.ended().await.success());
    assert!(collector.received().logs.is_empty());

    let settings = format!("{settings}\ntelemetry.otlp_logs = true");
    let mut server = Process::serve_silently(&database, free_address(), &settings).await;
    publish_one(&server, 2, &[]).await;
    until_spans(&collector, PUBLISH, 2).await;
    server.signal(Signal::SIGTERM);
    assert!(server.ended().await.success());
    assert!(collector.received().logs.is_empty());
}
