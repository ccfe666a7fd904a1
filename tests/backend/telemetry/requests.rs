//! The request families and the completion log.

use prost::Message;
use serde_json::Value;
use tonic::Code;
use xmtp_protocol::TopicKind;
use xmtp_protocol::proto::xmtp::backend::v1::{
    PublishRequest, QueryRequest, SubscribeRequest, SubscribeStaticRequest,
};
use xmtp_server::config::sections::LogLevel;
use xmtp_test_support::eventually;
use xmtp_test_support::payloads::{group_message, topic};

use super::watch::Watch;
use crate::harness::{Backend, query, within};
use crate::health::named;
use crate::publish;
use crate::raw::{self, frame};
use crate::storage::{Stranger, publishes_wait};

const STATIC: &str = "/xmtp.backend.v1.SubscriptionService/SubscribeStatic";

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// The labels of a path.
fn rpc(path: &str, kind: &str) -> String {
    let (service, method) = path
        .trim_start_matches('/')
        .split_once('/')
        .expect("a path");
    format!("grpc_service=\"{service}\",grpc_method=\"{method}\",grpc_type=\"{kind}\"")
}

fn handled(path: &str, kind: &str, code: &str) -> String {
    let rpc = rpc(path, kind);
    format!("grpc_server_handled_total{{{rpc},grpc_code=\"{code}\"}}")
}

/// Waits for this many completion events, and takes the last.
async fn completed(watch: &Watch, count: usize) -> Value {
    eventually("the request is logged", async || {
        let mut events = watch.events("request completed");
        (events.len() == count).then(|| events.pop())?
    })
    .await
}

#[test]
fn ops_017_each_request_is_counted_once_by_route_and_status() {
    Watch::run(LogLevel::Info, async |watch| {
        let backend = Backend::start().await;
        let address = backend.address;
        for (path, label, body, code) in [
            (publish::PATH, publish::PATH, &b""[..], "OK"),
            (publish::PATH, publish::PATH, b"\x0a\x00", "InvalidArgument"),
            (publish::PATH, publish::PATH, b"\xff", "Internal"),
            (
                "/nothing.Nothing/Nothing",
                "unknown/unknown",
                b"x",
                "Unimplemented",
            ),
            (
                "/xmtp.backend.v1.QueryService/Get",
                "unknown/unknown",
                b"",
                "Unimplemented",
            ),
            ("/", "unknown/unknown", b"", "Unimplemented"),
        ] {
            let (series, rpc) = (handled(label, "unary", code), rpc(label, "unary"));
            let before = watch.value(&series).unwrap_or(0);
            let started = format!("grpc_server_started_total{{{rpc}}}");
            let started_before = watch.value(&started).expect("it is there from the start");
            raw::native(address, path, frame(body), &[]).await;
            watch.until(&series, before + 1).await;
            raw::web(address, path, frame(body), &[]).await;
            watch.until(&series, before + 2).await;
            let count = series.replace("handled_total", "handling_seconds_count");
            assert_eq!(watch.value(&count), Some(before + 2));
            assert_eq!(watch.value(&started), Some(started_before + 2));
            let in_flight = format!("grpc_server_in_flight{{{rpc}}}");
            watch.until(&in_flight, 0).await;
        }
        // Neither is a gRPC request of the families: health, a preflight, and what is not gRPC at all.
        let sums = [
            watch.sum("grpc_server_started_total"),
            watch.sum("grpc_server_handled_total"),
        ];
        let mut health = backend.health();
        health.check(named("")).await.expect("answered");
        raw::preflight(address, publish::PATH, "authorization").await;
        let get = http::Request::get("/").body(http_body_util::Full::default());
        let answer = raw::http1(address, get.expect("legal")).await;
        assert_eq!(answer.status(), 400);
        assert!(answer.headers().contains_key("x-request-id"));
        let after = [
            watch.sum("grpc_server_started_total"),
            watch.sum("grpc_server_handled_total"),
        ];
        assert_eq!(sums, after);
        assert_eq!(sums[0], sums[1]);
        assert_eq!(watch.events("request completed").len() as u64, sums[1]);
        // What only has the method of a preflight is one.
        let options = http::Request::options("/nothing.Nothing/Nothing")
            .body(http_body_util::Full::default());
        raw::refusable(http::Version::HTTP_2, address, options.expect("legal")).await;
        assert_eq!(watch.sum("grpc_server_started_total"), sums[0] + 1);
        backend.stop().await;
    });
}

