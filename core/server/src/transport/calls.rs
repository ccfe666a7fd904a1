//! What is kept of every request: its id, its metrics, its span and its completion log (OPS-011, OPS-012,
//! OPS-017, OPS-018). The outermost layer, so that each request is measured once and whole.
//!
//! A request is counted when it arrives and completed when its response body ends, fails or is dropped,
//! exactly once. Bytes are counted as they pass, frame by frame, and nothing is buffered or allocated for
//! it. What is not gRPC, a preflight above all, only gets an id.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Buf, Bytes};
use http::{HeaderName, HeaderValue, Request, Response, Version, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use metrics::{Counter, Gauge, Histogram, Key, Label};
use pin_project_lite::pin_project;
use tonic::Code;
use tonic::body::Body;
use tower::{Layer, Service};
use tracing::Span;
use tracing::field::{Empty, display};
use uuid::Uuid;

use super::cors::is_preflight;
use super::discard::Discarding;
use crate::telemetry::catalogue::rpc_labels;
use crate::telemetry::families::{
    GRPC_CODES, HANDLED, HANDLING, IN_FLIGHT, REQUEST_BYTES, RESPONSE_BYTES, STARTED,
};
use crate::telemetry::operations::Outcomes;
use crate::telemetry::route::{Route, RouteKind};
use crate::telemetry::trace_context::{TraceContext, TraceId};
use crate::telemetry::{Catalogue, RequestTracer, STREAM};

/// The response header.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The id of a request, for its handler.
#[derive(Clone, Copy)]
pub(crate) struct RequestId(pub(crate) Uuid);

/// Marks the answer of a request that was turned away, for the log: what is logged outside the request's span has
/// no more than the fields of its own.
#[derive(Clone)]
pub(super) struct Rejected {
    /// A fixed word.
    pub(super) reason: &'static str,
    /// `server.identifier`.
    pub(super) identifier: Arc<str>,
}

/// Name of the span of a request with one answer: the context of what is logged meanwhile.
const REQUEST: &str = "request";

/// The span of a request, under a name that is a constant.
macro_rules! request_span {
    ($name:ident, $route:ident, $id:ident, $trace_id:ident) => {
        tracing::info_span!(
            $name,
            otel.name = $route.name(),
            otel.kind = "server",
            rpc.system = "grpc",
            rpc.service = $route.service(),
            rpc.method = $route.method(),
            rpc.grpc.status_code = Empty,
            request_id = %$id,
            trace_id = $trace_id.map(display),
            // `subsystem::PRINCIPAL`.
            auth.principal = Empty,
            error = Empty,
        )
    };
}

/// A call without a status.
const NO_STATUS: u8 = u8::MAX;

/// Keeps calls.
#[derive(Clone)]
pub(crate) struct CallLayer(Arc<Book>);

/// What all calls share.
struct Book {
    /// Places in `routes`, by path.
    places: HashMap<&'static str, usize>,
    /// The last one is for every other path.
    routes: Vec<RouteMetrics>,
    /// `server.identifier`.
    identifier: Box<str>,
    /// `server.request_logger`.
    is_logged: bool,
    /// `None` where no traces are exported.
    tracer: Option<Arc<dyn RequestTracer>>,
}

/// The series of one row of the route table, looked up once.
struct RouteMetrics {
    route: Route,
    /// `None` for health, which is in no request family.
    requests: Option<RequestMetrics>,
    durations: Outcomes,
}

struct RequestMetrics {
    started: Counter,
    in_flight: Gauge,
    request_bytes: Counter,
    response_bytes: Counter,
    /// By status; most never come.
    completed: [OnceLock<(Counter, Histogram)>; GRPC_CODES.len()],
}

impl CallLayer {
    /// Records in the recorder of this moment, under the routes of `catalogue`.
    pub(crate) fn new(
        catalogue: &Catalogue,
        identifier: &str,
        is_logged: bool,
        tracer: Option<Arc<dyn RequestTracer>>,
    ) -> Self {
        let table = catalogue.routes();
        let paths = table.iter().map(|route| route.path());
        let routes = table.iter().copied().chain([Route::UNKNOWN]);
        Self(Arc::new(Book {
            places: paths.zip(0..).collect(),
            routes: routes.map(RouteMetrics::new).collect(),
            identifier: identifier.into(),
            is_logged,
            tracer,
        }))
    }

    /// `server.identifier`.
    pub(super) fn identifier(&self) -> &str {
        &self.0.identifier
    }
}

impl RouteMetrics {
    fn new(route: Route) -> Self {
        Self {
            route,
            requests: (!route.is_health()).then(|| RequestMetrics::new(route)),
            durations: Outcomes::new(route.name()),
        }
    }
}

impl RequestMetrics {
    fn new(route: Route) -> Self {
        let key = |name| Key::from_parts(name, rpc_labels(route));
        Self {
            started: STARTED.counter_of(&key(STARTED.name())),
            in_flight: IN_FLIGHT.gauge_of(&key(IN_FLIGHT.name())),
            request_bytes: REQUEST_BYTES.counter_of(&key(REQUEST_BYTES.name())),
            response_bytes: RESPONSE_BYTES.counter_of(&key(RESPONSE_BYTES.name())),
            completed: [const { OnceLock::new() }; GRPC_CODES.len()],
        }
    }

    fn completed(&self, route: Route, code: Code) -> &(Counter, Histogram) {
        self.completed[code as usize].get_or_init(|| {
            let mut labels = rpc_labels(route);
            labels.push(Label::from_static_parts("grpc_code", word(code)));
            (
                HANDLED.counter_of(&Key::from_parts(HANDLED.name(), labels.clone())),
                HANDLING.histogram_of(&Key::from_parts(HANDLING.name(), labels)),
            )
        })
    }
}

/// Value of the label `grpc_code`.
fn word(code: Code) -> &'static str {
    GRPC_CODES[code as usize]
}

