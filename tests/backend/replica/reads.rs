//! Which call reads where, and what a lagging answer looks like (OPS-009, OPS-010).

use metrics::set_default_local_recorder;
use metrics_exporter_prometheus::PrometheusBuilder;
use sqlx::Row;
use xmtp_fixtures::inbox_id_of;
use xmtp_fixtures::signers::Signer;
use xmtp_protocol::proto::xmtp::backend::v1::GetInboxIdsRequest;
use xmtp_protocol::proto::xmtp::backend::v1::get_inbox_ids_request::Request as Lookup;
use xmtp_test_support::eventually;
use xmtp_test_support::payloads::{identity_update, owner};

use super::{Pair, newest, shows};
use crate::harness::{Backend, meta_id, sequence_id};
use crate::streams::{Reader, group, messages};

/// The inbox of an owner's account.
async fn inbox(backend: &Backend, number: u8) -> Option<String> {
    let key = owner(number).identifier().key().expect("an account");
    let requests = vec![Lookup {
        identifier: key.text().into(),
        identifier_kind: key.kind() as i32,
    }];
    let mut client = backend.identities();
    let answer = client.get_inbox_ids(GetInboxIdsRequest { requests }).await;
    let mut answer = answer.expect("answered").into_inner();
    answer.responses.remove(0).inbox_id
}

#[tokio::test]
async fn ops_009_ops_010_each_call_reads_where_the_table_says() {
    let (pair, backend) = Pair::serve("").await;
    let first = meta_id(&backend.publish(messages(1, [1])).await[0]);
    backend.publish([identity_update(1, 1)]).await;
    shows(&backend, &group(1), first).await;
    pair.caught_up(&backend.database).await;
    pair.pause().await;

    let second = meta_id(&backend.publish(messages(1, [2])).await[0]);
    // Each is judged by the one before it: a log that lacks one would be refused as moved.
    backend.publish([identity_update(1, 2)]).await;
    backend.publish([identity_update(1, 3)]).await;
    backend.publish([identity_update(2, 1)]).await;
    // A duplicate is found where it was stored.
    let again = backend.publish(messages(1, [2])).await;
    assert_eq!(meta_id(&again[0]), second);
    let rows: Vec<u64> = backend
        .read(&group(1))
        .await
        .iter()
        .map(sequence_id)
        .collect();
    assert_eq!(rows, [first, second], "Query reads its caller's own writes");

    assert_eq!(newest(&backend, &group(1)).await.expect("answered"), first);
    assert_eq!(inbox(&backend, 1).await, Some(inbox_id_of(&owner(1), 0)));
    assert_eq!(inbox(&backend, 2).await, None);
    let mut reader = Reader::open(&backend).await;
    reader.update(&[(group(1), 0)], &[]);
    assert_eq!(reader.applied().await, [first]);
    reader.read_to(&group(1), first).await;
    reader.probe(1).await;
    assert_eq!(reader.ids(&group(1)), [first]);

    // ARC-060, ARC-070: a pool on each, and the tailer on the replica.
    let mut sessions = [
        backend.database.connect().await,
        pair.connect(&backend.database).await,
    ];
    for (session, tailers) in sessions.iter_mut().zip([0, 1]) {
        let row = sqlx::query(
            "SELECT count(*) FILTER (WHERE application_name = 'xmtp-backend') > 0,
                    count(*) FILTER (WHERE application_name = 'xmtp-backend-tailer')
             FROM pg_stat_activity WHERE datname = current_database()",
        );
        let row = row
            .fetch_one(session)
            .await
            .expect("sessions can be counted");
        let found: (bool, i64) = (row.get(0), row.get(1));
        assert_eq!(found, (true, tailers));
    }

    pair.resume().await;
    shows(&backend, &group(1), second).await;
    reader.read_to(&group(1), second).await;
    eventually("the inbox is found", async || inbox(&backend, 2).await).await;
    backend.stop().await;
}

#[tokio::test]
async fn st_37_arc_060_the_target_trails_a_publish_and_the_rows_come_when_replay_goes_on() {
    let (pair, backend) = Pair::serve("").await;
    let seen = backend.publish(messages(1, 1..=3)).await;
    let head = meta_id(&seen[2]);
    shows(&backend, &group(1), head).await;
    pair.pause().await;
    let receipts = backend.publish(messages(1, 4..=6)).await;
    let last = meta_id(&receipts[2]);
    let mut reader = Reader::open(&backend).await;
    // One topic with history and one without, and a cursor that is ahead of all that the replica shows.
    backend.publish(messages(2, [1])).await;
    reader.update(&[(group(1), meta_id(&receipts[0])), (group(2), 0)], &[]);
    assert_eq!(reader.applied().await, [head, 0]);
    assert_eq!(
        backend.read(&group(1)).await.len(),
        6,
        "Query already shows them"
    );
    assert_eq!(backend.read(&group(2)).await.len(), 1);
    reader.probe(1).await;
    assert!(reader.ids(&group(1)).is_empty() && reader.ids(&group(2)).is_empty());

    pair.resume().await;
    reader.read_to(&group(1), last).await;
    // STR-012: what is at or below the cursor is filtered, though it came after the target.
    let owed: Vec<u64> = receipts[1..].iter().map(meta_id).collect();
    assert_eq!(reader.ids(&group(1)), owed);
    let of_two = sequence_id(&backend.read(&group(2)).await[0]);
    reader.read_to(&group(2), of_two).await;
    backend.stop().await;
}

#[tokio::test]
async fn arc_071_a_commit_here_wakes_no_poll_of_a_replica() {
    let recorder: &'static _ = Box::leak(Box::new(PrometheusBuilder::new().build_recorder()));
    let _recording = set_default_local_recorder(recorder);
    let polls = || {
        let text = recorder.handle().render();
        let lines = text
            .lines()
            .filter(|line| line.starts_with("xmtp_tailer_polls_total{"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let (_pair, backend) = Pair::serve("streams.poll_interval_ms = 3600000").await;
    let reader = Reader::following(&backend, &[(group(1), 0)]).await;
    eventually("the one poll is counted", async || {
        (!polls().is_empty()).then_some(())
    })
    .await;
    let before = polls();
    for number in 1..=20 {
        backend.publish(messages(1, [number])).await;
    }
    assert_eq!(polls(), before);
    drop(reader);
    backend.stop().await;
}
