//! Drain admission: what is let in, what is waited for, and what is stopped (OPS-007, OPS-008).

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service};

use crate::status::SHUTTING_DOWN;

/// Path prefix of the service that answers in every state (contract decisions, 5).
const HEALTH: &str = "/grpc.health.v1.Health/";

/// Marks a response whose body is a stream without end. A drain ends it by other means and does not
/// wait for a peer that has stopped reading.
#[derive(Clone, Copy)]
pub(crate) struct StreamResponse;

/// The state of admission. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Admission {
    draining: CancellationToken,
    /// The drain deadline has passed: what still runs is answered.
    expired: CancellationToken,
    admitted: TaskTracker,
}

impl Admission {
    /// Refuses new requests from now on.
    pub(crate) fn close(&self) {
        self.draining.cancel();
        self.admitted.close();
    }

    /// Does what comes before admission. A drain waits for it, and ends it with an error at the drain deadline. What
    /// need not wait is done in every state.
    pub(super) async fn before<T>(&self, work: impl Future<Output = T>) -> Result<T, Status> {
        let _token = self.admitted.token();
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = self.expired.cancelled() => Err(shutting_down()),
        }
    }

    /// Waits until every admitted request has its whole response.
    pub(crate) async fn drained(&self) {
        self.admitted.wait().await;
    }

    /// Answers what still runs.
    pub(crate) fn expire(&self) {
        self.expired.cancel();
    }
}

/// Applies an [`Admission`].
#[derive(Clone)]
pub(super) struct AdmissionLayer(pub(super) Admission);

impl<S> Layer<S> for AdmissionLayer {
    type Service = Admitted<S>;

    fn layer(&self, inner: S) -> Admitted<S> {
        Admitted {
            inner,
            admission: self.0.clone(),
        }
    }
}

#[derive(Clone)]
pub(super) struct Admitted<S> {
    inner: S,
    admission: Admission,
}

impl<S> Service<Request<Body>> for Admitted<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if request.uri().path().starts_with(HEALTH) {
            return Box::pin(self.inner.call(request));
        }
        // Taken before looking, so that a drain which begins now waits for this request.
        let token = self.admission.admitted.token();
        if self.admission.draining.is_cancelled() {
            return Box::pin(std::future::ready(Ok(shutting_down().into_http())));
        }
        let expired = self.admission.expired.clone();
        let response = self.inner.call(request);
        Box::pin(async move {
            let Some(response) = expired.run_until_cancelled(response).await else {
                return Ok(shutting_down().into_http());
            };
            let response = response?;
            if response.extensions().get::<StreamResponse>().is_some() {
                return Ok(response);
            }
            Ok(response.map(|body| {
                Body::new(Held {
                    body,
                    _token: token,
                })
            }))
        })
    }
}

fn shutting_down() -> Status {
    Status::unavailable(SHUTTING_DOWN)
}

pin_project! {
    /// A response body that is waited for.
    struct Held {
        #[pin]
        body: Body,
        _token: TaskTrackerToken,
    }
}

impl HttpBody for Held {
    type Data = <Body as HttpBody>::Data;
    type Error = <Body as HttpBody>::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        self.project().body.poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
