//! The rest of request bodies that nobody reads any more, as those of refused calls. What is still on its way is read and
//! dropped, within bounds.
//!
//! The library resets a stream whose body is let go, and holds what still arrives for it against the connection: after a
//! thousand frames it ends the connection, and with it the calls of everybody behind the same proxy.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// Most bytes that are dropped of a body: the window of a stream, which is what can be on its way when a call is
/// answered. After that it is reset.
const MAX_BYTES: usize = 1 << 20;

/// Time for them: longer than what was on its way takes. Until then the stream counts among those of its connection.
const MAX_DURATION: Duration = Duration::from_secs(2);

/// A request body whose rest is discarded when it is dropped.
pub(super) struct Discarding {
    // None once it has ended.
    body: Option<Incoming>,
}

impl Discarding {
    pub(super) const fn new(body: Incoming) -> Self {
        Self { body: Some(body) }
    }
}

impl HttpBody for Discarding {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(body).poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

impl Drop for Discarding {
    fn drop(&mut self) {
        let Some(body) = self.body.take() else {
            return;
        };
        if body.is_end_stream() {
            return;
        }
        // Without a runtime there is no connection either.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async {
                // Late or not: it is dropped.
                let _ = timeout(MAX_DURATION, discard(body)).await;
            });
        }
    }
}

/// Reads to the end, or until it is too much.
async fn discard(mut body: Incoming) {
    let mut bytes = 0;
    while let Some(Ok(frame)) = body.frame().await {
        bytes += frame.data_ref().map_or(0, Buf::remaining);
        if bytes > MAX_BYTES {
            return;
        }
    }
}
