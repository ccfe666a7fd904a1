//! What a poll of the tailer sees.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::Connection;
use xmtp_store::{GapRange, Tail, TailPage};

use crate::fixture::{SHARED_BARRIER, Store, at, envelope, group, number, publish, publish_each};

const NO_BOUND: i64 = i64::MAX;

/// The ids of a page, with whether they came from a gap.
fn ids(page: &TailPage) -> Vec<(i64, bool)> {
    page.rows
        .iter()
        .map(|row| (row.envelope.metadata.sequence_id.into(), row.from_gap))
        .collect()
}

/// A row with an id of the test's choice, as a publish that committed late would have left it.
fn row(id: i64) -> String {
    format!(
        r"INSERT INTO envelopes (sequence_id, topic, server_ns, message_hash, is_commit_or_proposal,
                                 push_eligible, payload)
          VALUES ({id}, '\x00'::bytea || decode(repeat('01', 16), 'hex'), 1, sha256(int8send({id})),
                  false, false, repeat('x', 100)::bytea)"
    )
}

async fn with_rows(ids: impl IntoIterator<Item = i64>) -> (Store, Tail) {
    let store = Store::create().await;
    let rows: Vec<String> = ids.into_iter().map(row).collect();
    store.database.execute(&rows.join(";")).await;
    let tail = store.primary.reads().tail().await.unwrap();
    (store, tail)
}

async fn poll(tail: &mut Tail, after: i64, gaps: &[GapRange], rows: i64, bytes: i64) -> TailPage {
    tail.poll(at(after), gaps, rows, bytes).await.unwrap()
}

#[tokio::test]
async fn arc_037_gap_and_forward_rows_come_in_one_order_and_each_once() {
    let (_store, mut tail) = with_rows([2, 4, 5, 7, 9, 10, 12]).await;
    // 5 and 10 were delivered before; 3 and 8 are not there.
    let page = poll(&mut tail, 10, &[7..=9, 2..=4], 100, NO_BOUND).await;
    let expected = [(2, true), (4, true), (7, true), (9, true), (12, false)];
    assert_eq!(ids(&page), expected);
    assert!(!page.cut);
    assert!(page.closed == at(0));
}

#[tokio::test]
async fn arc_037_an_empty_poll_still_reads_the_boundary() {
    let (store, mut tail) = with_rows([]).await;
    let page = poll(&mut tail, 0, &[], 100, NO_BOUND).await;
    assert!(page.rows.is_empty() && !page.cut && page.closed == at(0));
    store
        .database
        .execute("UPDATE allocation_boundary SET closed_sequence_id = 5")
        .await;
    let page = poll(&mut tail, 5, &[1..=4], 100, NO_BOUND).await;
    assert!(page.rows.is_empty() && !page.cut && page.closed == at(5));
}

#[tokio::test]
async fn arc_037_a_row_bound_leaves_a_prefix() {
    let (_store, mut tail) = with_rows(1..=9).await;
    for rows in 1..=8 {
        let page = poll(&mut tail, 5, &[2..=2, 4..=4], rows, NO_BOUND).await;
        let all = [
            (2, true),
            (4, true),
            (6, false),
            (7, false),
            (8, false),
            (9, false),
        ];
        let expected = &all[..usize::try_from(rows).unwrap().min(all.len())];
        assert_eq!(ids(&page), expected, "{rows} rows");
        if rows < 6 {
            assert!(page.cut, "{rows} rows");
        }
        if rows > 6 {
            assert!(!page.cut, "{rows} rows");
        }
    }
}

#[tokio::test]
async fn arc_037_a_byte_bound_leaves_a_prefix_that_is_never_empty() {
    let (_store, mut tail) = with_rows(1..=6).await;
    // A row of 100 bytes goes while those before it are below the bound.
    for (bytes, rows) in [(1, 1), (100, 1), (101, 2), (300, 3), (301, 4)] {
        let page = poll(&mut tail, 3, &[2..=2], 100, bytes).await;
        let all = [(2, true), (4, false), (5, false), (6, false)];
        assert_eq!(ids(&page), all[..rows], "{bytes} bytes");
        assert_eq!(page.cut, rows < 4, "{bytes} bytes");
    }
}

#[tokio::test]
async fn arc_112_a_late_commit_is_found_in_its_gap() {
    let store = Store::create().await;
    let mut tail = store.primary.reads().tail().await.unwrap();
    publish_each(&store.primary, group(1), ["before"]).await;
    let mut late = store.database.connect().await;
    let mut late = late.begin().await.unwrap();
    sqlx::raw_sql(SHARED_BARRIER)
        .execute(&mut *late)
        .await
        .unwrap();
    let open = number(&mut late, "SELECT nextval('envelope_sequence')").await;
    assert_eq!(open, 2);
    let insert = row(open);
    sqlx::raw_sql(sqlx::AssertSqlSafe(insert))
        .execute(&mut *late)
        .await
        .unwrap();
    publish_each(&store.primary, group(2), ["after"]).await;

    let page = poll(&mut tail, 0, &[], 100, NO_BOUND).await;
    assert_eq!(ids(&page), [(1, false), (3, false)]);
    let page = poll(&mut tail, 3, &[2..=2], 100, NO_BOUND).await;
    assert!(page.rows.is_empty());

    late.commit().await.unwrap();
    publish_each(&store.primary, group(2), ["newest"]).await;
    let page = poll(&mut tail, 3, &[2..=2], 100, NO_BOUND).await;
    assert_eq!(ids(&page), [(2, true), (4, false)]);
    let page = poll(&mut tail, 4, &[], 100, NO_BOUND).await;
    assert!(page.rows.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arc_112_gaps_and_forward_rows_are_of_one_snapshot() {
    const STEPS: i64 = 150;
    let (store, mut tail) = with_rows([]).await;
    let mut writer = store.database.connect().await;
    let done = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn({
        let done = Arc::clone(&done);
        async move {
            for step in 1..=STEPS {
                // In one transaction, a row in the gap and one beyond the forward position.
                let both = format!("{};{}", row(step), row(1000 + step));
                sqlx::raw_sql(sqlx::AssertSqlSafe(both))
                    .execute(&mut writer)
                    .await
                    .unwrap();
            }
            done.store(true, Ordering::SeqCst);
        }
    });
    loop {
        let last = done.load(Ordering::SeqCst);
        let page = poll(&mut tail, 1000, &[1..=1000], 10_000, NO_BOUND).await;
        let (gap, forward): (Vec<_>, Vec<_>) = ids(&page).into_iter().partition(|(_, gap)| *gap);
        assert_eq!(
            gap.len(),
            forward.len(),
            "both rows of a transaction, or neither"
        );
        if last {
            assert_eq!(i64::try_from(gap.len()).unwrap(), STEPS);
            break;
        }
    }
    writing.await.unwrap();
}

#[tokio::test]
async fn arc_037_a_row_is_what_its_receipt_said() {
    let store = Store::create().await;
    let mut tail = store.primary.reads().tail().await.unwrap();
    let mut sent = envelope(group(1), "payload");
    sent.retention_seconds = Some(60);
    let stored = publish(&store.primary, std::slice::from_ref(&sent))
        .await
        .unwrap();
    let page = poll(&mut tail, 0, &[], 100, NO_BOUND).await;
    assert!(page.rows[0].envelope.metadata == stored[0]);
    assert_eq!(page.rows[0].envelope.payload, sent.payload);
}
