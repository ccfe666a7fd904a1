//! What is served under `/metrics` against the catalogue, and the catalogue against its contract.

use std::collections::{BTreeMap, BTreeSet};

use xmtp_protocol::TopicKind;
use xmtp_protocol::proto::xmtp::backend::v1::SubscribeStaticRequest;
use xmtp_server::config::sections::LogLevel;
use xmtp_server::telemetry::Catalogue;
use xmtp_telemetry::{Kind, Label, Start};
use xmtp_test_support::payloads::{group_message, topic};

use super::watch::Watch;
use crate::harness::{Backend, query, within};
use crate::publish;
use crate::raw::{self, frame};

/// The core's families as OPS lists them: name, type, labels with their words.
const CONTRACT: &str = "\
grpc_server_started_total counter RPC
grpc_server_handled_total counter RPC grpc_code=OK/Cancelled/Unknown/InvalidArgument/DeadlineExceeded/NotFound/AlreadyExists/PermissionDenied/ResourceExhausted/FailedPrecondition/Aborted/OutOfRange/Unimplemented/Internal/Unavailable/DataLoss/Unauthenticated
grpc_server_handling_seconds histogram RPC grpc_code=OK/Cancelled/Unknown/InvalidArgument/DeadlineExceeded/NotFound/AlreadyExists/PermissionDenied/ResourceExhausted/FailedPrecondition/Aborted/OutOfRange/Unimplemented/Internal/Unavailable/DataLoss/Unauthenticated
grpc_server_in_flight gauge RPC
grpc_server_request_bytes_total counter RPC
grpc_server_response_bytes_total counter RPC
xmtp_operation_duration_seconds histogram operation status=ok/error
xmtp_db_released_open_transactions_total counter
xmtp_db_errors_total counter kind=timeout/invariant/connection/other
xmtp_publish_envelopes_total counter outcome=stored/duplicate/rejected
xmtp_publish_rejections_total counter reason=REASON_MALFORMED_PAYLOAD/REASON_INVALID_KEY_PACKAGE/REASON_INVALID_IDENTITY_UPDATE/REASON_INVALID_SIGNATURE/REASON_TOO_LARGE/REASON_HANDLE_TAKEN/REASON_HANDLE_NOT_ALLOWED/REASON_HANDLE_TOO_SOON
xmtp_stream_sessions gauge kind=bidi/static
xmtp_stream_topics_registered gauge
xmtp_stream_frames_sent_total counter frame=started/applied/messages/keepalive/ping/pong/update
xmtp_stream_frames_received_total counter frame=update/ping/pong
xmtp_stream_envelopes_sent_total counter phase=catch_up/live
xmtp_stream_updates_total counter outcome=applied/invalid/rate_limited
xmtp_stream_ended_total counter reason=client/backpressure/capacity/keepalive/tailer/database/shutdown/invalid/rate_limited
xmtp_stream_outbound_wait_seconds histogram
xmtp_stream_fetch_wait_seconds histogram
xmtp_tailer_polls_total counter result=ok/error
xmtp_tailer_rows_total counter source=forward/gap
xmtp_tailer_gap_ranges gauge
xmtp_tailer_restarts_total counter
xmtp_tailer_ready gauge
xmtp_boundary_advances_total counter result=ok/lock_timeout/error
xmtp_backend_ready gauge
xmtp_backend_info gauge version=VERSION";

