//! What a replica that lags costs the primary, and how recovery waits for one (ARC-040, ARC-041).

use xmtp_test_support::eventually;

use super::faults::{following, lost, publish, resumed};
use super::{Pair, TAILER, assert_recovering, caught_up, end_sessions, opening};
use crate::leaks::Metrics;
use crate::streams::{HeldBarrier, Reader, abort_allocation, boundary, group};

/// Advances of the boundary on the primary, each of which had publishers wait.
const ADVANCES: &str = "xmtp_boundary_advances_total";
const ADVANCED: &str = r#"xmtp_boundary_advances_total{result="ok"}"#;
const POLLS: &str = "xmtp_tailer_polls_total";
const GAPS: &str = "xmtp_tailer_gap_ranges";
const ATTEMPTS: &str = "xmtp_tailer_restarts_total";

/// Waits until a counter that goes on counting is `more` above what it is now.
pub(super) async fn counted(metrics: Metrics, family: &'static str, more: i64) {
    reaches(metrics, family, metrics.sum(family) + more).await;
}

async fn reaches(metrics: Metrics, family: &'static str, count: i64) {
    eventually(family, async || {
        (metrics.sum(family) >= count).then_some(())
    })
    .await;
}

pub(super) async fn gaps(metrics: Metrics, ranges: i64) {
    eventually("the tailer has this many gaps", async || {
        (metrics.sum(GAPS) == ranges).then_some(())
    })
    .await;
}

#[tokio::test]
async fn arc_040_a_paused_replica_costs_no_advance_once_the_primary_has_closed_its_gap() {
    let metrics = Metrics::new();
    let _recording = metrics.record();
    let (pair, backend) = Pair::serve("").await;
    let mut reader = Reader::following(&backend, &[(group(1), 0)]).await;
    // The replica shows a gap, and not the boundary that closes it.
    let barrier = HeldBarrier::new(&backend.database).await;
    abort_allocation(&backend.database).await;
    let id = publish(&backend, 1..=1).await;
    reader.read_to(&group(1), id).await;
    pair.pause().await;
    let before = metrics.sum(ADVANCED);
    barrier.release().await;
    reaches(metrics, ADVANCED, before + 1).await;
    assert!(boundary(&backend.database).await.cast_unsigned() >= id);
    counted(metrics, POLLS, 50).await;
    assert_eq!(metrics.sum(ADVANCED), before + 1);
    gaps(metrics, 1).await;
    pair.resume().await;
    gaps(metrics, 0).await;
    assert_eq!(metrics.sum(ADVANCED), before + 1);

    // The next one is asked for as before.
    abort_allocation(&backend.database).await;
    let id = publish(&backend, 2..=2).await;
    reader.read_to(&group(1), id).await;
    gaps(metrics, 0).await;
    assert_eq!(metrics.sum(ADVANCED), before + 2);
    drop(reader);
    backend.stop().await;
}

#[tokio::test]
async fn arc_041_ops_006_recovery_takes_no_barrier_while_its_replica_cannot_be_reached() {
    let metrics = Metrics::new();
    let _recording = metrics.record();
    let (mut pair, backend) = Pair::serve("").await;
    let last = publish(&backend, 1..=5).await;
    let reader = following(&backend, last).await;
    let before = metrics.sum(ADVANCES);
    pair.standby.kill().await;
    let position = lost(reader).await;
    counted(metrics, ATTEMPTS, 4).await;
    assert_eq!(metrics.sum(ADVANCES), before);
    publish(&backend, 6..=6).await;
    pair.standby = pair.standby.start().await;
    pair.address.lead_to(pair.standby.address());
    resumed(&backend, position).await;
    backend.stop().await;
}

#[tokio::test]
async fn arc_041_arc_060_recovery_that_waits_for_a_replica_follows_its_address_to_another() {
    let metrics = Metrics::new();
    let _recording = metrics.record();
    let (pair, backend) = Pair::serve("").await;
    let other = pair.primary.standby().await;
    let last = publish(&backend, 1..=5).await;
    let reader = following(&backend, last).await;
    pair.pause().await;
    publish(&backend, 6..=9).await;
    let before = metrics.sum(ADVANCED);
    assert_eq!(end_sessions(&pair.standby, TAILER).await, 1);
    let position = lost(reader).await;
    reaches(metrics, ADVANCED, before + 1).await;
    assert_recovering(&opening(&backend).await.expect_err("it is behind"));
    // Nobody else asks the address, and the server that is waited for lives.
    caught_up(&other, &backend.database).await;
    pair.address.lead_to(other.address());
    resumed(&backend, position).await;
    assert_eq!(metrics.sum(ADVANCED), before + 1);
    backend.stop().await;
}
