//! What the export of traces costs: publishes a second with a hundredth of all traces sent to a collector, against the
//! same program that exports nothing.

use xmtp_test_support::TestDatabase;

use crate::collector::{Collector, Manner};
use crate::figures::{Verdict, at_least};
use crate::publish::sides::compare;
use crate::server::Server;

/// Least share of the throughput that is left.
const LEAST_RATIO: f64 = 0.95;

pub(crate) async fn measure() -> Verdict {
    let collector = Collector::start(Manner::Takes);
    let databases = (TestDatabase::create().await, TestDatabase::create().await);
    let settings = format!(
        "telemetry.otlp_endpoint = \"{}\"\ntelemetry.sample_ratio = 0.01",
        collector.url()
    );
    let on = Server::start(&databases.0, &settings).await;
    let off = Server::start(&databases.1, "").await;
    let ratio = compare(&on, &off, "tracing").await;
    let batches = collector.received().traces.len();
    println!("{batches} batches of spans were exported");
    assert!(batches > 0, "there was something to export");
    at_least(
        "throughput with a hundredth of all traces, median of the rounds' ratios",
        ratio,
        LEAST_RATIO,
    )
}
