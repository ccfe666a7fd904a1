//! How long a request waits for the chains of its contract wallets.

use std::time::Duration;

/// Most time that one request waits for chains, whatever it asks them; past it there is no verdict (API-231). A history
/// can hold hundreds of signatures, each a question of seconds to a slow provider. What has been answered by then may be
/// remembered, so that a client that tries again gets further.
pub(crate) const MAX_CHAIN_WAIT: Duration = Duration::from_mins(1);