#[test]
fn ops_018_the_completion_log_has_its_fields_and_nothing_of_the_request() {
    Watch::run(LogLevel::Info, async |watch| {
        let backend = Backend::start().await;
        let address = backend.address;
        let body = PublishRequest {
            envelopes: vec![group_message(1, "text")],
        };
        let body = frame(&body.encode_to_vec());
        let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
        let headers = [("traceparent", &*parent), ("tracestate", "one=1")];
        let answer = raw::native(address, publish::PATH, body.clone(), &headers).await;
        let event = completed(&watch, 1).await;
        let mut names: Vec<&str> = event
            .as_object()
            .expect("an object")
            .keys()
            .map(|it| &**it)
            .collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "duration_ms",
                "grpc_code",
                "identifier",
                "level",
                "message",
                "method",
                "request_id",
                "request_size_bytes",
                "response_size_bytes",
                "target",
                "timestamp",
                "trace_id",
            ]
        );
        assert_eq!(event["level"], "INFO");
        assert_eq!(event["identifier"], "org.example.test");
        assert_eq!(event["method"], publish::PATH);
        assert_eq!(event["grpc_code"], "OK");
        assert_eq!(event["trace_id"], TRACE);
        assert_eq!(
            Some(event["request_id"].as_str().expect("text")),
            answer.header("x-request-id")
        );
        assert_eq!(event["request_size_bytes"], body.len());
        let framed: usize = answer
            .messages
            .iter()
            .map(|message| 5 + message.len())
            .sum();
        assert_eq!(event["response_size_bytes"], framed);
        assert!(event["duration_ms"].as_f64().expect("a number") > 0.0);
        let rpc = rpc(publish::PATH, "unary");
        for (family, bytes) in [("request", body.len()), ("response", framed)] {
            let series = format!("grpc_server_{family}_bytes_total{{{rpc}}}");
            assert_eq!(watch.value(&series), Some(bytes as u64));
        }

        // No context, an invalid one, and a path that is the caller's own text.
        for (count, (path, parent, method, code)) in (2..).zip([
            (publish::PATH, None, publish::PATH, "OK"),
            (publish::PATH, Some("00-x-y-01"), publish::PATH, "OK"),
            (
                "/secret.Service/secret",
                None,
                "unknown/unknown",
                "Unimplemented",
            ),
        ]) {
            let headers: Vec<_> = parent.map(|it| ("traceparent", it)).into_iter().collect();
            raw::native(address, path, frame(b""), &headers).await;
            let event = completed(&watch, count).await;
            assert_eq!(event.get("trace_id"), None, "{event}");
            assert_eq!(event["method"], method);
            assert_eq!(event["grpc_code"], code);
        }
        backend.stop().await;
    });
}

#[test]
fn ops_018_bytes_of_grpc_web_are_those_on_the_wire_with_the_trailers_in_the_body() {
    Watch::run(LogLevel::Info, async |watch| {
        let backend = Backend::start().await;
        let body = frame(
            &PublishRequest {
                envelopes: vec![group_message(1, "text")],
            }
            .encode_to_vec(),
        );
        let response = raw::open_web(backend.address, publish::PATH, body.clone(), &[]).await;
        let received = http_body_util::BodyExt::collect(response.into_body()).await;
        let received = received.expect("the body arrives").to_bytes();
        let event = completed(&watch, 1).await;
        assert_eq!(event["request_size_bytes"], body.len());
        assert_eq!(event["response_size_bytes"], received.len());
        assert!(received.ends_with(b"\r\n"), "there are trailers in it");
        assert_eq!(event["grpc_code"], "OK");
        backend.stop().await;
    });
}

#[test]
fn ops_018_the_switch_silences_the_log_and_nothing_else() {
    Watch::run(LogLevel::Info, async |watch| {
        let backend = Backend::with("server.request_logger = false").await;
        raw::native(backend.address, publish::PATH, frame(b""), &[]).await;
        watch.until(&handled(publish::PATH, "unary", "OK"), 1).await;
        let mut client = backend.subscriptions();
        let topics = vec![query(&topic(TopicKind::GroupMessage, 1), 0)];
        let stream = client
            .subscribe_static(SubscribeStaticRequest { topics })
            .await;
        let mut stream = stream.expect("admitted").into_inner();
        within(stream.message()).await.expect("healthy");
        // ARC-096: independent of the switch; says which request it belongs to.
        let event = watch
            .events("stream interests changed")
            .pop()
            .expect("it is logged");
        assert_eq!((&event["added"], &event["removed"]), (&1.into(), &0.into()));
        let id = &event["request_id"];
        assert_eq!(id.as_str().expect("text").len(), 36, "{event}");
        drop(stream);
        watch
            .until(&handled(STATIC, "server_stream", "Cancelled"), 1)
            .await;
        assert_eq!(watch.events("request completed"), Vec::<Value>::new());
        backend.stop().await;
    });
}

