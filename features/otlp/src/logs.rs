//! Log lines on their way to the collector: what is printed, with the trace that it belongs to (ARC-094).

use std::cell::Cell;
use std::sync::Arc;

use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, SeverityNumber};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::attributes::{EachField, attribute, now_ns, text};
use crate::queue::Queue;
use crate::spans::{SAMPLED, Standing};

thread_local! {
    /// Whether this thread exports. What it and its libraries log of failed exports would be exported, and fail, without
    /// an end.
    static EXPORTS: Cell<bool> = const { Cell::new(false) };
}

/// Nothing that this thread logs is exported from now on.
pub(crate) fn silence_this_thread() {
    EXPORTS.set(true);
}

/// Queues log lines.
pub(crate) struct Logs {
    pub(crate) queue: Arc<Queue<LogRecord>>,
}

impl<S> Layer<S> for Logs
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if EXPORTS.get() {
            return;
        }
        let metadata = event.metadata();
        let now = now_ns();
        let mut record = LogRecord {
            time_unix_nano: now,
            observed_time_unix_nano: now,
            severity_number: severity(*metadata.level()).into(),
            severity_text: metadata.level().as_str().to_owned(),
            attributes: Vec::with_capacity(metadata.fields().len()),
            ..LogRecord::default()
        };
        record.attributes.push(text("target", metadata.target()));
        event.record(&mut EachField(|name, value| put(&mut record, name, value)));
        let mut scope = context.event_scope(event).into_iter().flatten();
        scope.find_map(|span| {
            let extensions = span.extensions();
            let standing = extensions.get::<Standing>()?;
            record.trace_id = standing.trace_id.to_be_bytes().into();
            record.span_id = standing.span_id.to_be_bytes().into();
            record.flags = if standing.is_sampled() { SAMPLED } else { 0 };
            Some(())
        });
        self.queue.push(record);
    }
}

const fn severity(level: Level) -> SeverityNumber {
    match level {
        Level::TRACE => SeverityNumber::Trace,
        Level::DEBUG => SeverityNumber::Debug,
        Level::INFO => SeverityNumber::Info,
        Level::WARN => SeverityNumber::Warn,
        Level::ERROR => SeverityNumber::Error,
    }
}

/// Puts a field where the protocol has it.
fn put(record: &mut LogRecord, name: &'static str, value: Value) {
    match (name, value) {
        ("message", value) => record.body = Some(AnyValue { value: Some(value) }),
        // Of a line that is logged outside of its request's span.
        ("trace_id", Value::StringValue(id)) => {
            if let Ok(id) = u128::from_str_radix(&id, 16) {
                record.trace_id = id.to_be_bytes().into();
            }
        }
        (name, value) => record.attributes.push(attribute(name, value)),
    }
}
