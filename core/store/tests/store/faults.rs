//! What a caller is told when the database ends its work, and how service returns.

use std::time::{Duration, Instant};

use futures::future::join_all;
use xmtp_store::publish::PublishLocks;
use xmtp_store::{ErrorKind, Page, TopicPosition};
use xmtp_test_support::eventually;

use crate::fixture::{
    POOL_APPLICATION, ROWS, Store, at, envelope, failure, group, number, publish, publish_each,
    set_for_new_sessions,
};

/// A bound that runs out in a test.
const SHORT: Duration = Duration::from_millis(300);

#[tokio::test]
async fn arc_051_a_publish_in_the_queue_of_a_topic_ends_with_its_statement_timeout() {
    let store = Store::with(|settings| settings.statement_timeout = SHORT).await;
    let holder = store.another().await.publish().await.unwrap();
    let holder = holder.begin(&PublishLocks::new([&group(1)])).await.unwrap();
    let error = failure(publish(&store.primary, &[envelope(group(1), "late")]).await);
    assert_eq!(error.kind(), ErrorKind::Timeout);
    holder.rollback().await;
    store.at_rest().await;
    publish_each(&store.primary, group(1), ["late"]).await;
}

#[tokio::test]
async fn arc_051_an_idle_transaction_ends_with_its_lifetime() {
    let store = Store::with(|settings| settings.transaction_timeout = SHORT).await;
    let connection = store.primary.publish().await.unwrap();
    let transaction = connection
        .begin(&PublishLocks::new([&group(1)]))
        .await
        .unwrap();
    // The database ends it, without a word of ours.
    store.at_rest().await;
    let error = failure(transaction.commit(&[&envelope(group(1), "late")]).await);
    assert_eq!(error.kind(), ErrorKind::Timeout);
    publish_each(&store.primary, group(1), ["next"]).await;
    assert_eq!(number(&mut store.database.connect().await, ROWS).await, 1);
}

#[tokio::test]
async fn arc_051_a_busy_transaction_ends_with_its_lifetime() {
    let store = Store::with(|settings| settings.transaction_timeout = SHORT).await;
    publish_each(&store.primary, group(1), ["first"]).await;
    // Its insert waits for the watermark, which somebody else holds.
    let mut holder = store.database.connect().await;
    sqlx::raw_sql("BEGIN; UPDATE topic_watermark SET last_sequence_id = last_sequence_id")
        .execute(&mut holder)
        .await
        .unwrap();
    let error = failure(publish(&store.primary, &[envelope(group(1), "late")]).await);
    assert_eq!(error.kind(), ErrorKind::Timeout);
    sqlx::raw_sql("ROLLBACK")
        .execute(&mut holder)
        .await
        .unwrap();
    store.at_rest().await;
    publish_each(&store.primary, group(1), ["late"]).await;
}

#[tokio::test]
async fn a_full_pool_is_a_missing_connection_in_bounded_time() {
    let store = Store::with(|settings| {
        settings.max_connections = 1;
        settings.statement_timeout = SHORT;
    })
    .await;
    let taken = store.primary.publish().await.unwrap();
    let error = failure(store.primary.publish().await);
    assert_eq!(error.kind(), ErrorKind::PoolTimeout);
    let error = failure(store.primary.reads().heads(&[group(1)]).await);
    assert_eq!(error.kind(), ErrorKind::PoolTimeout);
    taken.release();
    store.serves(1).await;
}

#[tokio::test]
async fn an_ended_session_is_a_lost_connection_and_is_not_used_again() {
    let store = Store::create().await;
    let connection = store.primary.publish().await.unwrap();
    let transaction = connection
        .begin(&PublishLocks::new([&group(1)]))
        .await
        .unwrap();
    assert!(store.database.kill_sessions(POOL_APPLICATION).await > 0);
    store.at_rest().await;
    let error = failure(transaction.commit(&[&envelope(group(1), "lost")]).await);
    assert_eq!(error.kind(), ErrorKind::Connection);
    // At most every pooled session was lost, and each shows it once.
    let mut lost = 0;
    while let Err(error) = publish(&store.primary, &[envelope(group(1), "next")]).await {
        assert_eq!(error.kind(), ErrorKind::Connection);
        lost += 1;
        assert!(lost <= 8, "a dead session came back");
    }
}

