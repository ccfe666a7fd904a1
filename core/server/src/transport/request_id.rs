//! A request id on every response, made here and never taken from the caller (OPS-011).

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{HeaderName, HeaderValue, Request, Response};
use pin_project_lite::pin_project;
use tower::{Layer, Service};
use tracing::instrument::{Instrument, Instrumented};
use uuid::Uuid;

/// The response header.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Gives each request a fresh UUID, in its span and in its response.
#[derive(Clone, Copy)]
pub(super) struct RequestIdLayer;

impl<S> Layer<S> for RequestIdLayer {
    type Service = RequestId<S>;

    fn layer(&self, inner: S) -> RequestId<S> {
        RequestId { inner }
    }
}

#[derive(Clone)]
pub(super) struct RequestId<S> {
    inner: S,
}

impl<S, B, R> Service<Request<B>> for RequestId<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut text = Uuid::encode_buffer();
        let id: &str = Uuid::new_v4().as_hyphenated().encode_lower(&mut text);
        let span = tracing::info_span!("request", request_id = id);
        // A UUID's text is a legal header value.
        let header = HeaderValue::from_str(id).ok();
        let response = span.in_scope(|| self.inner.call(request)).instrument(span);
        ResponseFuture { response, header }
    }
}

pin_project! {
    pub(super) struct ResponseFuture<F> {
        #[pin]
        response: Instrumented<F>,
        header: Option<HeaderValue>,
    }
}

impl<F, R, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let mut response = ready!(this.response.poll(context))?;
        if let Some(id) = this.header.take() {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        Poll::Ready(Ok(response))
    }
}
