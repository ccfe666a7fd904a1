use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::scalar::Int;

/// Any period whose nanoseconds fit 63 bits; 90 days by default.
type Period = Int<1, 9_223_372_036, 7_776_000>;

/// Age, in seconds, at which an envelope may be deleted. Commits, proposals, identity updates and
/// commit-log entries never expire, whatever is set here (API-021, ARC-102).
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Retention {
    /// Seconds that group messages are kept.
    pub group_message_seconds: Period,
    /// Seconds that welcomes are kept.
    pub welcome_seconds: Period,
    /// Seconds that key packages are kept.
    pub key_package_seconds: Period,
}