#[tokio::test]
async fn arc_041_a_tailer_that_lost_its_session_says_so() {
    let store = Store::create().await;
    let mut tail = store.primary.reads().tail().await.unwrap();
    tail.closed().await.unwrap();
    assert_eq!(store.database.kill_sessions("xmtp-backend-tailer").await, 1);
    eventually("the tailer's session is lost", async || {
        let error = tail.poll(at(0), &[], 10, 10).await.err()?;
        assert_eq!(error.kind(), ErrorKind::Connection);
        Some(())
    })
    .await;
}

#[tokio::test]
async fn s15_a_primary_that_turned_read_only_is_no_connection_until_it_is_writable_again() {
    const CONNECTIONS: u32 = 3;
    let store = Store::with(|settings| settings.max_connections = CONNECTIONS).await;
    publish_each(&store.primary, group(1), ["before"]).await;
    set_for_new_sessions(&store.database, "default_transaction_read_only = on").await;
    store.database.kill_sessions(POOL_APPLICATION).await;
    // Sessions of the read-only database fill the pool.
    eventually("the pool has connected again", async || {
        let reads = store.primary.reads();
        let results = join_all((0..CONNECTIONS).map(|_| reads.heads(&[]))).await;
        results.iter().all(Result::is_ok).then_some(())
    })
    .await;
    for n in 0..10 {
        let error = failure(publish(&store.primary, &[envelope(group(1), n.to_string())]).await);
        assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
        let error = failure(store.primary.advance_boundary(SHORT).await);
        assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    }
    // What is stored can still be read.
    store.primary.reads().heads(&[group(1)]).await.unwrap();
    store.serves(CONNECTIONS as usize).await;

    set_for_new_sessions(&store.database, "default_transaction_read_only = off").await;
    // Sessions of the old state were left open: each fails once and is gone.
    for n in 0.. {
        if publish(&store.primary, &[envelope(group(1), "after")])
            .await
            .is_ok()
        {
            break;
        }
        assert!(n < CONNECTIONS, "a read-only session came back");
    }
    assert_eq!(number(&mut store.database.connect().await, ROWS).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s16_a_frozen_publish_delays_nobody_beyond_the_publish_limit() {
    const STATEMENT: Duration = Duration::from_secs(1);
    const LIMIT: Duration = Duration::from_secs(2);
    const MARGIN: Duration = Duration::from_secs(2);
    const CONNECTIONS: u32 = 4;
    let store = Store::with(|settings| {
        settings.max_connections = CONNECTIONS;
        settings.statement_timeout = STATEMENT;
        settings.transaction_timeout = LIMIT;
    })
    .await;
    publish_each(&store.primary, group(2), ["read meanwhile"]).await;
    let frozen = store.primary.publish().await.unwrap();
    let mut frozen = frozen.begin(&PublishLocks::new([&group(1)])).await.unwrap();

    let publishes = (0..24_u8).map(|n| {
        let primary = store.primary.clone();
        // Two of three go to the topic that is held.
        let topic = group(if n % 3 == 0 { 2 } else { 1 });
        async move {
            let start = Instant::now();
            let result = publish(&primary, &[envelope(topic, [n])]).await.map(drop);
            (start.elapsed(), result)
        }
    });
    let queries = (0..12).map(|_| {
        let primary = store.primary.clone();
        async move {
            let start = Instant::now();
            let position = TopicPosition {
                topic: group(2),
                after: at(0),
            };
            let result = primary.query(&[position], 10, usize::MAX).await;
            let result = result.map(|page| assert!(matches!(page, Page::Rows { .. })));
            (start.elapsed(), result)
        }
    });
    let (writes, reads) = tokio::join!(join_all(publishes), join_all(queries));
    for (waited, result) in writes.into_iter().chain(reads) {
        assert!(waited < LIMIT + MARGIN, "a call took {waited:?}");
        if let Err(error) = result {
            let kind = error.kind();
            assert!(
                matches!(kind, ErrorKind::Timeout | ErrorKind::PoolTimeout),
                "{error}"
            );
        }
    }
    // The database ends the frozen one; nothing has to be started again.
    store.at_rest().await;
    assert_eq!(
        failure(frozen.heads(&[group(1)]).await).kind(),
        ErrorKind::Timeout
    );
    drop(frozen);
    publish_each(&store.primary, group(1), ["after"]).await;
    store.serves(CONNECTIONS as usize).await;
}
