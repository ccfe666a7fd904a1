//! Asks a subsystem's [`RequestGate`] about each request. Outside gRPC-Web, which answers some methods and content
//! types by itself: the gate's answer depends on neither (AUTH-001).

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Request, Response, header, request};
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service};
use tracing::Span;

use super::calls::{Call, Rejected};
use super::{Admission, deadline};
use crate::subsystem::{Connection, Rejection, RequestGate, RequestHead};

/// Applies a [`RequestGate`].
#[derive(Clone)]
pub(super) struct GateLayer {
    /// `server.identifier`.
    pub(super) identifier: Arc<str>,
    pub(super) gate: Arc<dyn RequestGate>,
    /// A request may wait here as well.
    pub(super) admission: Admission,
}

impl<S> Layer<S> for GateLayer {
    type Service = Gated<S>;

    fn layer(&self, inner: S) -> Gated<S> {
        Gated {
            inner,
            layer: self.clone(),
        }
    }
}

#[derive(Clone)]
pub(super) struct Gated<S> {
    inner: S,
    layer: GateLayer,
}

impl<S> Service<Request<Body>> for Gated<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let layer = self.layer.clone();
        // The one that was polled for readiness.
        let next = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, next);
        Box::pin(async move {
            let (mut head, body) = request.into_parts();
            match layer.judge(&mut head).await {
                Ok(()) => inner.call(Request::from_parts(head, body)).await,
                Err(response) => Ok(response),
            }
        })
    }
}

impl GateLayer {
    /// Asks the gate, and answers whom it turns away, and who waits for too long.
    async fn judge(&self, head: &mut request::Parts) -> Result<(), Response<Body>> {
        let deadline = deadline::begin(head);
        let call = head.extensions.get::<Arc<Call>>().cloned();
        let connection = head.extensions.get::<Connection>().cloned();
        let none = Span::none();
        let mut of_gate = RequestHead {
            path: head.uri.path(),
            headers: &head.headers,
            connection: &connection.unwrap_or_default(),
            extensions: &mut head.extensions,
            span: call.as_ref().map_or(&none, |call| call.span()),
        };
        let asked = self.admission.before(self.gate.judge(&mut of_gate));
        let (status, reason) = match deadline::within(deadline, asked).await {
            Ok(Ok(Ok(()))) => return Ok(()),
            Ok(Ok(Err(Rejection { status, reason }))) => (status, Some(reason)),
            Ok(Err(status)) | Err(status) => (status, None),
        };
        if let Some(call) = call {
            call.answered(status.code());
        }
        let mut response = answer(status, &head.headers);
        if let Some(reason) = reason {
            response.extensions_mut().insert(Rejected {
                reason,
                identifier: Arc::clone(&self.identifier),
            });
        }
        Err(response)
    }
}

/// The status alone, in headers, as the caller's flavour of gRPC has it. Who speaks neither is answered as gRPC.
fn answer(status: Status, request: &HeaderMap) -> Response<Body> {
    let mut response = status.into_http();
    if let Some(kind) = web_content_type(request) {
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    response
}

/// The content type of a gRPC-Web answer; `None` for a request of another kind.
fn web_content_type(request: &HeaderMap) -> Option<&'static str> {
    let starts = |name, prefix: &[u8]| {
        let value: Option<&HeaderValue> = request.get(name);
        value.is_some_and(|value| value.as_bytes().starts_with(prefix))
    };
    if !starts(header::CONTENT_TYPE, b"application/grpc-web") {
        None
    } else if starts(header::ACCEPT, b"application/grpc-web-text") {
        Some("application/grpc-web-text+proto")
    } else {
        Some("application/grpc-web+proto")
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use futures::{FutureExt, poll};
    use tokio::sync::Notify;
    use tokio::time::Instant;
    use tonic::Code;
    use tower::{ServiceBuilder, ServiceExt, service_fn};

    use super::*;
    use crate::transport::deadline::DeadlineLayer;

    /// Lets everybody in, once it is told to.
    #[derive(Default)]
    struct Slow(Notify);

    impl RequestGate for Slow {
        fn judge<'a>(&'a self, _: &'a mut RequestHead<'_>) -> BoxFuture<'a, Result<(), Rejection>> {
            self.0.notified().map(Ok).boxed()
        }
    }

    fn layer(gate: &Arc<Slow>, admission: &Admission) -> GateLayer {
        GateLayer {
            identifier: "test".into(),
            gate: Arc::clone(gate) as Arc<dyn RequestGate>,
            admission: admission.clone(),
        }
    }

    fn request(timeout: Option<&'static str>) -> Request<Body> {
        let mut request = Request::new(Body::empty());
        if let Some(timeout) = timeout {
            let value = HeaderValue::from_static(timeout);
            request.headers_mut().insert("grpc-timeout", value);
        }
        request
    }

    fn code(response: &Response<Body>) -> Code {
        let status = Status::from_header_map(response.headers());
        status.map_or(Code::Ok, |status| status.code())
    }

    async fn handled(_: Request<Body>) -> Result<Response<Body>, Infallible> {
        Ok(Response::new(Body::empty()))
    }

    async fn never(_: Request<Body>) -> Result<Response<Body>, Infallible> {
        std::future::pending().await
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_counts_from_the_arrival_at_the_gate() {
        let gate = Arc::new(Slow::default());
        let begin = Instant::now();
        let layer = layer(&gate, &Admission::default());
        let service = layer.layer(service_fn(handled));
        let response = service.oneshot(request(Some("5S"))).await.unwrap();
        assert_eq!(code(&response), Code::DeadlineExceeded);
        assert_eq!(begin.elapsed(), Duration::from_secs(5));

        let begin = Instant::now();
        let service = ServiceBuilder::new()
            .layer(layer)
            .layer(DeadlineLayer)
            .service_fn(never);
        let mut answer = Box::pin(service.oneshot(request(Some("5S"))));
        assert!(poll!(&mut answer).is_pending());
        tokio::time::advance(Duration::from_secs(3)).await;
        gate.0.notify_one();
        let response = answer.await.unwrap();
        assert_eq!(code(&response), Code::DeadlineExceeded);
        assert_eq!(begin.elapsed(), Duration::from_secs(5));
    }

    #[tokio::test]
    async fn ops_007_ops_008_a_drain_waits_for_whoever_is_judged_until_its_deadline() {
        let (gate, admission) = (Arc::new(Slow::default()), Admission::default());
        let service = layer(&gate, &admission).layer(service_fn(handled));
        let mut first = Box::pin(service.clone().oneshot(request(None)));
        let mut second = Box::pin(service.clone().oneshot(request(None)));
        assert!(poll!(&mut first).is_pending());
        assert!(poll!(&mut second).is_pending());
        admission.close();
        let mut drained = Box::pin(admission.drained());
        assert!(poll!(&mut drained).is_pending());
        gate.0.notify_one();
        assert_eq!(code(&first.await.unwrap()), Code::Ok);
        assert!(poll!(&mut drained).is_pending());
        admission.expire();
        assert_eq!(code(&second.await.unwrap()), Code::Unavailable);
        drained.await;
        // Who need not wait is judged even now.
        gate.0.notify_one();
        let third = service.oneshot(request(None)).await;
        assert_eq!(code(&third.unwrap()), Code::Ok);
    }
}