/// One gRPC request, until its completion. An extension of the request, for the layers inside.
pub(super) struct Call {
    book: Arc<Book>,
    place: usize,
    began: Instant,
    request_bytes: AtomicU64,
    response_bytes: AtomicU64,
    /// A gRPC code, or [`NO_STATUS`].
    status: AtomicU8,
    id: Uuid,
    trace_id: Option<TraceId>,
    span: Span,
}

impl Call {
    fn metrics(&self) -> &RouteMetrics {
        &self.book.routes[self.place]
    }

    /// What it sends and gets.
    pub(super) fn kind(&self) -> RouteKind {
        self.metrics().route.kind()
    }

    /// The request's span.
    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    /// The status is known.
    pub(super) fn answered(&self, code: Code) {
        // There are seventeen codes.
        self.status.store(code as u8, Ordering::Relaxed);
    }

    fn consumed(&self, bytes: u64) {
        self.request_bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(requests) = &self.metrics().requests {
            requests.request_bytes.increment(bytes);
        }
    }

    fn emitted(&self, bytes: u64) {
        self.response_bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(requests) = &self.metrics().requests {
            requests.response_bytes.increment(bytes);
        }
    }

    fn complete(&self, without_status: Code) {
        let code = match self.status.load(Ordering::Relaxed) {
            NO_STATUS => without_status,
            code => Code::from_i32(code.into()),
        };
        let (metrics, duration) = (self.metrics(), self.began.elapsed());
        // As for every operation: what was only cancelled has recorded no error.
        let failed = !matches!(code, Code::Ok | Code::Cancelled);
        metrics.durations.record(duration, failed);
        if failed {
            self.span.record(xmtp_telemetry::ERROR, true);
        }
        self.span.record("rpc.grpc.status_code", code as i32);
        let Some(requests) = &metrics.requests else {
            return;
        };
        let (handled, handling) = requests.completed(metrics.route, code);
        handled.increment(1);
        handling.record(duration);
        requests.in_flight.decrement(1);
        if self.book.is_logged {
            let trace_id = self.trace_id.map(display);
            tracing::info!(
                parent: None,
                request_id = %self.id,
                identifier = &*self.book.identifier,
                method = metrics.route.path(),
                duration_ms = (duration.as_secs_f64() * 1_000_000.0).round() / 1000.0,
                request_size_bytes = self.request_bytes.load(Ordering::Relaxed),
                response_size_bytes = self.response_bytes.load(Ordering::Relaxed),
                grpc_code = word(code),
                trace_id,
                "request completed"
            );
        }
    }
}

/// A call that is to be completed: at the latest when this is dropped.
struct Running(Option<Arc<Call>>);

impl Running {
    /// The response body has ended, or failed.
    fn end(&mut self) {
        self.complete(Code::Unknown);
    }

