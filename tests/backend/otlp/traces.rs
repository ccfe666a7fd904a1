//! Spans as the collector gets them (OPS-012, OPS-013, OPS-019, ARC-094, ARC-097, ARC-099).

use std::collections::BTreeMap;
use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message;
use serde_json::Value;
use tokio::time::sleep;
use tonic::Code;
use xmtp_protocol::TopicKind;
use xmtp_protocol::client::SubscriptionServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::SubscribeStaticRequest;
use xmtp_test_support::payloads::topic;
use xmtp_test_support::{TestDatabase, eventually};

use super::collector::{Collector, Manner, Received};
use super::{PUBLISH, publish_one, texts, until_spans};
use crate::harness::{connect, query, within};
use crate::process::Process;
use crate::publish;
use crate::raw::{self, frame};
use crate::telemetry::free_address;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

/// A caller's context.
fn parent(trace: &str, is_sampled: bool) -> String {
    format!("00-{trace}-{CALLER}-0{}", u8::from(is_sampled))
}

/// The completion events, without those that have no trace id.
fn logged_traces(server: &Process) -> Vec<String> {
    let log = server.log();
    let events = log
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let completed = events.filter(|event: &Value| event["message"] == "request completed");
    completed
        .filter_map(|event| Some(event["trace_id"].as_str()?.to_owned()))
        .collect()
}

#[tokio::test]
async fn ops_012_ops_013_ops_019_a_publish_is_one_trace_below_its_caller() {
    let collector = Collector::start(Manner::Takes);
    let database = TestDatabase::create().await;
    let settings = format!(
        "telemetry.otlp_endpoint = \"{}\"\ntelemetry.service_name = \"mail\"
         telemetry.resource_attributes.\"deployment.environment.name\" = \"test\"",
        collector.url(),
    );
    let server = Process::serve_silently(&database, free_address(), &settings).await;
    let parent = parent(TRACE, true);
    let headers = [("traceparent", &*parent), ("tracestate", "one=1,two=2")];
    let answer = publish_one(&server, 1, &headers).await;
    let received = until_spans(&collector, PUBLISH, 1).await;

    let trace_id = hex::decode(TRACE).expect("hex");
    let spans = received.spans();
    let spans: BTreeMap<&str, &Span> = spans
        .into_iter()
        .filter(|span| span.trace_id == trace_id)
        .map(|span| (&*span.name, span))
        .collect();
    let above = [
        ("rpc.publish", PUBLISH),
        ("publish.parse_publish", "rpc.publish"),
        ("publish.validate_publish", "rpc.publish"),
        ("publish.locks", "rpc.publish"),
        ("db.commit_publish", "rpc.publish"),
    ];
    let mut names: Vec<&str> = above
        .iter()
        .map(|(name, _)| *name)
        .chain([PUBLISH])
        .collect();
    names.sort_unstable();
    assert_eq!(spans.keys().copied().collect::<Vec<_>>(), names);
    for (name, above) in above {
        let (span, above) = (spans[name], spans[above]);
        assert_eq!(span.parent_span_id, above.span_id, "{name}");
        assert_eq!(span.kind(), SpanKind::Internal);
        assert!(
            above.start_time_unix_nano <= span.start_time_unix_nano,
            "{name}"
        );
        assert!(
            span.start_time_unix_nano <= span.end_time_unix_nano,
            "{name}"
        );
        assert!(
            span.end_time_unix_nano <= above.end_time_unix_nano,
            "{name}"
        );
        assert!(span.attributes.is_empty(), "{span:?}");
        assert_eq!(
            span.flags, 0x101,
            "sampled, and below a span of this process"
        );
    }
    let request = spans[PUBLISH];
    assert_eq!(hex::encode(&request.parent_span_id), CALLER);
    assert_eq!(request.trace_state, "one=1,two=2");
    assert_eq!(
        request.flags, 0x301,
        "sampled, and below a span of another process"
    );
    assert_eq!(request.kind(), SpanKind::Server);
    assert_eq!(request.status, None);
    let expected = BTreeMap::from([
        (
            "request_id",
            answer.header("x-request-id").expect("there").to_owned(),
        ),
        ("rpc.grpc.status_code", "IntValue(0)".to_owned()),
        ("rpc.method", "Publish".to_owned()),
        ("rpc.service", "xmtp.backend.v1.PublishService".to_owned()),
        ("rpc.system", "grpc".to_owned()),
    ]);
    assert_eq!(texts(&request.attributes), expected);
    comes_from_one_process(&received);
    // It is nobody's request, and has a trace of its own.
    let polls = until_spans(&collector, "tailer.poll", 1).await;
    let poll = polls.named("tailer.poll")[0];
    assert!(poll.parent_span_id.is_empty());
    let attributes = texts(&poll.attributes);
    assert_eq!(
        attributes.keys().copied().collect::<Vec<_>>(),
        ["gaps", "rows"]
    );
}

