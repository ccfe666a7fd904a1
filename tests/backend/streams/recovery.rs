//! Gaps, loss of the tailer, drain, and moving between instances (contract, section 10; field cases S08, S11).

use tonic::{Code, Status};
use xmtp_protocol::client::SubscriptionServiceClient;
use xmtp_protocol::proto::grpc::health::v1::HealthCheckRequest;
use xmtp_protocol::proto::grpc::health::v1::health_check_response::ServingStatus;
use xmtp_test_support::eventually;

use super::obstacles::{HeldBarrier, HeldId, LockedTable, abort_allocation, boundary};
use super::reader::Reader;
use super::{group, messages};
use crate::harness::{Backend, meta_id};
use crate::leaks::Leaks;

/// `application_name` of the tailer.
const TAILER: &str = "xmtp-backend-tailer";

#[tokio::test]
async fn st_27_s11_arc_037_a_held_id_delays_nobody_and_comes_when_it_commits() {
    let backend = Backend::start().await;
    let leaks = Leaks::watch(&backend).await;
    let mut reader = Reader::following(&backend, &[(group(1), 0), (group(2), 0)]).await;
    for commits in [true, false] {
        let held = HeldId::new(&backend.database).await;
        let id = held.id.cast_unsigned();
        // Each of these is a poll or more of the tailer.
        for number in 0..30 {
            let number = number + 100 * u64::from(commits);
            let metas = backend.publish(messages(2, [number])).await;
            reader.read_to(&group(2), meta_id(&metas[0])).await;
        }
        assert!(reader.position(&group(1)) < id);
        assert!(boundary(&backend.database).await < held.id);
        if commits {
            held.commit(&group(1), &messages(1, [7])[0]).await;
            reader.read_to(&group(1), id).await;
            assert_eq!(reader.ids(&group(1)), [id]);
        } else {
            held.roll_back().await;
        }
    }
    let metas = backend.publish(messages(1, [8])).await;
    reader.read_to(&group(1), meta_id(&metas[0])).await;
    assert_eq!(reader.ids(&group(1)).len(), 2);
    drop(reader);
    leaks.none(backend).await;
}

#[tokio::test]
async fn st_28_arc_042_too_many_gaps_end_every_stream() {
    let backend = Backend::with("streams.max_gap_ranges = 1").await;
    let leaks = Leaks::watch(&backend).await;
    let mut readers = [
        Reader::following(&backend, &[(group(1), 0)]).await,
        Reader::following(&backend, &[(group(2), 0)]).await,
    ];
    let barrier = HeldBarrier::new(&backend.database).await;
    let before = boundary(&backend.database).await;
    abort_allocation(&backend.database).await;
    let metas = backend.publish(messages(1, [1])).await;
    readers[0].read_to(&group(1), meta_id(&metas[0])).await;
    // One range is allowed.
    readers[1].probe(1).await;
    abort_allocation(&backend.database).await;
    backend.publish(messages(1, [2])).await;
    for reader in &mut readers {
        let status = reader.end().await.expect_err("two ranges are too many");
        assert_eq!(status.code(), Code::ResourceExhausted);
    }
    assert_eq!(boundary(&backend.database).await, before);
    barrier.release().await;
    let position = readers[0].position(&group(1));
    let mut reader = reopened(&backend).await;
    reader.update(&[(group(1), position)], &[]);
    let target = reader.applied().await[0];
    reader.read_to(&group(1), target).await;
    assert_eq!(backend.read(&group(1)).await.len(), 2);
    drop((readers, reader));
    leaks.none(backend).await;
}

#[tokio::test]
async fn st_29_s08_ops_006_losing_the_tailer_ends_streams_and_loses_no_row() {
    let backend = Backend::start().await;
    let leaks = Leaks::watch(&backend).await;
    backend.publish(messages(1, 1..=5)).await;
    let mut reader = Reader::following(&backend, &[(group(1), 0)]).await;
    reader.read_to(&group(1), 5).await;
    // Recovery cannot end while a publisher holds the barrier.
    let barrier = HeldBarrier::new(&backend.database).await;
    assert_eq!(backend.database.kill_sessions(TAILER).await, 1);
    let status = reader.end().await.expect_err("the tailer is lost");
    assert_recovering(&status);
    assert_recovering(&opening(&backend).await.expect_err("still recovering"));
    backend.publish(messages(1, 6..=9)).await;
    assert_eq!(backend.read(&group(1)).await.len(), 9);
    let health = backend
        .health()
        .check(HealthCheckRequest::default())
        .await
        .expect("health answers");
    assert_eq!(health.into_inner().status(), ServingStatus::Serving);
    assert_recovering(&opening(&backend).await.expect_err("still recovering"));
    barrier.release().await;

    let position = reader.position(&group(1));
    drop(reader);
    let mut reader = reopened(&backend).await;
    reader.update(&[(group(1), position)], &[]);
    assert_eq!(reader.applied().await, [9]);
    backend.publish(messages(1, [10])).await;
    reader.read_to(&group(1), 10).await;
    assert_eq!(reader.ids(&group(1)), [6, 7, 8, 9, 10]);
    drop(reader);
    leaks.none(backend).await;
}

