//! A runtime whose logs, spans and metrics are a test's own.

use std::fmt::{Debug, Write};
use std::io;
use std::mem;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use metrics_exporter_prometheus::PrometheusRecorder;
use serde_json::Value;
use tokio::runtime::Builder;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, registry};
use xmtp_server::config::sections::{LogFormat, LogLevel};
use xmtp_server::subsystem::Subsystem;
use xmtp_server::telemetry::{Catalogue, Metrics, layers};
use xmtp_test_support::eventually;

/// Everything that a process would tell.
#[derive(Clone)]
pub(crate) struct Watch {
    pub(crate) metrics: Metrics,
    log: Text,
    spans: Text,
}

/// With one subscriber alone, what a place in the code is worth is decided by the thread that first comes by: where that
/// belongs to a test without one, it is silenced for the test that has it.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));

impl Watch {
    /// Runs `test` where the program's own pipeline logs at `level`, in JSON.
    pub(crate) fn run<T: Future<Output = ()>>(level: LogLevel, test: impl FnOnce(Self) -> T) {
        Self::run_with(&[], level, test);
    }

    /// The same, with what subsystems add to telemetry.
    pub(crate) fn run_with<T: Future<Output = ()>>(
        subsystems: &[Box<dyn Subsystem>],
        level: LogLevel,
        test: impl FnOnce(Self) -> T,
    ) {
        LazyLock::force(&SECOND);
        let catalogue = Catalogue::new(subsystems);
        let (metrics, recorder) = Metrics::new(catalogue.clone()).expect("a recorder can be built");
        // Threads keep it as long as they live.
        let recorder: &'static PrometheusRecorder = Box::leak(Box::new(recorder));
        let (log, spans) = (Text::default(), Text::default());
        let dispatch = metrics::with_local_recorder(recorder, || {
            metrics.begin();
            let pipeline = layers(&catalogue, level, LogFormat::Json, false, log.clone());
            Dispatch::new(registry().with(pipeline).with(span_fields(spans.clone())))
        });
        let enter = move || {
            mem::forget(metrics::set_default_local_recorder(recorder));
            mem::forget(tracing::dispatcher::set_default(&dispatch));
        };
        let watch = Self {
            metrics,
            log,
            spans,
        };
        // A thread that ends with the test: what it has entered is never left.
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .on_thread_start(enter.clone())
            .build()
            .expect("a runtime can be built");
        enter();
        runtime.block_on(test(watch));
    }

    /// The log.
    pub(crate) fn log(&self) -> String {
        self.log.get().clone()
    }

    /// Names and fields of every span.
    pub(crate) fn spans(&self) -> String {
        self.spans.get().clone()
    }

    /// The events with this message, without what the log adds to each.
    pub(crate) fn events(&self, message: &str) -> Vec<Value> {
        let log = self.log();
        let events = log
            .lines()
            .map(|line| serde_json::from_str(line).expect("a line is an object"));
        events
            .filter(|event: &Value| event["message"] == message)
            .collect()
    }

    /// The value of a series of whole numbers; `None` where it is not there. Labels are in the order of the catalogue.
    pub(crate) fn value(&self, series: &str) -> Option<u64> {
        let text = self.metrics.render();
        let value = text.lines().find_map(|line| {
            let rest = line.strip_prefix(series)?;
            rest.strip_prefix(' ')
        })?;
        Some(value.parse().expect("a sample is a whole number"))
    }

    /// The sum of a family of whole numbers.
    pub(crate) fn sum(&self, family: &str) -> u64 {
        let text = self.metrics.render();
        let samples = text.lines().filter(|line| {
            let rest = line.strip_prefix(family);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
        });
        samples
            .filter_map(|line| line.rsplit(' ').next())
            .map(|value| value.parse::<u64>().expect("a sample is a whole number"))
            .sum()
    }

    /// Waits until a series has a value.
    pub(crate) async fn until(&self, series: &str, value: u64) {
        eventually(series, async || {
            (self.value(series) == Some(value)).then_some(())
        })
        .await;
    }
}

/// What several threads write.
#[derive(Clone, Default)]
struct Text(Arc<Mutex<String>>);

impl Text {
    fn get(&self) -> MutexGuard<'_, String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.get()
            .push_str(str::from_utf8(bytes).map_err(io::Error::other)?);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Text {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// What an exporter would see of spans: those of the backend at every level, those of libraries as far as
/// they are logged.
fn span_fields<S>(text: Text) -> impl Layer<S> + Send + Sync
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let filter = Targets::new()
        .with_default(LevelFilter::WARN)
        .with_target("xmtp_", LevelFilter::TRACE);
    SpanFields(text).with_filter(filter)
}

struct SpanFields(Text);

impl<S> Layer<S> for SpanFields
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        let mut text = self.0.get();
        text.push_str(attributes.metadata().name());
        attributes.record(&mut Fields(&mut text));
        text.push('\n');
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let mut text = self.0.get();
        text.push_str(context.span(id).expect("it is open").name());
        values.record(&mut Fields(&mut text));
        text.push('\n');
    }
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").expect("a string takes text");
    }
}
