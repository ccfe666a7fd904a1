//! What waits for the exporter: bounded, and never waited for by those who fill it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Most items of one batch.
pub(crate) const BATCH: usize = 512;

/// Most items that wait. A span takes about a kilobyte.
const CAPACITY: usize = 8192;

/// Spans or log records on their way to the exporter.
pub(crate) struct Queue<T> {
    waiting: Mutex<Waiting<T>>,
    has_batch: Notify,
}

struct Waiting<T> {
    items: VecDeque<T>,
    dropped: u64,
}

/// What the exporter takes at once.
pub(crate) struct Taken<T> {
    /// At most [`BATCH`].
    pub(crate) items: Vec<T>,
    /// Whether some found no room since the last time.
    pub(crate) has_dropped: bool,
}

impl<T> Queue<T> {
    pub(crate) const fn new() -> Self {
        let waiting = Waiting {
            items: VecDeque::new(),
            dropped: 0,
        };
        Self {
            waiting: Mutex::new(waiting),
            has_batch: Notify::const_new(),
        }
    }

    /// Puts `item` at the end; drops it where there is no room. Never blocks for longer than a batch is taken.
    pub(crate) fn push(&self, item: T) {
        let waiting = {
            let mut waiting = self.lock();
            if waiting.items.len() == CAPACITY {
                waiting.dropped += 1;
                return;
            }
            waiting.items.push_back(item);
            waiting.items.len()
        };
        // Once for each batch: waking the exporter costs more than the rest.
        if waiting % BATCH == 0 {
            self.has_batch.notify_one();
        }
    }

    /// Waits until there may be a whole batch.
    pub(crate) async fn batch(&self) {
        self.has_batch.notified().await;
    }

    /// Takes a batch, or what there is of one.
    pub(crate) fn take(&self) -> Taken<T> {
        let mut waiting = self.lock();
        let count = waiting.items.len().min(BATCH);
        Taken {
            items: waiting.items.drain(..count).collect(),
            has_dropped: std::mem::take(&mut waiting.dropped) > 0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ops_015_a_full_queue_drops_what_comes_and_says_so_once() {
        let queue = Queue::new();
        for number in 0..CAPACITY + 3 {
            queue.push(number);
        }
        let taken = queue.take();
        assert_eq!(taken.items, (0..BATCH).collect::<Vec<_>>());
        assert!(taken.has_dropped);
        queue.push(CAPACITY + 3);
        let mut rest = Vec::new();
        loop {
            let taken = queue.take();
            assert!(!taken.has_dropped);
            if taken.items.is_empty() {
                break;
            }
            rest.extend(taken.items);
        }
        let expected: Vec<usize> = (BATCH..CAPACITY).chain([CAPACITY + 3]).collect();
        assert_eq!(rest, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_whole_batch_wakes_who_waits_for_it() {
        let queue = Queue::new();
        for number in 1..BATCH {
            queue.push(number);
        }
        let soon = std::time::Duration::from_secs(1);
        assert!(tokio::time::timeout(soon, queue.batch()).await.is_err());
        queue.push(0);
        queue.batch().await;
    }
}