#[tokio::test]
async fn s08_arc_082_losing_every_connection_to_the_database_loses_no_row() {
    let backend = Backend::start().await;
    let leaks = Leaks::watch(&backend).await;
    let mut reader = Reader::following(&backend, &[(group(1), 0)]).await;
    backend.publish(messages(1, 1..=5)).await;
    reader.read_to(&group(1), 5).await;
    for pool in [TAILER, "xmtp-backend"] {
        assert!(backend.database.kill_sessions(pool).await > 0);
    }
    let status = reader.end().await.expect_err("the tailer is lost");
    assert_recovering(&status);
    let position = reader.position(&group(1));
    drop(reader);
    let mut reader = reopened(&backend).await;
    // A pooled connection shows that it is dead only when it is used: a client sends again (S15).
    eventually("the publish is accepted", async || {
        backend.try_publish(messages(1, 6..=7)).await.ok()
    })
    .await;
    reader.update(&[(group(1), position)], &[]);
    reader.applied().await;
    reader.read_to(&group(1), 7).await;
    assert_eq!(reader.ids(&group(1)), [6, 7]);
    drop(reader);
    leaks.none(backend).await;
}

#[tokio::test]
async fn st_30_ops_007_a_drain_ends_every_stream_at_once() {
    // What is blocked here stays so, however slow the machine.
    let patient =
        "database.max_statement_timeout_ms = 60000\npublishing.max_publish_duration_ms = 70000";
    let backend = Backend::with(patient).await;
    let leaks = Leaks::watch(&backend).await;
    backend.publish(messages(1, 1..=100)).await;
    let database = backend.database.options();
    let mut idle = Reader::open(&backend).await;
    let mut history = LockedTable::new(&backend.database, "envelopes").await;
    let mut catching_up = Reader::following(&backend, &[(group(1), 0)]).await;
    history.blocks(1).await;
    // A unary request in flight keeps the drain going.
    let mut publisher = backend.publisher();
    let publishing = tokio::spawn(async move {
        let envelopes = messages(2, [1]);
        let request = xmtp_protocol::proto::xmtp::backend::v1::PublishRequest { envelopes };
        publisher.publish(request).await
    });
    history.blocks(2).await;
    let late = SubscriptionServiceClient::new(backend.connect().await);
    let stopping = tokio::spawn(backend.stop());
    for reader in [&mut idle, &mut catching_up] {
        let status = reader.end().await.expect_err("the server drains");
        assert_eq!(status.code(), Code::Unavailable);
    }
    let refused = Reader::try_open_with(late).await.err();
    assert_eq!(refused.map(|status| status.code()), Some(Code::Unavailable));
    assert!(!stopping.is_finished(), "a publish is in flight");
    history.unlock().await;
    publishing
        .await
        .expect("no panic")
        .expect("an admitted publish has its answer");
    let stopped = stopping.await.expect("the server stops");
    assert_eq!(stopped.options().get_database(), database.get_database());
    leaks.none_after_stop(&stopped).await;
}

#[tokio::test]
async fn st_38_arc_001_a_client_moves_to_another_instance() {
    let backend = Backend::start().await;
    let leaks = Leaks::watch(&backend).await;
    let (other, channel) = backend.another("").await;
    backend.publish(messages(1, 1..=3)).await;
    let mut reader = Reader::following(&backend, &[(group(1), 0)]).await;
    reader.read_to(&group(1), 3).await;
    let position = reader.position(&group(1));
    drop(reader);
    backend.publish(messages(1, 4..=6)).await;
    let mut moved = Reader::try_open_with(SubscriptionServiceClient::new(channel))
        .await
        .expect("admitted");
    moved.update(&[(group(1), position)], &[]);
    assert_eq!(moved.applied().await, [6]);
    backend.publish(messages(1, 7..=9)).await;
    moved.read_to(&group(1), 9).await;
    assert_eq!(moved.ids(&group(1)), [4, 5, 6, 7, 8, 9]);
    drop(moved);
    other.stop().await;
    leaks.none(backend).await;
}

#[tokio::test]
async fn s08_arc_070_rows_of_another_instance_come_live() {
    let backend = Backend::start().await;
    let leaks = Leaks::watch(&backend).await;
    let (other, channel) = backend.another("").await;
    let mut reader = Reader::try_open_with(SubscriptionServiceClient::new(channel))
        .await
        .expect("admitted");
    reader.update(&[(group(1), 0)], &[]);
    assert_eq!(reader.applied().await, [0], "a topic that never had a row");
    for number in 1..=5 {
        backend.publish(messages(1, [number])).await;
    }
    reader.read_to(&group(1), 5).await;
    assert_eq!(reader.ids(&group(1)), [1, 2, 3, 4, 5]);
    drop(reader);
    other.stop().await;
    leaks.none(backend).await;
}

fn assert_recovering(status: &Status) {
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(status.message(), "stream recovery in progress");
}

async fn opening(backend: &Backend) -> Result<(), Status> {
    Reader::try_open(backend).await.map(drop)
}

/// Opens a stream once recovery is over.
pub(crate) async fn reopened(backend: &Backend) -> Reader {
    eventually(
        "streams are admitted again",
        async || match Reader::try_open(backend).await {
            Ok(reader) => Some(reader),
            Err(status) => {
                assert_eq!(status.code(), Code::Unavailable);
                None
            }
        },
    )
    .await
}
