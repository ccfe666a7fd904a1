//! The closed allocation boundary.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection};
use xmtp_store::boundary::Advance;
use xmtp_store::publish::PublishLocks;
use xmtp_store::{ErrorKind, Primary, StartupCheckError};

use crate::fixture::{
    SHARED_BARRIER, Store, at, envelope, failure, group, number, publish, publish_each,
};

const BOUNDARY: &str = "SELECT closed_sequence_id FROM allocation_boundary";

/// Long enough for a barrier that nobody holds, on any machine.
const PATIENT: Duration = Duration::from_secs(10);

async fn closed(primary: &Primary) -> i64 {
    match primary.advance_boundary(PATIENT).await.unwrap() {
        Advance::Closed(id) => id.into(),
        Advance::LockTimeout => panic!("nobody holds the barrier for so long"),
    }
}

/// Begins a publish of the test's own, which holds the barrier and has an id, and does not commit.
async fn open_allocation(connection: &mut PgConnection) -> i64 {
    for statement in ["BEGIN", SHARED_BARRIER] {
        sqlx::raw_sql(statement)
            .execute(&mut *connection)
            .await
            .unwrap();
    }
    number(connection, "SELECT nextval('envelope_sequence')").await
}

#[tokio::test]
async fn arc_040_an_unused_sequence_has_boundary_zero() {
    let store = Store::create().await;
    assert_eq!(closed(&store.primary).await, 0);
    let [first] = publish_each(&store.primary, group(1), ["first"]).await;
    assert_eq!(first, 1);
    assert_eq!(closed(&store.primary).await, 1);
}

#[tokio::test]
async fn arc_038_the_boundary_stays_below_an_open_allocation_until_it_ends() {
    let store = Store::create().await;
    let [before] = publish_each(&store.primary, group(1), ["before"]).await;
    assert_eq!(closed(&store.primary).await, before);
    for ending in ["COMMIT", "ROLLBACK"] {
        let stands = number(&mut store.database.connect().await, BOUNDARY).await;
        let mut publisher = store.database.connect().await;
        let open = open_allocation(&mut publisher).await;
        // Later ids commit meanwhile: a missing one proves nothing.
        let [later] = publish_each(&store.primary, group(2), [ending]).await;
        assert!(open < later);
        let attempt = store
            .primary
            .advance_boundary(Duration::from_millis(100))
            .await;
        assert_eq!(attempt.unwrap(), Advance::LockTimeout);
        let unchanged = number(&mut store.database.connect().await, BOUNDARY).await;
        assert_eq!(unchanged, stands);
        sqlx::raw_sql(ending).execute(&mut publisher).await.unwrap();
        assert_eq!(closed(&store.primary).await, later);
    }
}

#[tokio::test]
async fn arc_038_a_lost_publisher_holds_the_boundary_no_longer() {
    let store = Store::create().await;
    let mut publisher = store.database.connect().await;
    let open = open_allocation(&mut publisher).await;
    publisher.close_hard().await.unwrap();
    assert_eq!(closed(&store.primary).await, open);
}

#[tokio::test]
async fn arc_039_a_publish_that_holds_its_locks_keeps_the_boundary_back() {
    let store = Store::create().await;
    let connection = store.primary.publish().await.unwrap();
    let transaction = connection
        .begin(&PublishLocks::new([&group(1)]))
        .await
        .unwrap();
    let attempt = store
        .primary
        .advance_boundary(Duration::from_millis(100))
        .await;
    assert_eq!(attempt.unwrap(), Advance::LockTimeout);
    let stored = transaction
        .commit(&[&envelope(group(1), "late")])
        .await
        .unwrap();
    assert_eq!(
        store.primary.advance_boundary(PATIENT).await.unwrap(),
        Advance::Closed(stored[0].sequence_id)
    );
}

#[tokio::test]
async fn api_291_a_rewound_sequence_is_a_broken_invariant_and_moves_nothing() {
    let store = Store::create().await;
    publish_each(&store.primary, group(1), ["a", "b", "c"]).await;
    assert_eq!(closed(&store.primary).await, 3);
    for rewound in [
        "setval('envelope_sequence', 2)",
        "setval('envelope_sequence', 1, false)",
    ] {
        store.database.execute(&format!("SELECT {rewound}")).await;
        let error = failure(store.primary.advance_boundary(PATIENT).await);
        assert_eq!(error.kind(), ErrorKind::Invariant);
        let mut witness = store.database.connect().await;
        assert_eq!(number(&mut witness, BOUNDARY).await, 3);
        store.at_rest().await;
    }
    // S38: nothing is stored below an id that was handed out.
    let error = failure(publish(&store.primary, &[envelope(group(1), "d")]).await);
    assert_eq!(error.kind(), ErrorKind::Invariant);
}

