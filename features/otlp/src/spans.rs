//! Spans on their way to the collector: a layer of the logging pipeline, and what decides about the trace of each
//! request (ARC-099, OPS-012, OPS-019).
//!
//! A span of a trace that is not recorded costs one look at its parent, and stores nothing.

use std::cell::Cell;
use std::sync::Arc;

use http::HeaderValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, SpanFlags, Status};
use tracing::Subscriber;
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;
use xmtp_server::telemetry::RequestTracer;
use xmtp_server::telemetry::trace_context::{TraceContext, TraceId};

use crate::attributes::{EachField, attribute, now_ns};
use crate::queue::Queue;
use crate::sampler::Sampler;

/// Flag of W3C Trace Context.
pub(crate) const SAMPLED: u32 = 1;

/// Most bytes of `tracestate` that a span takes along; a caller that says more is not quoted.
const MAX_STATE_BYTES: usize = 512;

thread_local! {
    /// The context of the request whose span is opened next.
    static BEGUN: Cell<Option<Begun>> = const { Cell::new(None) };
}

/// A request without a span yet.
struct Begun {
    trace_id: u128,
    span_id: u64,
    /// The caller's span.
    parent_id: Option<u64>,
    is_sampled: bool,
    state: String,
}

/// Where an open span stands.
pub(crate) struct Standing {
    pub(crate) trace_id: u128,
    pub(crate) span_id: u64,
    /// What will be exported; `None` for a request whose trace is not recorded. Other spans of such a trace have no
    /// standing at all.
    span: Option<Box<Span>>,
}

impl Standing {
    pub(crate) const fn is_sampled(&self) -> bool {
        self.span.is_some()
    }
}

/// Gives each request its place in a trace.
pub(crate) struct Tracer(pub(crate) Sampler);

impl RequestTracer for Tracer {
    fn begin(&self, caller: Option<TraceContext>) -> TraceContext {
        let span_id = fastrand::u64(1..);
        let parent_id = caller.as_ref().map(|caller| caller.parent_id);
        let continued = caller.map(|caller| TraceContext {
            parent_id: span_id,
            ..caller
        });
        let own = continued.unwrap_or_else(|| {
            let trace_id = Sampler::trace_id();
            TraceContext {
                trace_id: TraceId(trace_id),
                parent_id: span_id,
                sampled: self.0.takes(trace_id),
                state: Vec::new(),
            }
        });
        let state = if own.sampled {
            state(&own.state)
        } else {
            String::new()
        };
        BEGUN.set(Some(Begun {
            trace_id: own.trace_id.0,
            span_id,
            parent_id,
            is_sampled: own.sampled,
            state,
        }));
        own
    }
}

/// What tracing systems along the way have added, as one text; nothing where it is not as it should be.
fn state(headers: &[HeaderValue]) -> String {
    let texts: Result<Vec<&str>, _> = headers.iter().map(HeaderValue::to_str).collect();
    let state = texts.map(|texts| texts.join(",")).unwrap_or_default();
    let is_list = state.split(',').all(|member| {
        let member = member.trim();
        member.is_empty()
            || member
                .split_once('=')
                .is_some_and(|(key, _)| !key.is_empty())
    });
    if is_list && state.len() <= MAX_STATE_BYTES {
        state
    } else {
        String::new()
    }
}

/// Queues the spans of recorded traces when they close.
pub(crate) struct Spans {
    pub(crate) sampler: Sampler,
    pub(crate) queue: Arc<Queue<Span>>,
}

impl<S> Layer<S> for Spans
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let begun = BEGUN
            .take()
            .or_else(|| self.below_another(attributes, &context));
        let Some((begun, opened)) = begun.zip(context.span(id)) else {
            return;
        };
        let standing = Standing {
            trace_id: begun.trace_id,
            span_id: begun.span_id,
            span: begun.is_sampled.then(|| Box::new(span(begun, attributes))),
        };
        opened.extensions_mut().insert(standing);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(opened) = context.span(id)
            && let Some(standing) = opened.extensions_mut().get_mut::<Standing>()
            && let Some(span) = &mut standing.span
        {
            values.record(&mut EachField(|name, value| put(span, name, value)));
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let closed = context.span(&id);
        let standing = closed.and_then(|closed| closed.extensions_mut().remove::<Standing>());
        if let Some(mut span) = standing.and_then(|standing| standing.span) {
            span.end_time_unix_nano = now_ns();
            self.queue.push(*span);
        }
    }
}

impl Spans {
    /// The place of a span below the one that is open, or at the top of a trace of its own; `None` where the trace is not
    /// recorded.
    fn below_another<S>(
        &self,
        attributes: &Attributes<'_>,
        context: &Context<'_, S>,
    ) -> Option<Begun>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let parent = match attributes.parent() {
            Some(parent) => context.span(parent),
            None if attributes.is_contextual() => context.lookup_current(),
            None => None,
        };
        let (trace_id, parent_id) = if let Some(parent) = parent {
            let extensions = parent.extensions();
            let standing = extensions.get::<Standing>()?;
            if !standing.is_sampled() {
                return None;
            }
            (standing.trace_id, Some(standing.span_id))
        } else {
            let trace_id = Sampler::trace_id();
            if !self.sampler.takes(trace_id) {
                return None;
            }
            (trace_id, None)
        };
        Some(Begun {
            trace_id,
            span_id: fastrand::u64(1..),
            parent_id,
            is_sampled: true,
            state: String::new(),
        })
    }
}