/// Every batch names the process, and nothing else does.
fn comes_from_one_process(received: &Received) {
    for batch in &received.traces {
        let [resource] = &batch.resource_spans[..] else {
            panic!("one process, one resource: {batch:?}");
        };
        let [scope] = &resource.scope_spans[..] else {
            panic!("one scope: {batch:?}");
        };
        let scope = scope.scope.as_ref().expect("it is named");
        assert_eq!(scope.name, "xmtp-backend");
        let resource = resource.resource.as_ref().expect("it is named");
        let mut attributes = texts(&resource.attributes);
        let instance = attributes.remove("service.instance.id").expect("there");
        assert_eq!(instance.len(), 36, "{instance}");
        let expected = BTreeMap::from([
            ("deployment.environment.name", "test".to_owned()),
            ("service.name", "mail".to_owned()),
            ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("xmtp.backend.identifier", "org.example.test".to_owned()),
        ]);
        assert_eq!(attributes, expected);
    }
}

#[tokio::test]
async fn arc_097_arc_099_the_ratio_is_of_traces_that_begin_here_and_callers_decide_for_theirs() {
    const OTHER: &str = "0af7651916cd43dd8448eb211c803100";
    let collector = Collector::start(Manner::Takes);
    let database = TestDatabase::create().await;
    let settings = |ratio: &str| {
        format!(
            "telemetry.otlp_endpoint = \"{}\"\ntelemetry.sample_ratio = {ratio}",
            collector.url()
        )
    };
    let none = Process::serve(&database, &settings("0")).await;
    for number in 0..5 {
        publish_one(&none, number, &[]).await;
    }
    publish_one(&none, 6, &[("traceparent", &*parent(OTHER, false))]).await;
    publish_one(&none, 7, &[("traceparent", &*parent(TRACE, true))]).await;
    let received = until_spans(&collector, PUBLISH, 1).await;
    let trace_id = hex::decode(TRACE).expect("hex");
    for span in received.spans() {
        assert_eq!(span.trace_id, trace_id, "{span:?}");
    }
    assert_eq!(received.spans().len(), 6);
    // Traces that are not recorded have ids, which are told.
    let traces = eventually("all are logged", async || {
        let traces = logged_traces(&none);
        (traces.len() == 7).then_some(traces)
    })
    .await;
    assert_eq!(traces[5], OTHER);
    assert_eq!(traces[6], TRACE);
    none.kill().await;

    let all = Process::serve(&database, &settings("1.0")).await;
    publish_one(&all, 8, &[("traceparent", &*parent(OTHER, false))]).await;
    publish_one(&all, 9, &[("traceparent", "00-not-a-context-01")]).await;
    let received = until_spans(&collector, PUBLISH, 2).await;
    let request = received.named(PUBLISH)[1];
    assert!(request.parent_span_id.is_empty(), "it begins here");
    let traces = eventually("both are logged", async || {
        let traces = logged_traces(&all);
        (traces.len() == 2).then_some(traces)
    })
    .await;
    let exported = hex::encode(&request.trace_id);
    assert_eq!(traces, [OTHER.to_owned(), exported], "log and trace agree");
    let unsampled = hex::decode(OTHER).expect("hex");
    assert!(
        received
            .spans()
            .iter()
            .all(|span| span.trace_id != unsampled)
    );
}

