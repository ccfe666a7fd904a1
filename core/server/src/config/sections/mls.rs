use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::scalar::{Flag, Int};

/// Advice to clients, published and not enforced (CONF-069).
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Mls {
    /// Members that a client admits to a group.
    pub max_group_members: Int<1, 65_535, 250>,
    /// Installations that a client admits to an inbox.
    pub max_installations_per_inbox: Int<1, 65_535, 10>,
    /// Whether clients write and read the commit log.
    pub commit_log_enabled: Flag<true>,
}
