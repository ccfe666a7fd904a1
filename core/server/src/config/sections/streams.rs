use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::scalar::{AtLeastOne, Count, Flag};

/// Live delivery: the tailer, and the liveness of subscriptions.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Streams {
    /// Milliseconds between two polls for new envelopes (ARC-071). Paces the boundary task too.
    pub poll_interval_ms: AtLeastOne<100>,
    /// Whether a publish makes the instance that took it poll at once for the streams that it serves
    /// itself. An addition to the specification: the interval remains what finds every envelope (ARC-071). No gain
    /// where streams are served from a replica.
    pub wake_on_commit: Flag<true>,
    /// Unresolved gap ranges, not single integers, that the tailer keeps before it fails the
    /// streams they concern with `RESOURCE_EXHAUSTED` (ARC-042).
    pub max_gap_ranges: AtLeastOne<10_000>,
    /// Milliseconds without a sent frame after which a stream sends a Ping; published in `Started`
    /// (ARC-081, API-111).
    pub keepalive_interval_ms: Count<30_000>,
    /// Milliseconds that a stream waits for the Pong before it fails (ARC-081). Above
    /// `keepalive_interval_ms`.
    pub max_pong_wait_ms: AtLeastOne<90_000>,
}
