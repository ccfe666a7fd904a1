//! What the process tells about itself: logs on standard output, metrics on a port of their own.

mod logging;
mod metrics;

pub use logging::{LoggingError, install_logging};
pub use metrics::{MetricsError, install_recorder};
pub(crate) use metrics::{MetricsListener, upkeep};
