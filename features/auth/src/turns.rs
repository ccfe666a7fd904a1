//! Who may verify a signature now. One takes up to some milliseconds of a thread that also serves others, and whoever
//! sends forged tokens chooses how many come at once: so few are verified at a time, and between two of them the thread
//! goes on with what else is ready.

use std::num::NonZeroUsize;
use std::thread::available_parallelism;

use tokio::sync::Semaphore;
use xmtp_server::subsystem::Connection;

/// Signatures that are verified at a time: one for every two processors, and at least one.
#[derive(Debug)]
pub(crate) struct Turns(Semaphore);

impl Default for Turns {
    fn default() -> Self {
        let processors = available_parallelism().map_or(1, NonZeroUsize::get);
        Self(Semaphore::new((processors / 2).max(1)))
    }
}

impl Turns {
    /// Waits for a turn, which lasts until it is dropped: behind earlier requests of the same connection, and behind one
    /// of each other connection.
    pub(crate) async fn take<'a>(&'a self, connection: &'a Connection) -> impl Sized + use<'a> {
        let of_connection = connection.turn().await;
        // Nothing closes it.
        (of_connection, self.0.acquire().await.ok())
    }
}
