//! A replica that is killed, promoted, replaced or in the way of its replay (ARC-060, OPS-006; field case S31).

use std::time::Duration;

use sqlx::{Executor, PgConnection};
use tokio::time::sleep;
use tonic::Code;
use xmtp_protocol::proto::grpc::health::v1::HealthCheckRequest;
use xmtp_protocol::proto::grpc::health::v1::health_check_response::ServingStatus;
use xmtp_server::StartError;
use xmtp_test_support::eventually;

use super::{
    PATIENT, Pair, TAILER, assert_recovering, caught_up, end_sessions, newest, opening, pause,
    resume, shows, unavailable,
};
use crate::harness::{Backend, configured_with_replica, meta_id};
use crate::streams::{Reader, group, messages, reopened};

/// A client that was refused asks again after this.
const PAUSE: Duration = Duration::from_millis(10);
/// `application_name` of pooled connections.
const POOL: &str = "xmtp-backend";

/// Publishes `numbers` on group 1; the last id.
pub(super) async fn publish(backend: &Backend, numbers: std::ops::RangeInclusive<u64>) -> u64 {
    meta_id(
        backend
            .publish(messages(1, numbers))
            .await
            .last()
            .expect("some"),
    )
}

/// A stream of group 1 that has all of it, from the start.
pub(super) async fn following(backend: &Backend, last: u64) -> Reader {
    let mut reader = Reader::following(backend, &[(group(1), 0)]).await;
    reader.read_to(&group(1), last).await;
    reader
}

/// The stream ends as one whose tailer is lost; answers where it stood.
pub(super) async fn lost(mut reader: Reader) -> u64 {
    let status = reader.end().await.expect_err("the tailer is lost");
    assert_recovering(&status);
    reader.position(&group(1))
}

/// Reads on, from `position`, what is stored above it: nothing is skipped and nothing comes twice.
pub(super) async fn resumed(backend: &Backend, position: u64) {
    let mut reader = reopened(backend).await;
    reader.update(&[(group(1), position)], &[]);
    reader.applied().await;
    let stored = backend.read(&group(1)).await;
    let above: Vec<u64> = stored
        .iter()
        .map(crate::harness::sequence_id)
        .filter(|id| *id > position)
        .collect();
    assert!(!above.is_empty(), "something is left to be read");
    reader.read_to(&group(1), above[above.len() - 1]).await;
    assert_eq!(reader.ids(&group(1)), above);
    let live = meta_id(&backend.publish(messages(1, [u64::MAX])).await[0]);
    reader.read_to(&group(1), live).await;
    assert_eq!(reader.ids(&group(1)).len(), above.len() + 1);
}

/// What the primary answers goes on.
async fn primary_serves(backend: &Backend, number: u64) {
    let id = publish(backend, number..=number).await;
    let rows = backend.read(&group(1)).await;
    assert_eq!(rows.last().map(crate::harness::sequence_id), Some(id));
    let health = backend.health().check(HealthCheckRequest::default()).await;
    let health = health.expect("health answers").into_inner();
    assert_eq!(health.status(), ServingStatus::Serving);
}

#[tokio::test]
async fn arc_060_ops_006_a_killed_replica_ends_streams_and_nothing_that_the_primary_serves() {
    let (mut pair, backend) = Pair::serve("").await;
    let last = publish(&backend, 1..=5).await;
    let reader = following(&backend, last).await;
    pair.standby.kill().await;
    let position = lost(reader).await;
    assert_recovering(&opening(&backend).await.expect_err("still recovering"));
    unavailable(async || newest(&backend, &group(1)).await).await;
    primary_serves(&backend, 6).await;
    assert_recovering(&opening(&backend).await.expect_err("still recovering"));
    pair.standby = pair.standby.start().await;
    pair.address.lead_to(pair.standby.address());
    resumed(&backend, position).await;
    let head = backend
        .read(&group(1))
        .await
        .last()
        .map(crate::harness::sequence_id);
    shows(&backend, &group(1), head.expect("rows")).await;
    backend.stop().await;
}

