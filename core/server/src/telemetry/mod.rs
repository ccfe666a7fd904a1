//! What the process tells about itself: logs on standard output, metrics and readiness on a port of
//! their own.

pub mod catalogue;
pub(crate) mod families;
mod listener;
mod log_writer;
mod logging;
mod metrics;
pub mod monitoring;
mod observer;
pub(crate) mod operations;
pub mod route;
pub mod trace_context;

pub use catalogue::Catalogue;
pub(crate) use listener::{Telemetry, TelemetryListener};
pub use log_writer::LogWriter;
pub(crate) use logging::STREAM;
pub use logging::{LoggingError, install_logging, layers};
pub use metrics::{Metrics, MetricsError};
pub use observer::{Flush, Observer, Observers, Observing, RequestTracer};
