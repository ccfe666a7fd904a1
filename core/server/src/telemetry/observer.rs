//! What sends telemetry elsewhere: subsystems that watch the process from before its first log line until after its
//! last.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata};
use tracing_subscriber::filter::{FilterExt, FilterFn};
use tracing_subscriber::{Layer, Registry};

use super::Metrics;
use super::families::VERSION;
use super::logging::{OWN_TARGETS, printed};
use super::trace_context::TraceContext;
use crate::config::Config;
use crate::config::sections::LogLevel;
use crate::subsystem::SubsystemError;

/// A part of the logging pipeline.
pub(super) type ObserverLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Extension point: watches the process. Registered while the document is taken apart.
pub trait Observer: Send + Sync {
    /// Begins, when metrics are recorded and before logging is installed. No runtime is there yet.
    ///
    /// # Errors
    /// The server does not start, and says why with this.
    fn observe(self: Box<Self>, context: &mut Observing<'_>) -> Result<(), SubsystemError>;
}

/// Extension point: decides where each request stands in a trace.
pub trait RequestTracer: Send + Sync {
    /// The context of a request itself, which continues that of its caller where there is one: what is logged, what is
    /// exported and what calls on behalf of the request propagate. The next span that this thread opens is the
    /// request's.
    fn begin(&self, caller: Option<TraceContext>) -> TraceContext;
}

/// Extension point: sends what is left when the process ends.
pub trait Flush: Send {
    /// Sends it, blocking for at most `limit`. The runtime of the server is gone.
    fn flush(self: Box<Self>, limit: Duration);
}

/// What a subsystem can do before logging is installed.
pub struct Observing<'a> {
    /// Core's configuration.
    pub config: &'a Config,
    /// The build version.
    pub version: &'static str,
    /// What is recorded.
    pub metrics: &'a Metrics,
    level: LogLevel,
    observers: Observers,
}

impl<'a> Observing<'a> {
    pub(crate) fn new(config: &'a Config, metrics: &'a Metrics, level: LogLevel) -> Self {
        Self {
            config,
            version: VERSION,
            metrics,
            level,
            observers: Observers::default(),
        }
    }

    /// Shows `layer` the backend's own spans at INFO, whatever is logged (ARC-094). Spans of libraries, which tell what
    /// is in requests, it never sees (OPS-014).
    pub fn spans(&mut self, layer: impl Layer<Registry> + Send + Sync) {
        let layer = layer.with_filter(own_spans());
        self.observers.layers.push(layer.boxed());
    }

    /// Shows `layer` the events that are printed, and the spans that they are in.
    pub fn events(&mut self, layer: impl Layer<Registry> + Send + Sync) {
        let layer = layer.with_filter(printed(self.level).or(own_spans()));
        self.observers.layers.push(layer.boxed());
    }

    /// Asks `tracer` about every request. There is one; the last that is given is asked.
    pub fn request_tracer(&mut self, tracer: Arc<dyn RequestTracer>) {
        self.observers.tracer = Some(tracer);
    }

    /// Has `flush` send what is left at the end.
    pub fn at_the_end(&mut self, flush: impl Flush + 'static) {
        self.observers.flushes.push(Box::new(flush));
    }

    pub(crate) fn finish(self) -> Observers {
        self.observers
    }
}

/// The backend's own spans at INFO.
fn own_spans() -> FilterFn {
    let is_own = |metadata: &Metadata<'_>| {
        metadata.is_span()
            && *metadata.level() <= Level::INFO
            && metadata.target().starts_with(OWN_TARGETS)
    };
    FilterFn::new(is_own as fn(&Metadata<'_>) -> bool).with_max_level_hint(LevelFilter::INFO)
}

/// What watches a process.
#[derive(Default)]
pub struct Observers {
    pub(super) layers: Vec<ObserverLayer>,
    pub(crate) tracer: Option<Arc<dyn RequestTracer>>,
    flushes: Vec<Box<dyn Flush>>,
}

impl Observers {
    /// Their part of the logging pipeline, below all others; `None` where nobody watches.
    #[must_use]
    pub fn layer(&mut self) -> Option<impl Layer<Registry> + Send + Sync + use<>> {
        let layers = std::mem::take(&mut self.layers);
        (!layers.is_empty()).then_some(layers)
    }

    /// Has them send what is left, in `limit` altogether.
    pub fn flush(self, limit: Duration) {
        let until = Instant::now() + limit;
        for flush in self.flushes {
            flush.flush(until.saturating_duration_since(Instant::now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tracing::span::{Attributes, Id};
    use tracing::{Subscriber, debug_span, error_span, info, info_span};
    use tracing_subscriber::layer::{Context, SubscriberExt};
    use tracing_subscriber::registry;

    use super::*;

    /// The names of the spans that it sees.
    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<&'static str>>>);

    impl<S: Subscriber> Layer<S> for Seen {
        fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
            self.0.lock().unwrap().push(attributes.metadata().name());
        }

        fn on_event(&self, _: &tracing::Event<'_>, _: Context<'_, S>) {
            self.0.lock().unwrap().push("an event");
        }
    }

    #[test]
    fn ops_014_spans_of_libraries_are_shown_to_nobody() {
        let seen = Seen::default();
        let subscriber = registry().with(seen.clone().with_filter(own_spans()));
        tracing::subscriber::with_default(subscriber, || {
            drop(info_span!(target: "h2::proto", "of h2"));
            drop(error_span!(target: "hyper::proto", "of hyper"));
            drop(info_span!(target: "tonic::server", "of tonic"));
            drop(debug_span!(target: "xmtp_server", "below"));
            info!(target: "xmtp_server", "an event");
            drop(info_span!(target: "xmtp_server::publish", "own"));
        });
        assert_eq!(*seen.0.lock().unwrap(), ["own"]);
    }
}