#[tokio::test]
async fn arc_099_a_request_that_fails_and_a_stream_have_spans_that_say_so() {
    let collector = Collector::start(Manner::Takes);
    let database = TestDatabase::create().await;
    let settings = format!("telemetry.otlp_endpoint = \"{}\"", collector.url());
    let server = Process::serve(&database, &settings).await;
    let answer = raw::native(server.address, publish::PATH, frame(b"\x0a\x00"), &[]).await;
    assert_eq!(answer.code(), Code::InvalidArgument);
    raw::native(server.address, "/planted.Planted/Planted", frame(b""), &[]).await;
    let received = until_spans(&collector, "unknown/unknown", 1).await;
    for (name, code) in [
        (PUBLISH, Code::InvalidArgument),
        ("unknown/unknown", Code::Unimplemented),
    ] {
        let span = received.named(name)[0];
        let status = span.status.as_ref().expect("it says so");
        assert_eq!(status.code(), StatusCode::Error);
        assert_eq!(status.message, "");
        let told = format!("IntValue({})", code as i32);
        assert_eq!(texts(&span.attributes)["rpc.grpc.status_code"], told);
        assert!(!format!("{span:?}").to_lowercase().contains("planted"));
    }

    // From the request to the end of its last frame.
    let open = Duration::from_millis(600);
    let channel = connect(server.address).await;
    let mut client = SubscriptionServiceClient::new(channel);
    let topics = vec![query(&topic(TopicKind::GroupMessage, 1), 0)];
    let stream = client
        .subscribe_static(SubscribeStaticRequest { topics })
        .await;
    let mut stream = stream.expect("admitted").into_inner();
    within(stream.message()).await.expect("healthy");
    sleep(open).await;
    drop(stream);
    let name = "xmtp.backend.v1.SubscriptionService/SubscribeStatic";
    let received = until_spans(&collector, name, 1).await;
    let span = received.named(name)[0];
    let lasted = Duration::from_nanos(span.end_time_unix_nano - span.start_time_unix_nano);
    assert!(lasted >= open, "{lasted:?}");
    assert_eq!(span.status, None, "what is only cancelled has not failed");
    assert!(
        received
            .traces
            .iter()
            .all(|batch| batch.encoded_len() < 4 << 20)
    );
}

#[tokio::test]
async fn arc_097_the_environment_names_the_endpoint_where_the_document_does_not() {
    let (collector, other) = (
        Collector::start(Manner::Takes),
        Collector::start(Manner::Takes),
    );
    let database = TestDatabase::create().await;
    // Variables of a single signal, of headers and of limits are nobody's here.
    let (named, others) = (collector.url(), other.url());
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*named),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &*others),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=planted"),
        ("OTEL_TRACES_SAMPLER", "always_off"),
        ("OTEL_SDK_DISABLED", "true"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=planted"),
    ];
    let server = Process::serve_where(&database, "", &variables).await;
    publish_one(&server, 1, &[]).await;
    let received = until_spans(&collector, PUBLISH, 1).await;
    assert!(other.received().traces.is_empty());
    let told = format!("{:?}", received.traces);
    assert!(!told.contains("planted"));
    assert!(!server.log().contains("planted"));
    server.kill().await;

    let settings = format!("telemetry.otlp_endpoint = \"{others}\"");
    let server = Process::serve_where(&database, &settings, &variables).await;
    publish_one(&server, 2, &[]).await;
    until_spans(&other, PUBLISH, 1).await;
    server.kill().await;
}