/// A span that begins now.
fn span(begun: Begun, attributes: &Attributes<'_>) -> Span {
    let metadata = attributes.metadata();
    let mut flags = SAMPLED | SpanFlags::ContextHasIsRemoteMask as u32;
    let mut span = Span {
        trace_id: begun.trace_id.to_be_bytes().into(),
        span_id: begun.span_id.to_be_bytes().into(),
        trace_state: begun.state,
        name: metadata.name().to_owned(),
        kind: SpanKind::Internal.into(),
        start_time_unix_nano: now_ns(),
        attributes: Vec::with_capacity(metadata.fields().len()),
        ..Span::default()
    };
    attributes.record(&mut EachField(|name, value| put(&mut span, name, value)));
    if let Some(parent_id) = begun.parent_id {
        span.parent_span_id = parent_id.to_be_bytes().into();
        if span.kind == i32::from(SpanKind::Server) {
            flags |= SpanFlags::ContextIsRemoteMask as u32;
        }
    }
    span.flags = flags;
    span
}

/// Puts a field where the protocol has it.
fn put(span: &mut Span, name: &'static str, value: Value) {
    match (name, value) {
        ("otel.name", Value::StringValue(name)) => span.name = name,
        ("otel.kind", Value::StringValue(kind)) if kind == "server" => {
            span.kind = SpanKind::Server.into();
        }
        // The span has it already.
        ("trace_id", _) => {}
        (xmtp_telemetry::ERROR, Value::BoolValue(failed)) => {
            if failed {
                span.status = Some(Status {
                    code: StatusCode::Error.into(),
                    ..Status::default()
                });
            }
        }
        (name, value) => span.attributes.push(attribute(name, value)),
    }
}

#[cfg(test)]
mod tests {
    use tracing::{Dispatch, info_span};
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::{Registry, registry};

    use super::*;

    /// What is queued while `work` runs below a layer that samples by `ratio`.
    fn queued(ratio: f64, work: impl FnOnce(&Tracer)) -> Vec<Span> {
        let (sampler, queue) = (Sampler::new(ratio), Arc::new(Queue::new()));
        let spans = Spans {
            sampler,
            queue: Arc::clone(&queue),
        };
        let tracer = Tracer(sampler);
        tracing::subscriber::with_default(registry().with(spans), || work(&tracer));
        queue.take().items
    }

    fn caller(sampled: bool) -> TraceContext {
        TraceContext {
            trace_id: TraceId(7),
            parent_id: 8,
            sampled,
            state: vec![HeaderValue::from_static("one=1")],
        }
    }

    fn has_standing(span: &tracing::Span) -> bool {
        let has_standing = span.with_subscriber(|(id, dispatch): (&Id, &Dispatch)| {
            let registry = dispatch.downcast_ref::<Registry>().expect("the registry");
            let open = registry.span(id).expect("it is open");
            open.extensions().get::<Standing>().is_some()
        });
        has_standing.expect("it is enabled")
    }

    #[test]
    fn arc_097_a_trace_that_is_not_recorded_stores_nothing_below_its_request() {
        let spans = queued(0.0, |tracer| {
            let own = tracer.begin(None);
            assert!(!own.sampled);
            let request = info_span!("request").entered();
            assert!(has_standing(&request), "log lines belong to it");
            let inner = info_span!("inner").entered();
            assert!(!has_standing(&inner));
            assert!(!has_standing(&info_span!("innermost")));
            drop((inner, request));
            assert!(!has_standing(&info_span!("nobody's request")));
        });
        assert!(spans.is_empty());
    }

    #[test]
    fn arc_099_the_context_of_a_request_is_that_of_its_span() {
        let mut contexts = Vec::new();
        let spans = queued(0.0, |tracer| {
            contexts.push(tracer.begin(Some(caller(true))));
            let request = info_span!("request", otel.name = "a/b", otel.kind = "server").entered();
            drop(info_span!("inner", error = true));
            drop(request);
            tracer.begin(Some(caller(false)));
            drop(info_span!("not recorded"));
        });
        let [inner, request] = &spans[..] else {
            panic!("two spans: {spans:?}");
        };
        let own = &contexts[0];
        assert_eq!(own.trace_id, TraceId(7));
        assert!(own.sampled);
        assert_eq!(own.state, caller(true).state, "it is passed on as it came");
        assert_eq!(request.span_id, own.parent_id.to_be_bytes());
        assert_eq!(request.parent_span_id, 8_u64.to_be_bytes());
        assert_eq!(request.trace_id, 7_u128.to_be_bytes());
        assert_eq!(request.trace_state, "one=1");
        assert_eq!(request.name, "a/b");
        assert_eq!(inner.parent_span_id, request.span_id);
        assert_eq!(inner.trace_id, request.trace_id);
        let status = inner.status.as_ref().expect("it failed");
        assert_eq!(status.code(), StatusCode::Error);
        assert!(inner.attributes.is_empty() && request.attributes.is_empty());
    }

    #[test]
    fn ops_014_a_state_that_is_none_is_not_quoted() {
        let of = |texts: &[&'static str]| {
            let headers: Vec<HeaderValue> = texts
                .iter()
                .map(|text| HeaderValue::from_static(text))
                .collect();
            state(&headers)
        };
        assert_eq!(of(&["one=1,two=2", "three=3"]), "one=1,two=2,three=3");
        assert_eq!(of(&["one=1,planted"]), "");
        assert_eq!(of(&["=planted"]), "");
        assert_eq!(of(&[]), "");
        let long = HeaderValue::from_str(&format!("a={}", "x".repeat(511))).expect("legal");
        assert_eq!(state(&[long]), "");
        let other = HeaderValue::from_bytes(b"a=\xff").expect("legal");
        assert_eq!(state(&[other]), "");
    }
}
