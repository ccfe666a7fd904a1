use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::scalar::Int;

/// Time bounds of a publish and of the allocation barrier.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Publishing {
    /// Milliseconds of one publish from its first lock to its commit: as long as it can hold topic
    /// locks and the shared allocation barrier (ARC-051). Above
    /// `database.max_statement_timeout_ms`, so that a slow statement fails by its own bound first.
    pub max_publish_duration_ms: Int<1, 2_147_483_647, 10_000>,
    /// Milliseconds that the boundary task waits for the exclusive allocation barrier before it
    /// tries again later (ARC-039, ARC-042).
    pub max_barrier_wait_ms: Int<1, 2_147_483_647, 1000>,
}
