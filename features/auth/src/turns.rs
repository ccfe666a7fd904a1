//! Who may verify a signature now. One takes up to a few hundred microseconds of a thread that also serves others, and
//! whoever sends forged tokens chooses how many come at once: so few are verified at a time, and between two of them
//! the thread goes on with what else is ready.

use std::num::NonZeroUsize;
use std::thread::available_parallelism;

use tokio::sync::{Semaphore, SemaphorePermit};

/// Signatures that are verified at a time: one for every two processors, and at least one. The others wait in the order
/// of their requests.
#[derive(Debug)]
pub(crate) struct Turns(Semaphore);

impl Default for Turns {
    fn default() -> Self {
        let processors = available_parallelism().map_or(1, NonZeroUsize::get);
        Self(Semaphore::new((processors / 2).max(1)))
    }
}

impl Turns {
    /// Waits for a turn, which lasts until it is dropped.
    pub(crate) async fn take(&self) -> Option<SemaphorePermit<'_>> {
        // Nothing closes it, so there is one.
        self.0.acquire().await.ok()
    }
}
