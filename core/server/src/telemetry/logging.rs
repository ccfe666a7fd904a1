//! Logs, on standard output (ARC-094).

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Layer, fmt};

use crate::config::sections::{LogFormat, LogLevel};

/// Logging was installed before.
#[derive(Debug, thiserror::Error)]
#[error("logging is already installed")]
pub struct LoggingError(#[from] TryInitError);

/// Installs the pipeline of the process. The level filters what is printed, not what is recorded.
///
/// # Errors
/// [`LoggingError`] on a second call.
pub fn install_logging(level: LogLevel, format: LogFormat) -> Result<(), LoggingError> {
    let filter = match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    // Notices of PostgreSQL are not for the operator of this program.
    let filter = Targets::new()
        .with_default(filter)
        .with_target("sqlx::postgres::notice", filter.min(LevelFilter::WARN));
    let layer = fmt::layer()
        .with_ansi(std::io::stdout().is_terminal())
        .with_writer(std::io::stdout);
    let layer = match format {
        LogFormat::Text => layer.boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    Ok(tracing_subscriber::registry()
        .with(layer.with_filter(filter))
        .try_init()?)
}
