//! Tells a call the status that it is answered with, from headers or trailers. Inside the gRPC-Web layer,
//! which would turn trailers into bytes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{HeaderMap, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use pin_project_lite::pin_project;
use tonic::body::Body;
use tower::{Layer, Service};

use super::calls::Call;

/// Captures statuses.
#[derive(Clone, Copy)]
pub(super) struct StatusCaptureLayer;

impl<S> Layer<S> for StatusCaptureLayer {
    type Service = StatusCapture<S>;

    fn layer(&self, inner: S) -> StatusCapture<S> {
        StatusCapture { inner }
    }
}

#[derive(Clone)]
pub(super) struct StatusCapture<S> {
    inner: S,
}

impl<S> Service<Request<Body>> for StatusCapture<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        ResponseFuture {
            call: request.extensions().get::<Arc<Call>>().cloned(),
            response: self.inner.call(request),
        }
    }
}

pin_project! {
    pub(super) struct ResponseFuture<F> {
        #[pin]
        response: F,
        call: Option<Arc<Call>>,
    }
}

impl<F, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<Body>, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let response = ready!(this.response.poll(context))?;
        let Some(call) = this.call.take() else {
            return Poll::Ready(Ok(response));
        };
        if answered(&call, response.headers()) {
            return Poll::Ready(Ok(response));
        }
        Poll::Ready(Ok(response.map(|body| Body::new(Captured { body, call }))))
    }
}

/// Whether there is a status in `headers`; the call knows it then.
fn answered(call: &Call, headers: &HeaderMap) -> bool {
    let Some(status) = headers.get("grpc-status") else {
        return false;
    };
    call.answered(tonic::Code::from_bytes(status.as_bytes()));
    true
}

pin_project! {
    /// A response body whose trailers are looked at.
    struct Captured {
        #[pin]
        body: Body,
        call: Arc<Call>,
    }
}

impl HttpBody for Captured {
    type Data = <Body as HttpBody>::Data;
    type Error = <Body as HttpBody>::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.project();
        let frame = ready!(this.body.poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(trailers) = frame.trailers_ref()
        {
            answered(this.call, trailers);
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
