//! What browsers may send and read (contract of the API, section 11.5). Any origin, any method. Requested headers are
//! mirrored: a star would not cover `authorization`.
//!
//! Not the library's layer, which takes every `OPTIONS` for a preflight: that would be answered without a credential, and
//! counted nowhere (AUTH-002).

use std::future::{Ready, ready};
use std::task::{Context, Poll};

use futures::future::{Either, MapOk, TryFutureExt};
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use tonic::body::Body;
use tower::{Layer, Service};

/// Response headers that scripts may read; `x-request-id` is [`super::calls::REQUEST_ID`].
const EXPOSED: HeaderValue =
    HeaderValue::from_static("grpc-status,grpc-message,grpc-status-details-bin,x-request-id");

/// What a cache has to tell apart.
const VARY: HeaderValue = HeaderValue::from_static(
    "origin, access-control-request-method, access-control-request-headers",
);

const ANY: HeaderValue = HeaderValue::from_static("*");

/// Whether a request is a browser's question before another one, and nothing else.
pub(super) fn is_preflight<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    request.method() == Method::OPTIONS
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Answers preflights, and lets scripts read what is answered to others.
#[derive(Clone, Copy)]
pub(super) struct CorsLayer;

impl<S> Layer<S> for CorsLayer {
    type Service = Cors<S>;

    fn layer(&self, inner: S) -> Cors<S> {
        Cors { inner }
    }
}

#[derive(Clone)]
pub(super) struct Cors<S> {
    inner: S,
}

impl<S> Service<Request<Body>> for Cors<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Either<
        Ready<Result<Response<Body>, S::Error>>,
        MapOk<S::Future, fn(Response<Body>) -> Response<Body>>,
    >;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if is_preflight(&request) {
            return Either::Left(ready(Ok(permission(request.headers()))));
        }
        Either::Right(self.inner.call(request).map_ok(readable as fn(_) -> _))
    }
}

/// The answer to a preflight.
fn permission(asked: &HeaderMap) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, ANY);
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, ANY);
    if let Some(names) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    headers.insert(header::VARY, VARY);
    response
}

/// The answer to any other request, which scripts may read.
fn readable(mut response: Response<Body>) -> Response<Body> {
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, ANY);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    headers.insert(header::VARY, VARY);
    response
}
