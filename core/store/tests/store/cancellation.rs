//! Futures dropped wherever they wait (ARC-051).

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use sqlx::ConnectOptions;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use xmtp_store::publish::PublishLocks;
use xmtp_store::{CatchUpRange, NewEnvelope, Page, Settings, TopicPosition};
use xmtp_test_support::TestDatabase;

use crate::fixture::{
    ROWS, Store, at, envelope, failure, group, inbox, number, publish, publish_each, settings,
};

const CONNECTIONS: u32 = 3;

/// Of a publish that is not a duplicate, on a connection that is there.
const ROUND_TRIPS: usize = 5;

/// A store with a relay of this test's own runtime before its database. That runtime has one thread, so
/// that nothing is answered within a poll, and every round trip is an await point.
async fn relayed(connections: u32) -> Store {
    let database = TestDatabase::create().await;
    let server = (
        database.options().get_host().to_owned(),
        database.options().get_port(),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let server = server.clone();
            tokio::spawn(async move {
                let mut server = TcpStream::connect(server).await.unwrap();
                // Either of them may be gone: that is what these tests are about.
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    let through = database.options().host("127.0.0.1").port(port);
    let settings = Settings {
        url: String::from(through.to_url_lossy()).into(),
        max_connections: connections,
        ..settings(&database)
    };
    Store::on(database, settings).await
}

/// When a future is dropped after its last poll.
#[derive(Clone, Copy)]
enum Drop {
    /// Before anything else happens: what it asked for is on its way.
    AtOnce,
    /// When it would be polled again: what it asked for has arrived, and nobody takes it.
    AtWake,
}

/// Polls a future so often and drops it; `None` when it was not ready by then.
struct Cut<F> {
    future: Option<Pin<Box<F>>>,
    polls: usize,
    drop: Drop,
}

impl<F: Future> Cut<F> {
    fn after(polls: usize, drop: Drop, future: F) -> Self {
        Self {
            future: Some(Box::pin(future)),
            polls,
            drop,
        }
    }
}

impl<F: Future> Future for Cut<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls > 0 {
            self.polls -= 1;
            let future = self.future.as_mut().expect("not polled after it was ready");
            if let Poll::Ready(output) = future.poll_unpin(context) {
                return Poll::Ready(Some(output));
            }
            if self.polls > 0 || matches!(self.drop, Drop::AtWake) {
                return Poll::Pending;
            }
        }
        self.future = None;
        Poll::Ready(None)
    }
}

/// Drops what `attempt` makes at every await point, and looks `after` each time. Answers what the first
/// that was not dropped came to, and in how many polls.
async fn drop_everywhere<T>(
    drop: Drop,
    mut attempt: impl AsyncFnMut(usize) -> T,
    mut after: impl AsyncFnMut(usize),
) -> (T, usize) {
    let mut polls = 0;
    loop {
        let output = Cut::after(polls, drop, attempt(polls)).await;
        after(polls).await;
        if let Some(output) = output {
            return (output, polls);
        }
        polls += 1;
    }
}

async fn drop_publishes(drop: Drop) {
    let store = relayed(CONNECTIONS).await;
    let pair = |n: usize| -> [NewEnvelope; 2] {
        [inbox(1), group(1)].map(|topic| envelope(topic, format!("{n} of {:?}", topic.kind())))
    };
    let (stored, polls) = drop_everywhere(
        drop,
        async |n| publish(&store.primary, &pair(n)).await.unwrap(),
        async |n| {
            store.at_rest().await;
            store.serves(CONNECTIONS as usize).await;
            // The whole publish or nothing of it; and the next one finds its locks free.
            let rows = number(&mut store.database.connect().await, ROWS).await;
            assert_eq!(rows % 2, 0, "dropped after {n} polls");
            publish(&store.primary, &pair(n)).await.unwrap();
        },
    )
    .await;
    assert_eq!(stored.len(), 2);
    assert!(polls >= ROUND_TRIPS, "{polls} polls only");
}

#[tokio::test]
async fn arc_051_a_publish_dropped_before_an_answer_leaves_no_lock_and_no_transaction() {
    drop_publishes(Drop::AtOnce).await;
}

#[tokio::test]
async fn arc_051_a_publish_dropped_with_an_answer_unread_leaves_no_lock_and_no_transaction() {
    drop_publishes(Drop::AtWake).await;
}

#[tokio::test]
async fn arc_051_a_publish_dropped_in_the_queue_of_a_topic_leaves_that_queue() {
    let store = relayed(CONNECTIONS).await;
    let other = store.another().await;
    let holder = other.publish().await.unwrap();
    let holder = holder.begin(&PublishLocks::new([&group(1)])).await.unwrap();
    for n in 0..CONNECTIONS {
        let queued = tokio::spawn({
            let primary = store.primary.clone();
            async move { publish(&primary, &[envelope(group(1), n.to_string())]).await }
        });
        store.until_waiting(1).await;
        queued.abort();
        assert!(failure(queued.await).is_cancelled());
        // Long before the holder ends, or any bound of the database runs out.
        store.until_waiting(0).await;
        store.serves(CONNECTIONS as usize).await;
    }
    holder.rollback().await;
    store.at_rest().await;
    assert_eq!(number(&mut store.database.connect().await, ROWS).await, 0);
}

#[tokio::test]
async fn arc_051_a_boundary_attempt_dropped_anywhere_leaves_no_lock() {
    for drop in [Drop::AtOnce, Drop::AtWake] {
        let store = relayed(CONNECTIONS).await;
        drop_everywhere(
            drop,
            async |_| {
                store
                    .primary
                    .advance_boundary(Duration::ZERO)
                    .await
                    .unwrap()
            },
            async |n| {
                store.at_rest().await;
                store.serves(CONNECTIONS as usize).await;
                publish_each(&store.primary, group(1), [&n.to_string()]).await;
            },
        )
        .await;
    }
}

#[tokio::test]
async fn reads_dropped_anywhere_leave_a_pool_that_answers_the_next_one() {
    for drop in [Drop::AtOnce, Drop::AtWake] {
        // One connection: what the dropped read left unread would come to the next.
        let store = relayed(1).await;
        let reads = store.primary.reads();
        let large = "x".repeat(100_000);
        let [one] = publish_each(&store.primary, group(1), [&large]).await;
        let [two] = publish_each(&store.primary, group(2), ["two"]).await;
        let position = TopicPosition {
            topic: group(1),
            after: at(0),
        };
        let range = CatchUpRange {
            topic: group(1),
            after: at(0),
            through: at(two),
        };
        let check = async |_| {
            let heads = reads.heads(&[group(2), group(1)]).await.unwrap();
            assert!(heads == [at(two), at(one)]);
        };
        let (page, _) = drop_everywhere(
            drop,
            async |_| {
                store
                    .primary
                    .query(&[position], 10, usize::MAX)
                    .await
                    .unwrap()
            },
            check,
        )
        .await;
        assert!(matches!(page, Page::Rows { envelopes, .. } if envelopes.len() == 1));
        let (caught, _) = drop_everywhere(
            drop,
            async |_| reads.catch_up(&[range], 10, 1_000_000, 0).await.unwrap(),
            check,
        )
        .await;
        assert_eq!(caught.rows.len(), 1);
        let (newest, _) = drop_everywhere(
            drop,
            async |_| {
                reads
                    .newest_envelopes(&[group(1)], usize::MAX)
                    .await
                    .unwrap()
            },
            check,
        )
        .await;
        assert_eq!(newest.unwrap().len(), 1);
    }
}
