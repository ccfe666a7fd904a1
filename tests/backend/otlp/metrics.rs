//! Metrics as the collector gets them: what `/metrics` shows (operations contract, section 8.3).

use std::collections::BTreeMap;

use nix::sys::signal::Signal;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, Metric, metric};
use xmtp_test_support::{TestDatabase, eventually};

use super::collector::{Collector, Manner, Received};
use super::{PUBLISH, publish_one, texts, until_spans};
use crate::process::Process;
use crate::telemetry::get;

impl Received {
    /// The last snapshot.
    fn snapshot(&self) -> Option<&[Metric]> {
        let resources = self.metrics.last()?.resource_metrics.as_slice();
        Some(&resources.first()?.scope_metrics.first()?.metrics)
    }
}

/// A snapshot as `/metrics` would show it: one sample each, histograms by bucket.
fn samples(metrics: &[Metric]) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    for metric in metrics {
        let name = &metric.name;
        let labels = |attributes: &[_], more: Option<String>| {
            let labels = texts(attributes);
            let labels = labels.iter().map(|(name, value)| format!("{name}={value}"));
            let labels: Vec<String> = labels.chain(more).collect();
            labels.join(",")
        };
        match metric.data.as_ref().expect("it has data") {
            metric::Data::Sum(sum) => {
                assert!(sum.is_monotonic);
                assert_eq!(
                    sum.aggregation_temporality(),
                    AggregationTemporality::Cumulative
                );
                for point in &sum.data_points {
                    assert!(point.start_time_unix_nano < point.time_unix_nano);
                    let Some(Value::AsInt(value)) = point.value else {
                        panic!("a counter counts: {point:?}");
                    };
                    let value = u32::try_from(value).expect("a test is short");
                    let labels = labels(&point.attributes, None);
                    samples.insert(format!("{name}{{{labels}}}"), value.into());
                }
            }
            metric::Data::Gauge(gauge) => {
                for point in &gauge.data_points {
                    let value = match point.value.expect("there") {
                        Value::AsDouble(value) => value,
                        Value::AsInt(value) => u32::try_from(value).expect("small").into(),
                    };
                    let labels = labels(&point.attributes, None);
                    samples.insert(format!("{name}{{{labels}}}"), value);
                }
            }
            metric::Data::Histogram(histogram) => {
                let temporality = histogram.aggregation_temporality();
                assert_eq!(temporality, AggregationTemporality::Cumulative);
                assert_eq!(metric.unit, "s");
                for point in &histogram.data_points {
                    let bounds = point.explicit_bounds.iter().map(f64::to_string);
                    let mut below = 0;
                    for (bound, count) in
                        bounds.chain(["+Inf".to_owned()]).zip(&point.bucket_counts)
                    {
                        below += u32::try_from(*count).expect("small");
                        let labels = labels(&point.attributes, Some(format!("le={bound}")));
                        samples.insert(format!("{name}_bucket{{{labels}}}"), below.into());
                    }
                    assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
                    let labels = labels(&point.attributes, None);
                    let count = u32::try_from(point.count).expect("small");
                    assert_eq!(count, below);
                    samples.insert(format!("{name}_count{{{labels}}}"), count.into());
                    samples.insert(format!("{name}_sum{{{labels}}}"), point.sum.expect("there"));
                }
            }
            other => panic!("no such metric is recorded: {other:?}"),
        }
    }
    samples
}

/// The text format in the same form.
fn exposed(text: &str) -> BTreeMap<String, f64> {
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').expect("a series and a value");
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let labels = labels
                .trim_end_matches('}')
                .split(',')
                .map(|label| label.replace('"', ""));
            let (bounds, mut labels): (Vec<String>, Vec<String>) = labels
                .filter(|label| !label.is_empty())
                .partition(|label| label.starts_with("le="));
            labels.sort_unstable();
            labels.extend(bounds);
            let series = format!("{name}{{{}}}", labels.join(","));
            (series, value.parse().expect("a number"))
        })
        .collect()
}

/// What goes on by itself.
fn moves(series: &str) -> bool {
    [
        "xmtp_tailer_",
        "xmtp_boundary_",
        "xmtp_operation_duration_seconds_",
    ]
    .iter()
    .any(|family| series.starts_with(family))
        && !series.contains("/Publish")
}

#[tokio::test]
async fn the_collector_gets_what_the_listener_shows_with_equal_totals() {
    let collector = Collector::start(Manner::Takes);
    let database = TestDatabase::create().await;
    let settings = format!(
        "telemetry.otlp_endpoint = \"{}\"\ntelemetry.otlp_metrics = true
         telemetry.otlp_metrics_interval_seconds = 1\ntelemetry.metrics_listen = \"127.0.0.1:0\"",
        collector.url()
    );
    let mut server = Process::serve(&database, &settings).await;
    for number in 0..3 {
        publish_one(&server, number, &[]).await;
    }
    let (_, text) = get(server.telemetry(), "/metrics").await;
    let expected = exposed(&text);
    let snapshot = eventually("a snapshot has the publishes", async || {
        let received = collector.received();
        let samples = samples(received.snapshot()?);
        let handled = samples.iter().find(|(series, _)| {
            series.starts_with("grpc_server_handled_total")
                && series.contains("grpc_method=Publish")
        });
        (handled?.1 >= &3.0).then_some(samples)
    })
    .await;
    let series = |samples: &BTreeMap<String, f64>| samples.keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        series(&snapshot),
        series(&expected),
        "the same series, and no others"
    );
    for (series, value) in &expected {
        if !moves(series) {
            assert!((snapshot[series] - value).abs() < 1e-9, "{series}");
        }
    }
    assert!(expected.len() > 300, "there was something to compare");
    let descriptions: Vec<bool> = collector
        .received()
        .snapshot()
        .expect("there")
        .iter()
        .map(|metric| text.contains(&format!("# HELP {} {}\n", metric.name, metric.description)))
        .collect();
    assert!(!descriptions.is_empty() && descriptions.iter().all(|is_same| *is_same));

    // The last push has what came after the one before it.
    publish_one(&server, 9, &[]).await;
    server.signal(Signal::SIGTERM);
    assert!(server.ended().await.success());
    let received = collector.received();
    let last = samples(received.snapshot().expect("there"));
    let ready = last["xmtp_backend_ready{}"];
    assert!(ready.abs() < f64::EPSILON, "pushed after the drain");
    assert!((last["xmtp_publish_envelopes_total{outcome=stored}"] - 4.0).abs() < f64::EPSILON);
    let resource = received.metrics[0].resource_metrics[0].resource.as_ref();
    let spans = received.traces[0].resource_spans[0].resource.as_ref();
    assert_eq!(resource, spans, "metrics and spans come from one process");
}

#[tokio::test]
async fn no_metrics_leave_where_they_are_not_asked_for() {
    let collector = Collector::start(Manner::Takes);
    let database = TestDatabase::create().await;
    let settings = format!(
        "telemetry.otlp_endpoint = \"{}\"\ntelemetry.otlp_metrics_interval_seconds = 1",
        collector.url()
    );
    let mut server = Process::serve(&database, &settings).await;
    publish_one(&server, 1, &[]).await;
    until_spans(&collector, PUBLISH, 1).await;
    server.signal(Signal::SIGTERM);
    assert!(server.ended().await.success());
    assert!(collector.received().metrics.is_empty());
}