    fn complete(&mut self, without_status: Code) {
        if let Some(call) = self.0.take() {
            call.complete(without_status);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.complete(Code::Cancelled);
    }
}

impl Book {
    /// Begins a call, unless the request is not gRPC: neither HTTP/2 nor gRPC-Web, or a preflight.
    fn begin<B>(self: &Arc<Self>, id: Uuid, request: &mut Request<B>) -> Option<Arc<Call>> {
        let kind = request.headers().get(header::CONTENT_TYPE);
        let is_grpc_type =
            kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        let is_grpc =
            !is_preflight(request) && (request.version() == Version::HTTP_2 || is_grpc_type);
        if !is_grpc {
            return None;
        }
        let unknown = self.routes.len() - 1;
        let place = self.places.get(request.uri().path());
        let place = place.copied().unwrap_or(unknown);
        let RouteMetrics {
            route, requests, ..
        } = &self.routes[place];
        if let Some(requests) = requests {
            requests.started.increment(1);
            requests.in_flight.increment(1);
        }
        let mut trace = TraceContext::of(request.headers());
        if let Some(tracer) = &self.tracer {
            trace = Some(tracer.begin(trace));
        }
        let trace_id = trace.as_ref().map(|trace| trace.trace_id);
        if let Some(trace) = trace {
            request.extensions_mut().insert(trace);
        }
        let span = match route.kind() {
            RouteKind::Unary => request_span!(REQUEST, route, id, trace_id),
            RouteKind::ServerStream | RouteKind::BidiStream => {
                request_span!(STREAM, route, id, trace_id)
            }
        };
        Some(Arc::new(Call {
            book: Arc::clone(self),
            place,
            began: Instant::now(),
            request_bytes: AtomicU64::new(0),
            response_bytes: AtomicU64::new(0),
            status: AtomicU8::new(NO_STATUS),
            id,
            trace_id,
            span,
        }))
    }
}

impl<S> Layer<S> for CallLayer {
    type Service = Calls<S>;

    fn layer(&self, inner: S) -> Calls<S> {
        Calls {
            inner,
            book: Arc::clone(&self.0),
        }
    }
}

#[derive(Clone)]
pub(crate) struct Calls<S> {
    inner: S,
    book: Arc<Book>,
}

impl<S> Service<Request<Incoming>> for Calls<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
{
    type Response = Response<Answer>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Incoming>) -> Self::Future {
        let id = Uuid::new_v4();
        let mut text = Uuid::encode_buffer();
        // A UUID's text is a legal header value.
        let header = HeaderValue::from_str(id.as_hyphenated().encode_lower(&mut text)).ok();
        request.extensions_mut().insert(RequestId(id));
        let call = self.book.begin(id, &mut request);
        let span = call
            .as_ref()
            .map_or_else(Span::none, |call| call.span.clone());
        let request = request.map(Discarding::new);
        let request = match &call {
            None => request.map(Body::new),
            Some(call) => {
                let consumed = |body| Consumed {
                    body,
                    call: Arc::clone(call),
                };
                let mut request = request.map(|body| Body::new(consumed(body)));
                request.extensions_mut().insert(Arc::clone(call));
                request
            }
        };
        ResponseFuture {
            response: span.in_scope(|| self.inner.call(request)),
            running: Running(call),
            span,
            header,
        }
    }
}

pin_project! {
    pub(crate) struct ResponseFuture<F> {
        #[pin]
        response: F,
        running: Running,
        span: Span,
        header: Option<HeaderValue>,
    }
}

impl<F, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<Body>, E>>,
{
    type Output = Result<Response<Answer>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut response = {
            let _entered = this.span.enter();
            ready!(this.response.poll(context))?
        };
        if let Some(id) = this.header.take() {
            if let Some(Rejected { reason, identifier }) = response.extensions_mut().remove() {
                tracing::debug!(
                    parent: None,
                    request_id = id.to_str().ok(),
                    identifier = &*identifier,
                    reason,
                    "request rejected"
                );
            }
            response.headers_mut().insert(REQUEST_ID, id);
        }
        let mut running = Running(this.running.0.take());
        if response.body().is_end_stream() {
            // Nobody will ask it for its end.
            running.end();
        }
        Poll::Ready(Ok(response.map(|body| Answer { body, running })))
    }
}

pin_project! {
    /// A request body whose bytes are counted.
    struct Consumed {
        #[pin]
        body: Discarding,
        call: Arc<Call>,
    }
}

impl HttpBody for Consumed {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.project();
        let frame = ready!(this.body.poll_frame(context));
        if let Some(bytes) = data_bytes(frame.as_ref()) {
            this.call.consumed(bytes);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

pin_project! {
    /// A response body whose bytes are counted, and with which its call ends.
    pub(crate) struct Answer {
        #[pin]
        body: Body,
        running: Running,
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(context));
        if let Some(bytes) = data_bytes(frame.as_ref())
            && let Some(call) = &this.running.0
        {
            call.emitted(bytes);
        }
        let goes_on = matches!(&frame, Some(Ok(frame)) if frame.is_data());
        // Nobody asks again after the last data, where there are no trailers to come.
        if !goes_on || this.body.is_end_stream() {
            this.running.end();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn data_bytes<E>(frame: Option<&Result<Frame<Bytes>, E>>) -> Option<u64> {
    let data = frame?.as_ref().ok()?.data_ref()?;
    u64::try_from(data.remaining()).ok()
}
