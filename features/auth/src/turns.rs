//! Who may verify a signature now. One takes up to a millisecond of a thread that also serves others, and whoever sends
//! forged tokens chooses how many come at once: so few are verified at a time, in short slices, and between two of them
//! the thread goes on with what else is ready.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::task::yield_now;

/// How long signatures are verified before others have their turn. Several at once wake their connections once.
const SLICE: Duration = Duration::from_micros(100);

/// Verifies as many at a time as there are pairs of processors, and at least one. The others wait in the order of their
/// requests. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Turns {
    queue: Arc<Mutex<Queue>>,
    most: usize,
}

type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Work>,
    /// Tasks that work it off.
    tasks: usize,
}

impl Default for Turns {
    fn default() -> Self {
        let processors = available_parallelism().map_or(1, NonZeroUsize::get);
        Self::new((processors / 2).max(1))
    }
}

impl Turns {
    fn new(most: usize) -> Self {
        Self {
            queue: Arc::default(),
            most,
        }
    }

    /// Does `work` in its turn, unless this is dropped before. `None` if it panics.
    pub(crate) async fn take<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        let work = move || {
            if !sender.is_closed() {
                // Whoever has left since then does not need it.
                let _ = sender.send(work());
            }
        };
        if self.lock().add(Box::new(work), self.most) {
            tokio::spawn(self.clone().work_off());
        }
        receiver.await.ok()
    }

    async fn work_off(self) {
        loop {
            let begun = Instant::now();
            while begun.elapsed() < SLICE {
                let Some(work) = self.lock().next() else {
                    return;
                };
                // Its own request hears of a panic by the sender that is gone.
                let _ = catch_unwind(AssertUnwindSafe(work));
            }
            yield_now().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Whether one more task is needed, of `most`.
    fn add(&mut self, work: Work, most: usize) -> bool {
        self.waiting.push_back(work);
        let needed = self.tasks < most;
        self.tasks += usize::from(needed);
        needed
    }

    /// The next in turn. Without one, the task that asks ends.
    fn next(&mut self) -> Option<Work> {
        let next = self.waiting.pop_front();
        self.tasks -= usize::from(next.is_none());
        next
    }
}

#[cfg(test)]
mod tests {
    use std::hint::spin_loop;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;
    use futures::poll;

    use super::*;

    fn spin(time: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < time {
            spin_loop();
        }
    }

    #[tokio::test]
    async fn auth_010_what_is_ready_goes_on_between_two_turns() {
        let turns = Turns::new(1);
        let done = Arc::new(AtomicUsize::new(0));
        let works = (0..20).map(|_| {
            let done = Arc::clone(&done);
            turns.take(move || {
                spin(SLICE);
                done.fetch_add(1, Ordering::Relaxed);
            })
        });
        let mut works = std::pin::pin!(join_all(works));
        assert!(poll!(&mut works).is_pending());
        for turn in 0..20 {
            let before = done.load(Ordering::Relaxed);
            assert!(before <= turn, "{before} at once");
            yield_now().await;
        }
        assert!(works.await.iter().all(Option::is_some));
        assert_eq!(done.load(Ordering::Relaxed), 20);
        // The task ends, and the next work begins a new one.
        while turns.lock().tasks > 0 {
            yield_now().await;
        }
        assert_eq!(turns.take(|| 7).await, Some(7));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn auth_010_no_more_are_verified_at_a_time_than_have_turns() {
        let turns = Turns::new(2);
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let works = (0..200).map(|_| {
            let (turns, now, most) = (turns.clone(), Arc::clone(&now), Arc::clone(&most));
            tokio::spawn(async move {
                let work = move || {
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    spin(Duration::from_millis(1));
                    now.fetch_sub(1, Ordering::SeqCst);
                };
                turns.take(work).await
            })
        });
        for work in join_all(works).await {
            assert_eq!(work.unwrap(), Some(()));
        }
        assert_eq!(most.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn auth_010_who_leaves_takes_no_turn_and_a_panic_costs_one_only() {
        let turns = Turns::new(1);
        let mut leaving = Box::pin(turns.take(|| panic!("nobody waits for it")));
        assert!(poll!(&mut leaving).is_pending());
        drop(leaving);
        assert_eq!(turns.take(|| 1).await, Some(1));
        let failed: Option<()> = turns.take(|| std::panic::resume_unwind(Box::new(()))).await;
        assert_eq!(failed, None);
        assert_eq!(turns.take(|| 2).await, Some(2));
    }
}
