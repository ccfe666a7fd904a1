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
use crate::subsystem::{Rejection, RequestGate, RequestHead};

/// Applies a [`RequestGate`].
#[derive(Clone)]
pub(super) struct GateLayer {
    /// `server.identifier`.
    pub(super) identifier: Arc<str>,
    pub(super) gate: Arc<dyn RequestGate>,
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
    /// Asks the gate, and answers whom it turns away.
    async fn judge(&self, head: &mut request::Parts) -> Result<(), Response<Body>> {
        let call = head.extensions.get::<Arc<Call>>().cloned();
        let none = Span::none();
        let mut of_gate = RequestHead {
            path: head.uri.path(),
            headers: &head.headers,
            extensions: &mut head.extensions,
            span: call.as_ref().map_or(&none, |call| call.span()),
        };
        let judged = self.gate.judge(&mut of_gate).await;
        let Err(Rejection { status, reason }) = judged else {
            return Ok(());
        };
        if let Some(call) = call {
            call.answered(status.code());
        }
        let mut response = answer(status, &head.headers);
        response.extensions_mut().insert(Rejected {
            reason,
            identifier: Arc::clone(&self.identifier),
        });
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
