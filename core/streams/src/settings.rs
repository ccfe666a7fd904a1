//! What an operator decides about streams, and the private constants that nobody does.

use std::num::NonZeroU32;
use std::time::Duration;

/// Most topics of one catch-up turn (ARC-086).
pub(crate) const TURN_TOPICS: usize = 256;
/// Topics of a stream's first turn: a frame's worth of rows that are not small.
pub(crate) const FIRST_TURN_TOPICS: usize = 32;
/// Most rows of one topic in a turn (ARC-086).
pub(crate) const TURN_ROWS: i64 = 64;
/// Target of a delivery frame with its framing, bytes (ARC-079).
pub(crate) const FRAME_BYTES: usize = 2 * 1024 * 1024;
/// Most frames waiting for the transport (ARC-080).
pub(crate) const OUTPUT_FRAMES: usize = 64;
/// Most bytes waiting for the transport (ARC-080); also what the tailer may hand to a session that has
/// not looked yet.
pub(crate) const OUTPUT_BYTES: usize = 16 * 1024 * 1024;
/// Most rows of one tailer poll: enough to drain a burst in few statements, few enough that a page is
/// dispatched before the next is due.
pub(crate) const POLL_ROWS: i64 = 1000;
/// Payload bytes after which a tailer poll stops taking rows: about one frame of a stream that wants them
/// all. A page far smaller than [`OUTPUT_BYTES`] gives the transport its turn between two of them, so that
/// a burst ends only streams whose peer does not read (ARC-073).
pub(crate) const POLL_BYTES: i64 = 2 * 1024 * 1024;

/// Least time between two polls, where commits ask for them: publishes of a busy instance share a poll,
/// and the rest of a poll's cost in time is left to its database.
pub(crate) const WAKE_GAP: Duration = Duration::from_millis(2);

/// Timers and bounds of all streams of an instance.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Wait between tailer polls, from the end of one to the start of the next (ARC-071).
    pub poll_interval: Duration,
    /// Whether [`Streams::committed`](crate::Streams::committed) makes the next poll come earlier.
    pub wake_on_commit: bool,
    /// Most unresolved gap ranges (ARC-042).
    pub max_gap_ranges: usize,
    /// Longest wait of the boundary task for the barrier (ARC-039).
    pub max_barrier_wait: Duration,
    /// Idle time before a Ping or Keepalive, milliseconds, never 0 (API-255).
    pub keepalive_interval_ms: NonZeroU32,
    /// Time for the matching Pong, from the Ping's handoff (API-257).
    pub max_pong_wait: Duration,
    /// Catch-up reads that may run at once.
    pub fetch_permits: NonZeroU32,
    /// Limits that clients are told.
    pub limits: Limits,
}

/// The public limits of streams (API-131).
#[derive(Clone, Debug)]
pub struct Limits {
    /// Encoded bytes of one request; also of the updates waiting in line.
    pub max_request_bytes: usize,
    /// Encoded bytes of one frame.
    pub max_response_bytes: usize,
    /// Topics added by one update.
    pub max_update_adds: usize,
    /// Topics removed by one update.
    pub max_update_removes: usize,
    /// Topics registered on one bidirectional stream.
    pub max_stream_topics: usize,
    /// Topics of a static stream.
    pub max_static_topics: usize,
    /// Token bucket of update frames.
    pub updates: Rate,
    /// Token bucket of client pings.
    pub pings: Rate,
}

/// A token bucket: continuous refill, full at open (API-258).
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Tokens a second.
    pub per_second: NonZeroU32,
    /// Most tokens held.
    pub burst: NonZeroU32,
}

impl Settings {
    /// [`Self::keepalive_interval_ms`] as a duration.
    pub(crate) fn keepalive_interval(&self) -> Duration {
        Duration::from_millis(self.keepalive_interval_ms.get().into())
    }

    /// Most bytes of a data frame, framing included.
    pub(crate) fn frame_bytes(&self) -> usize {
        FRAME_BYTES.min(self.limits.max_response_bytes)
    }
}