#[tokio::test]
async fn s38_a_restored_database_whose_sequence_is_behind_is_refused_at_the_start() {
    let store = Store::create().await;
    publish_each(&store.primary, group(1), ["a", "b", "c"]).await;
    // Behind the rows, and then behind the boundary alone.
    store
        .database
        .execute("SELECT setval('envelope_sequence', 2)")
        .await;
    for behind in [
        "SELECT 1",
        "UPDATE allocation_boundary SET closed_sequence_id = 3; DELETE FROM envelopes",
    ] {
        store.database.execute(behind).await;
        let error = failure(store.another().await.prepare().await);
        assert!(matches!(error, StartupCheckError::SequenceBehind));
        assert!(error.to_string().contains("envelope_sequence"));
    }
    store
        .database
        .execute("SELECT setval('envelope_sequence', 3)")
        .await;
    store.another().await.prepare().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn api_203_what_concurrent_advances_close_stays_as_it_is() {
    const STEPS: usize = 60;
    let store = Store::create().await;
    let done = Arc::new(AtomicBool::new(false));
    let publishers: Vec<_> = (0..4)
        .map(|topic| {
            let (primary, done) = (store.primary.clone(), Arc::clone(&done));
            tokio::spawn(async move {
                for n in 0_u64.. {
                    if done.load(Ordering::SeqCst) {
                        break;
                    }
                    let payload = n.to_be_bytes();
                    publish(&primary, &[envelope(group(topic), payload)])
                        .await
                        .unwrap();
                }
            })
        })
        .collect();
    let advances = (0..2).map(|_| async {
        let primary = store.another().await;
        let mut witness = store.database.connect().await;
        let mut steps = Vec::new();
        for _ in 0..STEPS {
            let boundary = closed(&primary).await;
            steps.push((boundary, stored_through(&mut witness, boundary).await));
        }
        assert!(steps.is_sorted_by_key(|(boundary, _)| *boundary));
        steps
    });
    let steps = futures::future::join_all(advances).await.concat();
    done.store(true, Ordering::SeqCst);
    for publisher in publishers {
        publisher.await.unwrap();
    }
    assert!(steps.last().unwrap().0 > steps[0].0, "the boundary moved");
    let mut witness = store.database.connect().await;
    let steps: HashMap<i64, i64> = steps.into_iter().collect();
    for (boundary, then) in steps {
        assert_eq!(stored_through(&mut witness, boundary).await, then);
    }
}

async fn stored_through(connection: &mut PgConnection, boundary: i64) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM envelopes WHERE sequence_id <= $1")
        .bind(boundary)
        .fetch_one(connection)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arc_042_publishers_pass_a_boundary_attempt_that_waits_for_a_slow_publish() {
    const WAIT: Duration = Duration::from_secs(3);
    let store = Store::create().await;
    let mut slow = store.database.connect().await;
    open_allocation(&mut slow).await;
    let attempt = tokio::spawn({
        let primary = store.primary.clone();
        async move { primary.advance_boundary(WAIT).await.unwrap() }
    });
    let mut longest = Duration::ZERO;
    for n in 0_u64.. {
        if attempt.is_finished() {
            assert!(n > 10, "{n} publishes passed");
            break;
        }
        let start = Instant::now();
        publish(&store.primary, &[envelope(group(1), n.to_be_bytes())])
            .await
            .unwrap();
        longest = longest.max(start.elapsed());
    }
    assert_eq!(attempt.await.unwrap(), Advance::LockTimeout);
    // A slice is 20 ms; one that queued all the time would stop them for 3 s.
    assert!(longest < WAIT / 2, "a publish took {longest:?}");
    sqlx::raw_sql("ROLLBACK").execute(&mut slow).await.unwrap();
}

#[tokio::test]
async fn arc_041_the_tailer_reads_the_boundary_of_its_own_database() {
    let store = Store::create().await;
    let mut tail = store.primary.reads().tail().await.unwrap();
    assert!(tail.closed().await.unwrap() == at(0));
    let [id] = publish_each(&store.primary, group(1), ["a"]).await;
    assert!(tail.closed().await.unwrap() == at(0));
    assert_eq!(closed(&store.primary).await, id);
    assert!(tail.closed().await.unwrap() == at(id));
}

#[tokio::test]
async fn arc_042_publishers_that_always_overlap_delay_the_boundary_and_do_not_starve_it() {
    const HOLD: &str = "SELECT pg_sleep(0.05)";
    let store = Store::create().await;
    publish_each(&store.primary, group(1), ["before"]).await;
    let stop = Arc::new(AtomicBool::new(false));
    // Three of them: whenever one lets go, another holds the barrier.
    let publishers = [(); 3].map(|()| {
        let (options, stop) = (store.database.options(), Arc::clone(&stop));
        tokio::spawn(async move {
            let mut publisher = PgConnection::connect_with(&options).await.unwrap();
            while !stop.load(Ordering::Relaxed) {
                for statement in ["BEGIN", SHARED_BARRIER, HOLD, "COMMIT"] {
                    sqlx::raw_sql(statement)
                        .execute(&mut publisher)
                        .await
                        .unwrap();
                }
            }
        })
    });
    let advance = store.primary.advance_boundary(PATIENT).await.unwrap();
    assert!(matches!(advance, Advance::Closed(_)), "{advance:?}");
    stop.store(true, Ordering::Relaxed);
    for publisher in publishers {
        publisher.await.unwrap();
    }
}