#[test]
fn arc_094_a_silent_log_does_not_silence_operations() {
    Watch::run(LogLevel::Off, async |watch| {
        let backend = Backend::start().await;
        backend.publish([group_message(1, "text")]).await;
        let count = |operation: &str, status: &str| {
            let family = "xmtp_operation_duration_seconds_count";
            watch.value(&format!(
                "{family}{{operation=\"{operation}\",status=\"{status}\"}}"
            ))
        };
        for operation in [
            "rpc.publish",
            "publish.parse_publish",
            "publish.validate_publish",
            "publish.locks",
            "db.commit_publish",
        ] {
            assert_eq!(count(operation, "ok"), Some(1), "{operation}");
        }
        assert!(count("tailer.bootstrap", "ok") >= Some(1));
        assert!(count("tailer.poll", "ok") >= Some(1));
        raw::native(backend.address, publish::PATH, frame(b"\x0a\x00"), &[]).await;
        eventually("the refusal is recorded", async || {
            let request = count(publish::PATH.trim_start_matches('/'), "error");
            (request == Some(1)).then_some(())
        })
        .await;
        assert_eq!(count("rpc.publish", "error"), Some(1));
        assert_eq!(watch.log(), "");
        backend.stop().await;
    });
}

#[test]
fn arc_099_the_request_span_says_what_it_is_and_how_it_ended() {
    Watch::run(LogLevel::Info, async |watch| {
        let backend = Backend::start().await;
        let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
        let headers = [("traceparent", &*parent)];
        raw::native(backend.address, publish::PATH, frame(b"\x0a\x00"), &headers).await;
        completed(&watch, 1).await;
        let spans = watch.spans();
        let begun = spans
            .lines()
            .find(|line| line.starts_with("request "))
            .expect("a span");
        for field in [
            "otel.name=\"xmtp.backend.v1.PublishService/Publish\"",
            "otel.kind=\"server\"",
            "rpc.system=\"grpc\"",
            "rpc.service=\"xmtp.backend.v1.PublishService\"",
            "rpc.method=\"Publish\"",
            "request_id=",
            &format!("trace_id={TRACE}"),
        ] {
            assert!(begun.contains(field), "{field} in {begun}");
        }
        assert!(
            spans.contains("request rpc.grpc.status_code=3\n"),
            "{spans}"
        );
        assert!(spans.contains("request error=true\n"), "{spans}");
        for field in ["tailer.poll rows=0\n", "tailer.poll gaps=0\n"] {
            eventually(field, async || watch.spans().contains(field).then_some(())).await;
        }
        backend.stop().await;
    });
}