#[tokio::test]
async fn arc_060_a_promoted_replica_is_noticed_on_its_open_connections_and_read_no_more() {
    let (pair, backend) = Pair::serve("").await;
    let last = publish(&backend, 1..=5).await;
    let reader = following(&backend, last).await;
    shows(&backend, &group(1), last).await;
    // Its sessions survive the promotion.
    pair.standby.promote().await;
    let position = lost(reader).await;
    unavailable(async || newest(&backend, &group(1)).await).await;
    // What it takes now is no part of the primary's history, and nobody is shown it.
    let mut fork = pair.connect(&backend.database).await;
    fork.execute(
        "UPDATE topic_watermark SET last_sequence_id = 1000;
         UPDATE envelopes SET sequence_id = 1000 WHERE sequence_id = (SELECT max(sequence_id) FROM envelopes);
         UPDATE allocation_boundary SET closed_sequence_id = 2000",
    )
    .await
    .expect("a promoted server takes writes");
    for number in 6..=15 {
        primary_serves(&backend, number).await;
        let refused = newest(&backend, &group(1))
            .await
            .expect_err("not a standby");
        assert_eq!(refused.code(), Code::Unavailable);
        assert_recovering(&opening(&backend).await.expect_err("still recovering"));
    }
    let setting = pair.setting(&backend.database);
    let started = configured_with_replica(&backend.database, &setting)
        .start()
        .await;
    let Err(StartError::ReadSource {
        word: "replica",
        source,
    }) = started
    else {
        panic!("no server starts on it");
    };
    assert_eq!(source.to_string(), "the server is not a standby");

    let standby = pair.primary.standby().await;
    pair.address.lead_to(standby.address());
    resumed(&backend, position).await;
    backend.stop().await;
}

#[tokio::test]
async fn arc_060_arc_041_an_older_replica_is_waited_for_until_it_shows_what_was_delivered() {
    let (mut pair, backend) = Pair::serve("").await;
    publish(&backend, 1..=3).await;
    let older = pair.primary.standby().await;
    caught_up(&older, &backend.database).await;
    pause(&older).await;
    let last = publish(&backend, 4..=9).await;
    let reader = following(&backend, last).await;
    pair.address.lead_to(older.address());
    pair.standby.kill().await;
    let position = lost(reader).await;
    assert_eq!(position, last);
    // It is read from, as a past answer; streams would repeat or skip, and wait.
    eventually("it answers", async || {
        let id = newest(&backend, &group(1)).await.ok()?;
        assert!(id < last);
        Some(())
    })
    .await;
    for number in 10..=15 {
        primary_serves(&backend, number).await;
        assert_recovering(&opening(&backend).await.expect_err("it is behind"));
    }
    resume(&older).await;
    resumed(&backend, position).await;
    pair.standby = older;
    backend.stop().await;
}

#[tokio::test]
async fn arc_060_arc_076_an_address_that_moves_to_a_living_older_replica_restarts_recovery() {
    let (pair, backend) = Pair::serve("").await;
    publish(&backend, 1..=3).await;
    let older = pair.primary.standby().await;
    caught_up(&older, &backend.database).await;
    pause(&older).await;
    let last = publish(&backend, 4..=9).await;
    let reader = following(&backend, last).await;
    shows(&backend, &group(1), last).await;
    pair.address.lead_to(older.address());
    // The tailer is still on the one that it knows: a head that the other one shows would not fit its rows.
    assert!(end_sessions(&pair.standby, POOL).await > 0);
    let asking = async {
        loop {
            // By a connection that was ended, and then by one that leads to the other server.
            let _ = newest(&backend, &group(1)).await;
            sleep(PAUSE).await;
        }
    };
    let position = tokio::select! {
        position = lost(reader) => position,
        () = asking => 0,
    };
    assert_eq!(position, last);
    publish(&backend, 10..=12).await;
    assert_recovering(&opening(&backend).await.expect_err("it is behind"));
    resume(&older).await;
    resumed(&backend, position).await;
    backend.stop().await;
}

