//! `grpc-timeout`: how long a caller waits for the whole call, streams included (contract decisions, 11).
//!
//! The library answers it outside every layer of ours, with `CANCELLED`; here the answer has a request
//! id and CORS headers like any other. At the deadline the handler is dropped, and with it its locks
//! (ARC-051).

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{HeaderMap, HeaderName, Request, Response, request};
use http_body::{Body as HttpBody, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service};

use crate::status;

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Most digits of a timeout.
const MAX_DIGITS: usize = 8;

/// Ends calls at their callers' deadlines.
#[derive(Clone, Copy)]
pub(super) struct DeadlineLayer;

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadline<S>;

    fn layer(&self, inner: S) -> Deadline<S> {
        Deadline { inner }
    }
}

/// When a call ends, counted from when an outer layer took it up. An extension of the request.
#[derive(Clone, Copy)]
struct CallDeadline(Instant);

/// When the call ends; `None` where its caller has not said. Layers inside count from now as well.
pub(super) fn begin(head: &mut request::Parts) -> Option<Instant> {
    let deadline = deadline(&head.headers)?;
    head.extensions.insert(CallDeadline(deadline));
    Some(deadline)
}

/// What becomes of `work` until the deadline.
///
/// # Errors
/// The deadline was first, and ends the call.
pub(super) async fn within<T>(
    deadline: Option<Instant>,
    work: impl Future<Output = T>,
) -> Result<T, Status> {
    match deadline {
        None => Ok(work.await),
        Some(deadline) => timeout_at(deadline, work).await.map_err(|_| exceeded()),
    }
}

#[derive(Clone)]
pub(super) struct Deadline<S> {
    inner: S,
}

impl<S> Service<Request<Body>> for Deadline<S>
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
        let deadline = match request.extensions().get() {
            Some(CallDeadline(deadline)) => Some(*deadline),
            None => deadline(request.headers()),
        };
        let response = self.inner.call(request);
        let Some(deadline) = deadline else {
            return Box::pin(response);
        };
        Box::pin(async move {
            let response = match within(Some(deadline), response).await {
                Ok(response) => response?,
                Err(exceeded) => return Ok(exceeded.into_http()),
            };
            Ok(response.map(|body| {
                Body::new(Timed {
                    body: Some(body),
                    deadline: sleep_until(deadline),
                })
            }))
        })
    }
}

fn exceeded() -> Status {
    Status::deadline_exceeded("call timed out")
}

fn deadline(headers: &HeaderMap) -> Option<Instant> {
    Instant::now().checked_add(timeout(headers)?)
}

/// The timeout that the headers name; `None` without one, or for one that is malformed.
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(GRPC_TIMEOUT)?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > MAX_DIGITS || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 60 * 60),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

pin_project! {
    /// A response body that ends at its deadline.
    struct Timed {
        // None once the deadline has ended it.
        #[pin]
        body: Option<Body>,
        #[pin]
        deadline: Sleep,
    }
}

impl HttpBody for Timed {
    type Data = <Body as HttpBody>::Data;
    type Error = <Body as HttpBody>::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let mut this = self.project();
        let Some(body) = this.body.as_mut().as_pin_mut() else {
            return Poll::Ready(None);
        };
        // First, or a stream that always has a frame would never end.
        if this.deadline.poll(context).is_pending() {
            return body.poll_frame(context);
        }
        this.body.set(None);
        let trailers = status::trailers(&exceeded());
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or_else(SizeHint::default, HttpBody::size_hint)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn parsed(text: &'static str) -> Option<Duration> {
        timeout(&HeaderMap::from_iter([(
            GRPC_TIMEOUT,
            HeaderValue::from_static(text),
        )]))
    }

    #[test]
    fn every_unit_of_a_timeout_is_understood() {
        for (text, seconds) in [
            ("2H", 7200.0),
            ("3M", 180.0),
            ("0S", 0.0),
            ("99999999S", 99_999_999.0),
            ("5m", 0.005),
            ("6u", 0.000_006),
            ("00000007n", 0.000_000_007),
        ] {
            assert_eq!(
                parsed(text),
                Some(Duration::from_secs_f64(seconds)),
                "{text}"
            );
        }
    }

    #[test]
    fn a_malformed_timeout_is_none() {
        for text in [
            "",
            "S",
            "5",
            "5s",
            "5 S",
            "-5S",
            "+5S",
            "5SS",
            "123456789S",
            "5.5S",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
        assert_eq!(timeout(&HeaderMap::new()), None);
    }
}
