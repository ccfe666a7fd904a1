//! Rows that come late to the streams of a replica (ARC-112): publishers that hold their id beyond attempts at the
//! boundary, replay that is paused meanwhile, and a start while a publish is open.

use futures::future::join;
use xmtp_test_support::eventually;

use super::Pair;
use super::recovery::{counted, gaps};
use crate::harness::{Backend, configured_with_replica, meta_id};
use crate::leaks::Metrics;
use crate::streams::{HeldId, Reader, boundary, group, messages};

/// Attempts at the boundary that a publisher stood in the way of.
const REFUSED: &str = r#"xmtp_boundary_advances_total{result="lock_timeout"}"#;
const POLLS: &str = "xmtp_tailer_polls_total";
/// So that attempts are many.
const HASTY: &str = "publishing.max_barrier_wait_ms = 50";

async fn publish(backend: &Backend, number: u8, message: u64) -> u64 {
    meta_id(&backend.publish(messages(number, [message])).await[0])
}

/// Waits until the primary's boundary has closed an id.
async fn closed(backend: &Backend, id: i64) {
    eventually("the boundary advances", async || {
        (boundary(&backend.database).await >= id).then_some(())
    })
    .await;
}

#[tokio::test]
async fn arc_112_late_commits_reach_the_streams_of_a_replica_in_order_although_replay_pauses() {
    let metrics = Metrics::new();
    let _recording = metrics.record();
    let (pair, backend) = Pair::serve(HASTY).await;
    let mut reader = Reader::following(&backend, &[(group(1), 0), (group(2), 0)]).await;
    let (mut ones, mut twos) = (Vec::new(), Vec::new());
    for round in 0..4 {
        let held = HeldId::on_topic(&backend.database, &group(1)).await;
        let id = held.id;
        twos.push(publish(&backend, 2, round).await);
        reader.read_to(&group(2), *twos.last().expect("one")).await;
        counted(metrics, REFUSED, 2).await;
        assert!(boundary(&backend.database).await < id);
        pair.pause().await;
        if round % 2 == 0 {
            held.commit(&group(1), &messages(1, [round])[0]).await;
            ones.push(id.cast_unsigned());
        } else {
            held.roll_back().await;
        }
        ones.push(publish(&backend, 1, 100 + round).await);
        twos.push(publish(&backend, 2, 100 + round).await);
        // The primary has closed the gap, and the replica shows neither that nor what was in it.
        closed(&backend, id).await;
        counted(metrics, POLLS, 10).await;
        assert!(reader.position(&group(1)) < id.cast_unsigned());
        gaps(metrics, 1).await;
        pair.resume().await;
        reader.read_to(&group(1), *ones.last().expect("one")).await;
        reader.read_to(&group(2), *twos.last().expect("one")).await;
        gaps(metrics, 0).await;
    }
    assert_eq!(reader.ids(&group(1)), ones);
    assert_eq!(reader.ids(&group(2)), twos);
    drop(reader);
    backend.stop().await;
}

#[tokio::test]
async fn arc_112_arc_041_a_start_on_a_replica_during_an_open_publish_has_its_row_as_history() {
    let metrics = Metrics::new();
    let _recording = metrics.record();
    let (pair, backend) = Pair::serve(HASTY).await;
    let mut before = Reader::following(&backend, &[(group(1), 0)]).await;
    let first = publish(&backend, 1, 1).await;
    let held = HeldId::on_topic(&backend.database, &group(1)).await;
    let id = held.id;
    // Above the row to come, and on the replica before it.
    publish(&backend, 2, 1).await;
    let settings = format!("{}\n{HASTY}", pair.setting(&backend.database));
    let starting = configured_with_replica(&backend.database, &settings).start();
    let committing = async {
        counted(metrics, REFUSED, 4).await;
        pair.pause().await;
        held.commit(&group(1), &messages(1, [2])[0]).await;
        closed(&backend, id).await;
        pair.resume().await;
    };
    let (running, ()) = join(starting, committing).await;
    let running = running.expect("it starts");
    let mut after = Reader::try_open_at(running.local_addr())
        .await
        .expect("admitted");
    after.update(&[(group(1), 0)], &[]);
    assert_eq!(after.applied().await, [id.cast_unsigned()]);
    let last = publish(&backend, 1, 3).await;
    for reader in [&mut before, &mut after] {
        reader.read_to(&group(1), last).await;
        assert_eq!(reader.ids(&group(1)), [first, id.cast_unsigned(), last]);
    }
    drop((before, after));
    running.stop().await;
    backend.stop().await;
}
