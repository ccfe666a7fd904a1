//! The closed allocation boundary (spec 002, section 3).
//!
//! A missing sequence id proves nothing: its transaction may still commit. What proves that it never
//! will is the barrier: every publisher holds it shared from before its allocation to its end, so that
//! whoever holds it exclusively knows that everything allocated so far is settled.

use std::time::Duration;

use tokio::time::Instant;
use xmtp_protocol::SequenceId;

use crate::pool::Lease;
use crate::publish::GlobalLock;
use crate::record::sequence_id;
use crate::{ErrorKind, Primary, StoreError};

/// How long the barrier is queued for at first. A queued exclusive request makes every later publisher
/// wait behind it, so it queues in slices and lets publishers pass between them. Slices double, so that
/// publishers which always overlap delay the boundary and do not starve it.
const FIRST_SLICE: Duration = Duration::from_millis(20);

/// A lock timeout of zero would be none.
const SHORTEST_SLICE: Duration = Duration::from_millis(1);

/// Outcome of an attempt to advance the boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// The boundary now stands here.
    Closed(SequenceId),
    /// Publishers held the barrier for the whole time given; nothing changed (ARC-040).
    LockTimeout,
}

impl Primary {
    /// Advances the boundary to the greatest allocated sequence id (ARC-039), waiting at most about
    /// `max_wait` for the barrier.
    ///
    /// # Errors
    /// [`StoreError`]; nothing changed, or everything did.
    pub async fn advance_boundary(&self, max_wait: Duration) -> Result<Advance, StoreError> {
        let deadline = Instant::now() + max_wait;
        let mut slice = FIRST_SLICE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.try_advance(slice.min(left).max(SHORTEST_SLICE)).await {
                // A busy pool is no lost database: the boundary only comes later.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::LockTimeout | ErrorKind::PoolTimeout
                    ) =>
                {
                    if Instant::now() + slice >= deadline {
                        return Ok(Advance::LockTimeout);
                    }
                    // Publishers pass for as long as they were held up.
                    tokio::time::sleep(slice).await;
                    slice *= 2;
                }
                Err(error) => return Err(error),
                Ok(closed) => return Ok(Advance::Closed(closed)),
            }
        }
    }

    /// Reads where the boundary stands, which another instance may have advanced. Nobody waits for that.
    ///
    /// # Errors
    /// [`StoreError`] of any kind.
    pub async fn closed_boundary(&self) -> Result<SequenceId, StoreError> {
        let mut lease = self.pool.acquire().await?;
        let answers = lease.answers();
        let read = sqlx::query_scalar!("SELECT closed_sequence_id FROM allocation_boundary")
            .fetch_one(&mut *lease);
        let closed = answers.wait(read).await?;
        lease.release();
        sequence_id(closed)
    }

    async fn try_advance(&self, slice: Duration) -> Result<SequenceId, StoreError> {
        let mut lease = self.pool.acquire().await?;
        let (class, id) = GlobalLock::AllocationBarrier.key();
        let slice = slice.as_millis();
        let begin = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = {slice}; SELECT pg_advisory_xact_lock({class}, {id})"
        );
        if let Err(error) = lease.begin(begin).await {
            if error.kind() == ErrorKind::LockTimeout {
                // An ordinary outcome: keep the connection.
                lease.rollback().await?;
            }
            return Err(error);
        }
        let closed = close(&mut lease).await?;
        lease.commit().await?;
        Ok(closed)
    }
}

/// Moves the boundary up to the sequence, in a statement begun after the barrier was granted.
async fn close(lease: &mut Lease) -> Result<SequenceId, StoreError> {
    let answers = lease.answers();
    let read = sqlx::query!(
        r#"UPDATE allocation_boundary
           SET closed_sequence_id = greatest(
               closed_sequence_id,
               (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM envelope_sequence)
           )
           RETURNING closed_sequence_id,
                     (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM envelope_sequence)
                     AS "allocated!""#
    )
    .fetch_one(&mut **lease);
    let row = answers.wait(read).await?;
    // API-291: the boundary never goes back, so a sequence behind it has been rewound (S38).
    if row.allocated < row.closed_sequence_id {
        return Err(StoreError::invariant(
            "sequence is behind the closed boundary",
        ));
    }
    sequence_id(row.closed_sequence_id)
}