#[test]
fn s32_whatever_ends_a_call_ends_it_once() {
    Watch::run(LogLevel::Info, async |watch| {
        let backend = Backend::start().await;
        let address = backend.address;
        let group = topic(TopicKind::GroupMessage, 1);
        let subscribe = SubscribeStaticRequest {
            topics: vec![query(&group, 0)],
        };
        let cancelled = |path, kind| handled(path, kind, "Cancelled");

        // Before the headers: the caller goes away while its publish waits.
        let stranger = Stranger::on_topic(&backend.database, &group).await;
        let mut publisher = backend.publisher();
        let waiting = tokio::spawn(async move {
            publisher
                .publish(PublishRequest {
                    envelopes: vec![group_message(1, "never")],
                })
                .await
        });
        publishes_wait(&backend.database, 1).await;
        let in_flight = format!("grpc_server_in_flight{{{}}}", rpc(publish::PATH, "unary"));
        assert_eq!(watch.value(&in_flight), Some(1));
        waiting.abort();
        watch.until(&cancelled(publish::PATH, "unary"), 1).await;
        stranger.commit().await;

        // After the headers: a stream is dropped, a connection breaks off.
        let mut client = backend.subscriptions();
        let stream = client
            .subscribe_static(subscribe.clone())
            .await
            .expect("admitted");
        drop(stream);
        watch.until(&cancelled(STATIC, "server_stream"), 1).await;
        let body = frame(&subscribe.encode_to_vec());
        drop(raw::open_web(address, STATIC, body, &[]).await);
        watch.until(&cancelled(STATIC, "server_stream"), 2).await;

        // By the server: a deadline, a mistake, the end of a half-closed stream, a drain.
        let headers = [("grpc-timeout", "1m")];
        let body = frame(&subscribe.encode_to_vec());
        raw::native(address, STATIC, body, &headers).await;
        watch
            .until(&handled(STATIC, "server_stream", "DeadlineExceeded"), 1)
            .await;
        let answer = raw::native(address, STATIC, frame(b""), &[]).await;
        assert_eq!(answer.code(), Code::InvalidArgument);
        watch
            .until(&handled(STATIC, "server_stream", "InvalidArgument"), 1)
            .await;
        let path = "/xmtp.backend.v1.SubscriptionService/Subscribe";
        raw::native(address, path, frame(b""), &[]).await;
        watch
            .until(&handled(path, "bidi_stream", "InvalidArgument"), 1)
            .await;
        let open = backend
            .subscriptions()
            .subscribe(futures::stream::pending::<SubscribeRequest>())
            .await
            .expect("admitted");
        backend.stop().await;
        drop(open);
        watch
            .until(&handled(path, "bidi_stream", "Unavailable"), 1)
            .await;

        for gauge in [
            "grpc_server_in_flight",
            "xmtp_stream_sessions",
            "xmtp_stream_topics_registered",
        ] {
            eventually(gauge, async || (watch.sum(gauge) == 0).then_some(())).await;
        }
        let started = watch.sum("grpc_server_started_total");
        assert_eq!(started, watch.sum("grpc_server_handled_total"));
        assert_eq!(started, watch.events("request completed").len() as u64);
    });
}

#[test]
fn ops_017_bytes_of_a_stream_count_while_it_runs() {
    Watch::run(LogLevel::Info, async |watch| {
        let backend = Backend::start().await;
        let group = topic(TopicKind::GroupMessage, 1);
        let mut client = backend.subscriptions();
        let topics = vec![query(&group, 0)];
        let stream = client
            .subscribe_static(SubscribeStaticRequest { topics })
            .await;
        let mut stream = stream.expect("admitted").into_inner();
        within(stream.message()).await.expect("healthy");
        let series = format!(
            "grpc_server_response_bytes_total{{{}}}",
            rpc(STATIC, "server_stream")
        );
        let started = watch.value(&series).expect("it is there");
        assert!(started > 0);
        backend.publish([group_message(1, [7; 10_000])]).await;
        within(stream.message()).await.expect("healthy");
        assert!(watch.value(&series) > Some(started + 10_000));
        assert_eq!(
            watch.value(&handled(STATIC, "server_stream", "OK")),
            Some(0)
        );
        drop(stream);
        backend.stop().await;
    });
}

#[test]
fn ops_017_positions_of_a_publish_count_once_and_those_of_no_message_not_at_all() {
    Watch::run(LogLevel::Off, async |watch| {
        let backend = Backend::start().await;
        let outcome = |outcome: &str| {
            watch.value(&format!(
                "xmtp_publish_envelopes_total{{outcome=\"{outcome}\"}}"
            ))
        };
        assert_eq!(outcome("stored"), Some(0));
        backend
            .publish([
                group_message(1, "a"),
                group_message(1, "a"),
                group_message(1, "b"),
            ])
            .await;
        assert_eq!(
            (outcome("stored"), outcome("duplicate")),
            (Some(2), Some(1))
        );
        let refused = [
            group_message(1, "c"),
            xmtp_protocol::proto::xmtp::backend::v1::ClientEnvelope::default(),
        ];
        backend.try_publish(refused).await.expect_err("malformed");
        assert_eq!(outcome("rejected"), Some(2));
        let reason = "xmtp_publish_rejections_total{reason=\"REASON_MALFORMED_PAYLOAD\"}";
        assert_eq!(watch.value(reason), Some(1));
        raw::native(backend.address, publish::PATH, frame(b"\x0a\x01\xff"), &[]).await;
        assert_eq!(outcome("rejected"), Some(2));
        let mut queries = backend.queries();
        queries
            .query(QueryRequest::default())
            .await
            .expect("answered");
        backend.stop().await;
    });
}
