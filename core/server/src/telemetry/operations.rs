//! How long operations take, from the creation of their spans to their close (OPS-017, OPS-019). What is
//! logged, and what is exported, does not matter here (ARC-094).

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use metrics::{Histogram, Key};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::FilterFn;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;
use xmtp_telemetry::ERROR;

use super::catalogue::Catalogue;
use super::families::OPERATION;

/// Records the durations of operations.
struct Durations(HashMap<&'static str, Outcomes>);

/// The series of one operation.
pub(crate) struct Outcomes {
    name: &'static str,
    ok: Histogram,
    /// From the first one on.
    error: OnceLock<Histogram>,
}

impl Outcomes {
    /// Of the operation `name`, in the recorder of this moment.
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            ok: series(name, "ok"),
            error: OnceLock::new(),
        }
    }

    pub(crate) fn record(&self, duration: Duration, failed: bool) {
        if failed {
            let error = self.error.get_or_init(|| series(self.name, "error"));
            error.record(duration);
        } else {
            self.ok.record(duration);
        }
    }
}

fn series(operation: &'static str, status: &'static str) -> Histogram {
    let labels = vec![
        metrics::Label::from_static_parts("operation", operation),
        metrics::Label::from_static_parts("status", status),
    ];
    OPERATION.histogram_of(&Key::from_parts(OPERATION.name(), labels))
}

/// What a span is measured by.
struct Running {
    since: Instant,
    failed: bool,
}

/// Records in the recorder of this moment, for the operations of `catalogue`.
pub(super) fn layer<S>(catalogue: &Catalogue) -> impl Layer<S> + Send + Sync + use<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let names = catalogue.operations().iter().copied();
    let operations: HashMap<&'static str, Outcomes> =
        names.map(|name| (name, Outcomes::new(name))).collect();
    let known: Vec<&'static str> = operations.keys().copied().collect();
    let is_operation =
        move |metadata: &Metadata<'_>| metadata.is_span() && known.contains(&metadata.name());
    // Asked once for each place in the code, not for each span.
    Durations(operations).with_filter(FilterFn::new(is_operation))
}

impl<S> Layer<S> for Durations
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, _: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(Running {
                since: Instant::now(),
                failed: false,
            });
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let mut failure = Failure(false);
        values.record(&mut failure);
        if failure.0
            && let Some(span) = context.span(id)
            && let Some(running) = span.extensions_mut().get_mut::<Running>()
        {
            running.failed = true;
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        if let Some(span) = context.span(&id)
            && let Some(outcomes) = self.0.get(span.name())
            && let Some(running) = span.extensions().get::<Running>()
        {
            outcomes.record(running.since.elapsed(), running.failed);
        }
    }
}

/// Whether an error is among the values.
struct Failure(bool);

impl Visit for Failure {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0 |= value && field.name() == ERROR;
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

#[cfg(test)]
mod tests {
    use tracing::subscriber::with_default;
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::registry;
    use xmtp_telemetry::{observed, operation};

    use super::super::Metrics;
    use super::*;

    /// What is recorded while `work` runs.
    fn recorded(work: impl FnOnce()) -> String {
        let (metrics, recorder) = Metrics::new(Catalogue::new(&[])).unwrap();
        metrics::with_local_recorder(&recorder, || {
            metrics.begin();
            let subscriber = registry().with(layer(&Catalogue::new(&[])));
            with_default(subscriber, work);
        });
        metrics.render()
    }

    fn count(text: &str, operation: &str, status: &str) -> Option<u64> {
        let series = format!(
            "xmtp_operation_duration_seconds_count{{operation=\"{operation}\",status=\"{status}\"}} "
        );
        let count = text.lines().find_map(|line| line.strip_prefix(&series))?;
        Some(count.parse().unwrap())
    }

    #[test]
    fn ops_019_an_operation_is_recorded_by_its_name_with_the_error_that_it_recorded() {
        let text = recorded(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap();
            runtime.block_on(async {
                let succeeds = async { Ok::<_, ()>(()) };
                observed(operation!("publish.locks"), succeeds)
                    .await
                    .unwrap();
                let fails = async { Err::<(), _>(()) };
                observed(operation!("publish.locks"), fails)
                    .await
                    .unwrap_err();
                // A cancellation records no error.
                let never = std::future::pending::<Result<(), ()>>();
                drop(observed(operation!("rpc.query", rows = 1), never));
                let never = std::future::pending::<Result<(), ()>>();
                let observed = observed(operation!("rpc.query"), never);
                tokio::select! {
                    biased;
                    _ = observed => {}
                    () = std::future::ready(()) => {}
                }
            });
        });
        assert_eq!(count(&text, "publish.locks", "ok"), Some(1));
        assert_eq!(count(&text, "publish.locks", "error"), Some(1));
        assert_eq!(count(&text, "rpc.query", "ok"), Some(2));
        assert_eq!(count(&text, "rpc.query", "error"), None);
    }

    #[test]
    fn ops_019_other_spans_are_no_operations() {
        let text = recorded(|| {
            let _other = tracing::error_span!("db.something_else").entered();
            tracing::info!("rpc.query");
        });
        assert!(!text.contains("db.something_else"));
        assert_eq!(count(&text, "rpc.query", "ok"), Some(0));
    }
}
