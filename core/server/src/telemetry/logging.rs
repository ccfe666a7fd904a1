//! Logs, on standard output (ARC-094).

use std::fmt;
use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
use tracing::span::Record;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::filter::{FilterExt, FilterFn, Targets};
use tracing_subscriber::fmt::format::{DefaultFields, JsonFields, Writer};
use tracing_subscriber::fmt::{FormatFields, FormattedFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use super::log_writer::{self, LogWriter};
use super::{Catalogue, Observers, operations};
use crate::config::sections::{LogFormat, LogLevel};

/// Name of the span of a stream. It is there for who exports it: printing does not use it, as there are thousands of
/// streams for days, so what is logged of one names its request itself.
pub(crate) const STREAM: &str = "stream";

/// Logging was installed before.
#[derive(Debug, thiserror::Error)]
#[error("logging is already installed")]
pub struct LoggingError(#[from] TryInitError);

/// What the targets of the backend's own crates begin with.
pub(super) const OWN_TARGETS: &str = "xmtp_";

/// Installs the pipeline of the process, with what `observers` see of it. The level filters what is printed, not what
/// is recorded. What is logged is written while the value lives.
///
/// # Errors
/// [`LoggingError`] on a second call.
pub fn install_logging(
    catalogue: &Catalogue,
    level: LogLevel,
    format: LogFormat,
    observers: &mut Observers,
) -> Result<LogWriter, LoggingError> {
    let colours = std::io::stdout().is_terminal();
    let (lines, writer) = log_writer::to_standard_output();
    let registry = tracing_subscriber::registry();
    // An absent layer is not left out: it would have every span of a stream kept, though nobody wants it.
    match observers.layer() {
        None => registry
            .with(layers(catalogue, level, format, colours, lines))
            .try_init()?,
        Some(observing) => registry
            .with(observing)
            .with(layers(catalogue, level, format, colours, lines))
            .try_init()?,
    }
    Ok(writer)
}

/// The pipeline: what is written to `writer`, and the durations of operations, which go to the metrics
/// recorder of this moment whatever the level is.
pub fn layers<S, W>(
    catalogue: &Catalogue,
    level: LogLevel,
    format: LogFormat,
    colours: bool,
    writer: W,
) -> impl Layer<S> + Send + Sync + use<S, W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer()
        .with_ansi(colours)
        .with_writer(writer);
    let layer = match format {
        LogFormat::Text => layer.fmt_fields(AtCreation(DefaultFields::new())).boxed(),
        LogFormat::Json => layer
            .json()
            .flatten_event(true)
            .fmt_fields(AtCreation(JsonFields::new()))
            .boxed(),
    };
    // The context of a line is its request; formatting every operation would cost more than the line.
    let operations = catalogue.operations().to_vec();
    let is_context = move |metadata: &Metadata<'_>| {
        metadata.is_event() || (metadata.name() != STREAM && !operations.contains(&metadata.name()))
    };
    layer
        .with_filter(printed(level).and(FilterFn::new(is_context)))
        .and_then(operations::layer(catalogue))
}

/// Prints the fields that a span is created with. Those that it records later tell how it ended, when no
/// line is to come; printed in JSON, they would have all the others parsed and written again.
struct AtCreation<F>(F);

impl<'writer, F: FormatFields<'writer>> FormatFields<'writer> for AtCreation<F> {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        self.0.format_fields(writer, fields)
    }

    fn add_fields(&self, _: &'writer mut FormattedFields<Self>, _: &Record<'_>) -> fmt::Result {
        Ok(())
    }
}

/// What is printed at `level`. Of libraries, warnings at most: below that, those that read requests tell
/// what is in them (OPS-014).
pub(super) fn printed(level: LogLevel) -> Targets {
    let filter = match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    Targets::new()
        .with_default(filter.min(LevelFilter::WARN))
        .with_target(OWN_TARGETS, filter)
}
