//! Futures dropped wherever they wait (ARC-051).

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use xmtp_store::publish::PublishLocks;
use xmtp_store::{CatchUpRange, NewEnvelope, Page, TopicPosition};

use crate::fixture::{
    ROWS, Store, at, envelope, failure, group, inbox, number, publish, publish_each,
};

const CONNECTIONS: u32 = 3;

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

/// Drops what `attempt` makes at every await point, and looks `after` each time.
async fn drop_everywhere<T>(
    drop: Drop,
    mut attempt: impl AsyncFnMut(usize) -> T,
    mut after: impl AsyncFnMut(usize),
) -> T {
    let mut polls = 0;
    loop {
        let output = Cut::after(polls, drop, attempt(polls)).await;
        after(polls).await;
        if let Some(output) = output {
            // Otherwise nothing was dropped on the way.
            assert!(polls > 3, "{polls} polls only");
            return output;
        }
        polls += 1;
    }
}

async fn drop_publishes(drop: Drop) {
    let store = Store::with(|settings| settings.max_connections = CONNECTIONS).await;
    let pair = |n: usize| -> [NewEnvelope; 2] {
        [inbox(1), group(1)].map(|topic| envelope(topic, format!("{n} of {:?}", topic.kind())))
    };
    let stored = drop_everywhere(
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
    let store = Store::with(|settings| settings.max_connections = CONNECTIONS).await;
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
    holder.rollback().await.unwrap();
    store.at_rest().await;
    assert_eq!(number(&mut store.database.connect().await, ROWS).await, 0);
}

#[tokio::test]
async fn arc_051_a_boundary_attempt_dropped_anywhere_leaves_no_lock() {
    for drop in [Drop::AtOnce, Drop::AtWake] {
        let store = Store::with(|settings| settings.max_connections = CONNECTIONS).await;
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
        let store = Store::with(|settings| settings.max_connections = 1).await;
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
        let page = drop_everywhere(
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
        let caught = drop_everywhere(
            drop,
            async |_| reads.catch_up(&[range], 10, 1_000_000, 0).await.unwrap(),
            check,
        )
        .await;
        assert_eq!(caught.rows.len(), 1);
        let newest = drop_everywhere(
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