#[test]
fn ops_016_the_catalogue_is_that_of_the_contract() {
    let catalogue = Catalogue::new(&[]);
    let version = env!("CARGO_PKG_VERSION");
    let listed: BTreeSet<String> = catalogue
        .families()
        .iter()
        .map(|family| {
            let mut words = vec![family.name().to_owned(), family.kind().word().to_owned()];
            words.extend(family.labels().iter().map(|label| match label {
                Label::Rpc => "RPC".to_owned(),
                Label::Operation => "operation".to_owned(),
                Label::Words { name, values } => format!("{name}={}", values.join("/")),
            }));
            words.join(" ")
        })
        .collect();
    let contract = CONTRACT.replace("VERSION", version);
    assert_eq!(listed, contract.lines().map(str::to_owned).collect());

    let routes: BTreeSet<(&str, &str)> = catalogue
        .routes()
        .iter()
        .map(|route| (route.path(), route.kind().word()))
        .collect();
    let expected = [
        ("/xmtp.backend.v1.QueryService/Query", "unary"),
        ("/xmtp.backend.v1.QueryService/QueryNewest", "unary"),
        ("/xmtp.backend.v1.PublishService/Publish", "unary"),
        (
            "/xmtp.backend.v1.SubscriptionService/Subscribe",
            "bidi_stream",
        ),
        (
            "/xmtp.backend.v1.SubscriptionService/SubscribeStatic",
            "server_stream",
        ),
        ("/xmtp.backend.v1.IdentityService/GetInboxIds", "unary"),
        (
            "/xmtp.backend.v1.IdentityService/VerifySmartContractWalletSignatures",
            "unary",
        ),
        (
            "/xmtp.backend.v1.ConfigurationService/GetConfiguration",
            "unary",
        ),
        ("/grpc.health.v1.Health/Check", "unary"),
        ("/grpc.health.v1.Health/Watch", "unary"),
        ("/grpc.health.v1.Health/List", "unary"),
    ];
    assert_eq!(routes, BTreeSet::from(expected));
}

/// The text format, taken apart.
#[derive(Default)]
struct Exposition {
    /// Help and type of each family.
    described: BTreeMap<String, (String, String)>,
    /// Each sample: its name and its labels as they stand there.
    samples: Vec<(String, String)>,
}

impl Exposition {
    fn parse(text: &str) -> Self {
        let mut exposition = Self::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("a name and a help");
                let described = exposition.described.entry(name.to_owned()).or_default();
                assert!(described.0.is_empty(), "{name} is described twice");
                help.clone_into(&mut described.0);
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a name and a type");
                let described = exposition.described.entry(name.to_owned()).or_default();
                assert!(described.1.is_empty(), "{name} is typed twice");
                kind.clone_into(&mut described.1);
            } else {
                let (series, value) = line.rsplit_once(' ').expect("a series and a value");
                value.parse::<f64>().expect("a number");
                let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
                let labels = labels.strip_suffix('}').expect("labels have an end");
                exposition
                    .samples
                    .push((name.to_owned(), labels.to_owned()));
            }
        }
        exposition
    }
}

fn labels(key: &metrics::Key) -> String {
    let labels = key.labels();
    let labels = labels.map(|label| format!("{}=\"{}\"", label.key(), label.value()));
    labels.collect::<Vec<_>>().join(",")
}

/// Every sample that the catalogue allows: name and labels.
fn allowed(catalogue: &Catalogue) -> BTreeSet<(String, String)> {
    let bounds = [
        "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf",
    ];
    let mut allowed = BTreeSet::new();
    for family in catalogue.families() {
        for key in catalogue.series(family) {
            let (name, labels) = (family.name(), labels(&key));
            if family.kind() != Kind::Histogram {
                allowed.insert((name.to_owned(), labels));
                continue;
            }
            for suffix in ["sum", "count"] {
                allowed.insert((format!("{name}_{suffix}"), labels.clone()));
            }
            for bound in bounds {
                let comma = if labels.is_empty() { "" } else { "," };
                let labels = format!("{labels}{comma}le=\"{bound}\"");
                allowed.insert((format!("{name}_bucket"), labels));
            }
        }
    }
    allowed
}

