//! The boundary-maintenance task: the only writer of the boundary in this instance (ARC-039, ARC-040).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use xmtp_protocol::SequenceId;
use xmtp_store::boundary::Advance;
use xmtp_store::{Primary, StoreError};

use crate::metrics::{self, AdvanceResult};

/// Handle of the boundary task. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Boundary {
    primary: Primary,
    max_wait: Duration,
    signals: Arc<Signals>,
}

#[derive(Default)]
struct Signals {
    /// A request that is not served yet. One bit: asking twice asks once.
    wanted: Notify,
    /// The id that the boundary was last asked to close.
    asked: AtomicI64,
    /// Where the boundary stood on the primary when this instance last knew.
    closed: AtomicI64,
    /// An advance failed for want of a database.
    failed: Notify,
}

/// The task itself.
pub(crate) struct Maintenance {
    boundary: Boundary,
    /// Least time between two advances.
    interval: Duration,
}

impl Boundary {
    pub(crate) fn new(
        primary: Primary,
        max_wait: Duration,
        interval: Duration,
    ) -> (Self, Maintenance) {
        let boundary = Self {
            primary,
            max_wait,
            signals: Arc::default(),
        };
        (boundary.clone(), Maintenance { boundary, interval })
    }

    /// Asks for the boundary to close `id`; never waits. An id that is closed on the primary costs nothing: a
    /// replica has yet to show that, and no further boundary would come sooner (ARC-040).
    pub(crate) fn request(&self, id: i64) {
        self.signals.asked.store(id, Ordering::Relaxed);
        if self.signals.is_behind() {
            self.signals.wanted.notify_one();
        }
    }

    /// Resolves when an advance has failed for want of a database (ARC-082).
    pub(crate) async fn failed(&self) {
        self.signals.failed.notified().await;
    }

    /// Advances now, however long publishers hold the barrier (ARC-041). Failures before that are over.
    pub(crate) async fn establish(&self) -> Result<SequenceId, StoreError> {
        loop {
            if let Advance::Closed(closed) = self.advance().await? {
                let _ = self.signals.failed.notified().now_or_never();
                return Ok(closed);
            }
        }
    }

    /// Closes what was asked for, unless another instance has: one barrier serves them all.
    async fn close(&self) -> Result<Advance, StoreError> {
        // What keeps this from being read keeps the boundary from being advanced, which says so.
        if let Ok(closed) = self.primary.closed_boundary().await {
            self.signals.note(closed);
            if !self.signals.is_behind() {
                return Ok(Advance::Closed(closed));
            }
        }
        self.advance().await
    }

    async fn advance(&self) -> Result<Advance, StoreError> {
        let result = self.primary.advance_boundary(self.max_wait).await;
        if let Ok(Advance::Closed(closed)) = result {
            self.signals.note(closed);
        }
        metrics::boundary_advance(match &result {
            Ok(Advance::Closed(_)) => AdvanceResult::Ok,
            Ok(Advance::LockTimeout) => {
                tracing::warn!(
                    "allocation barrier not granted in time; the boundary advances later"
                );
                AdvanceResult::LockTimeout
            }
            Err(error) => {
                tracing::error!(%error, "allocation boundary cannot be advanced");
                AdvanceResult::Error
            }
        });
        result
    }
}

impl Signals {
    /// Keeps where the boundary stands. Of two answers at once the lower may be kept: that costs another advance, and
    /// closes nothing.
    fn note(&self, closed: SequenceId) {
        self.closed.store(closed.into(), Ordering::Relaxed);
    }

    /// Whether the boundary has yet to close what was asked for.
    fn is_behind(&self) -> bool {
        self.asked.load(Ordering::Relaxed) > self.closed.load(Ordering::Relaxed)
    }
}

impl Maintenance {
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        shutdown.run_until_cancelled(self.serve()).await;
    }

    async fn serve(self) {
        let signals = &self.boundary.signals;
        loop {
            signals.wanted.notified().await;
            // It may have been asked for while the last advance was under way.
            if !signals.is_behind() {
                continue;
            }
            let next = Instant::now() + self.interval;
            match self.boundary.close().await {
                Ok(Advance::Closed(_)) => {}
                Ok(Advance::LockTimeout) => signals.wanted.notify_one(),
                Err(_) => signals.failed.notify_one(),
            }
            sleep_until(next).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::primary;
    use xmtp_test_support::TestDatabase;

    #[tokio::test]
    async fn arc_040_what_another_instance_has_closed_takes_no_barrier() {
        let database = TestDatabase::create().await;
        let primary = primary(&database).await;
        let wait = Duration::from_secs(1);
        let (ours, _maintenance) = Boundary::new(primary.clone(), wait, wait);
        let (theirs, _maintenance) = Boundary::new(primary.clone(), wait, wait);
        let allocate = "SELECT nextval('envelope_sequence')";
        database.execute(allocate).await;
        let closed = theirs.establish().await.unwrap();
        // With the barrier this one would be closed as well.
        database.execute(allocate).await;
        ours.request(closed.into());
        assert_eq!(ours.close().await.unwrap(), Advance::Closed(closed));
        assert_eq!(primary.closed_boundary().await.unwrap(), closed);
        ours.request(i64::from(closed) + 1);
        let Advance::Closed(next) = ours.close().await.unwrap() else {
            panic!("nobody holds the barrier");
        };
        assert_eq!(i64::from(next), i64::from(closed) + 1);
    }

    #[tokio::test]
    async fn arc_041_a_failure_before_recovery_does_not_end_the_generation_after_it() {
        let database = TestDatabase::create().await;
        let wait = Duration::from_secs(1);
        let (boundary, _maintenance) = Boundary::new(primary(&database).await, wait, wait);
        boundary.signals.failed.notify_one();
        boundary.establish().await.unwrap();
        assert!(boundary.failed().now_or_never().is_none());
        boundary.signals.failed.notify_one();
        assert!(boundary.failed().now_or_never().is_some());
    }
}
