//! Asks a subsystem's [`RequestGate`] about each request. Outside gRPC-Web, which answers some methods and content
//! types by itself: the gate's answer depends on neither (AUTH-001).

use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::Either;
use http::{HeaderMap, HeaderValue, Request, Response, header};
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
    S: Service<Request<Body>, Response = Response<Body>>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Either<Ready<Result<Response<Body>, S::Error>>, S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (mut head, body) = request.into_parts();
        let call = head.extensions.get::<Arc<Call>>().cloned();
        let none = Span::none();
        let judged = self.layer.gate.judge(&mut RequestHead {
            path: head.uri.path(),
            headers: &head.headers,
            extensions: &mut head.extensions,
            span: call.as_ref().map_or(&none, |call| call.span()),
        });
        match judged {
            Ok(()) => Either::Right(self.inner.call(Request::from_parts(head, body))),
            Err(Rejection { status, reason }) => {
                if let Some(call) = call {
                    call.answered(status.code());
                }
                let mut response = answer(status, &head.headers);
                response.extensions_mut().insert(Rejected {
                    reason,
                    identifier: Arc::clone(&self.layer.identifier),
                });
                Either::Left(ready(Ok(response)))
            }
        }
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