#[tokio::test]
async fn arc_060_arc_076_pooled_connections_follow_the_tailer_to_another_replica() {
    let (pair, backend) = Pair::serve("").await;
    let before = publish(&backend, 1..=3).await;
    let older = pair.primary.standby().await;
    caught_up(&older, &backend.database).await;
    pause(&older).await;
    let last = publish(&backend, 4..=9).await;
    let reader = following(&backend, last).await;
    shows(&backend, &group(1), last).await;
    pair.address.lead_to(older.address());
    assert_eq!(end_sessions(&pair.standby, TAILER).await, 1);
    let position = lost(reader).await;
    // Their own server lives, and is ahead of the one that the tailer reads now.
    shows(&backend, &group(1), before).await;
    assert_recovering(&opening(&backend).await.expect_err("it is behind"));
    publish(&backend, 10..=12).await;
    resume(&older).await;
    resumed(&backend, position).await;
    backend.stop().await;
}

#[tokio::test]
async fn arc_060_losing_the_tailers_connection_to_the_replica_loses_no_row() {
    let (pair, backend) = Pair::serve("").await;
    let last = publish(&backend, 1..=5).await;
    let reader = following(&backend, last).await;
    assert_eq!(end_sessions(&pair.standby, TAILER).await, 1);
    let position = lost(reader).await;
    publish(&backend, 6..=9).await;
    resumed(&backend, position).await;
    backend.stop().await;
}

#[tokio::test]
async fn s31_a_replica_that_ends_reads_in_favour_of_replay_costs_those_reads_and_no_row() {
    let (pair, backend) = Pair::serve(PATIENT).await;
    let at_once = [
        "ALTER SYSTEM SET max_standby_streaming_delay = 0",
        "SELECT pg_reload_conf()",
    ];
    pair.standby.execute(&at_once).await;
    let last = publish(&backend, 1..=5).await;
    let reader = following(&backend, last).await;
    shows(&backend, &group(1), last).await;

    // Replay holds this lock, so that reads wait for it and hold what they have locked before.
    let mut first = backend.database.connect().await;
    first
        .execute("BEGIN; LOCK TABLE envelopes")
        .await
        .expect("locked");
    backend
        .database
        .execute("SELECT pg_logical_emit_message(true, 'commit', '')")
        .await;
    let mut witness = pair.connect(&backend.database).await;
    let held = "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'envelopes'::regclass
                               AND mode = 'AccessExclusiveLock' AND granted AND $1 = '')";
    holds(&mut witness, held, "").await;
    let queries = backend.queries();
    let asking = tokio::spawn(async move { super::newest_of(queries, &group(1)).await });
    let waits = "SELECT EXISTS (SELECT FROM pg_locks JOIN pg_stat_activity USING (pid)
                                WHERE NOT granted AND application_name = $1)";
    holds(&mut witness, waits, POOL).await;
    holds(&mut witness, waits, TAILER).await;
    // And now replay needs what they have.
    let mut second = backend.database.connect().await;
    let lock = "BEGIN; LOCK TABLE topic_watermark; LOCK TABLE allocation_boundary";
    second.execute(lock).await.expect("locked");
    backend
        .database
        .execute("SELECT pg_logical_emit_message(true, 'commit', '')")
        .await;
    let cancelled = asking
        .await
        .expect("no panic")
        .expect_err("its read is ended");
    assert_eq!(cancelled.code(), Code::Unavailable);
    let position = lost(reader).await;
    for mut connection in [first, second] {
        connection.execute("ROLLBACK").await.expect("rolled back");
    }
    // An abort is flushed by the next commit.
    publish(&backend, 6..=9).await;
    resumed(&backend, position).await;
    backend.stop().await;
}

/// Waits until a question about `application` is answered with yes.
async fn holds(witness: &mut PgConnection, question: &'static str, application: &str) {
    eventually(question, async || {
        let answer = sqlx::query_scalar(question).bind(application);
        let answer: bool = answer
            .fetch_one(&mut *witness)
            .await
            .expect("locks can be read");
        answer.then_some(())
    })
    .await;
}