fn check(text: &str, catalogue: &Catalogue) {
    let exposition = Exposition::parse(text);
    let described: BTreeMap<String, (String, String)> = catalogue
        .families()
        .iter()
        .map(|family| {
            let words = (family.help().to_owned(), family.kind().word().to_owned());
            (family.name().to_owned(), words)
        })
        .collect();
    assert_eq!(exposition.described, described);
    let allowed = allowed(catalogue);
    for sample in &exposition.samples {
        assert!(
            allowed.contains(sample),
            "{sample:?} is not in the catalogue"
        );
    }
    let distinct: BTreeSet<_> = exposition.samples.iter().collect();
    assert_eq!(distinct.len(), exposition.samples.len());
}

#[test]
fn ops_016_every_family_is_described_from_the_start_and_at_zero_unless_it_counts_failures() {
    Watch::run(LogLevel::Off, async |watch| {
        let catalogue = Catalogue::new(&[]);
        let text = watch.metrics.render();
        check(&text, &catalogue);
        for family in catalogue.families() {
            let histogram = if family.kind() == Kind::Histogram {
                "_count"
            } else {
                ""
            };
            let value = |key| watch.value(&format!("{}{histogram}{}", family.name(), braced(key)));
            let there: Vec<Option<u64>> = catalogue.series(family).iter().map(value).collect();
            let expected = u64::from(family.name() == "xmtp_backend_info");
            match family.start() {
                Start::Whole => assert!(
                    there.iter().all(|it| *it == Some(expected)),
                    "{}",
                    family.name()
                ),
                Start::FirstValue => assert_eq!(there[0], Some(0), "{}", family.name()),
                Start::FirstEvent => {
                    assert!(there.iter().all(Option::is_none), "{}", family.name());
                }
            }
        }
        let failures: Vec<&str> = catalogue
            .families()
            .iter()
            .filter(|family| family.start() == Start::FirstEvent)
            .map(|family| family.name())
            .collect();
        assert_eq!(
            failures,
            [
                "xmtp_publish_rejections_total",
                "xmtp_db_released_open_transactions_total",
                "xmtp_db_errors_total",
            ]
        );
    });
}

fn braced(key: &metrics::Key) -> String {
    match labels(key) {
        labels if labels.is_empty() => labels,
        labels => format!("{{{labels}}}"),
    }
}

#[test]
fn ops_017_traffic_of_every_kind_brings_no_series_from_outside_the_catalogue() {
    Watch::run(LogLevel::Info, async |watch| {
        let backend = Backend::start().await;
        let address = backend.address;
        let catalogue = Catalogue::new(&[]);
        let other = [
            "/nothing.Nothing/Nothing",
            "/",
            "/xmtp.backend.v1.PublishService/publish",
        ];
        let paths = catalogue.routes().iter().map(|route| route.path());
        for path in paths.chain(other) {
            if path.ends_with("/Watch") {
                continue;
            }
            for body in [&b""[..], b"\x0a\x00", b"\xff", b"\x0a\x02\x0a\x00"] {
                let headers = [("grpc-timeout", "20m")];
                raw::native(address, path, frame(body), &headers).await;
                raw::web(address, path, frame(body), &headers).await;
            }
        }
        backend
            .publish([group_message(1, "a"), group_message(1, "a")])
            .await;
        let mut client = backend.subscriptions();
        let topics = vec![query(&topic(TopicKind::GroupMessage, 1), 0)];
        let stream = client
            .subscribe_static(SubscribeStaticRequest { topics })
            .await;
        let mut stream = stream.expect("admitted").into_inner();
        for _ in 0..2 {
            within(stream.message()).await.expect("healthy");
        }
        // An error of the database.
        backend.database.kill_sessions("xmtp-backend").await;
        backend
            .try_publish([group_message(2, "b")])
            .await
            .expect_err("no connection");
        assert_eq!(watch.sum("xmtp_db_errors_total"), 1);
        raw::native(address, publish::PATH, frame(b""), &[]).await;
        backend.stop().await;
        let text = watch.metrics.render();
        check(&text, &catalogue);
        assert!(text.contains("unknown"), "there was something to see");
    });
}
