//! Messages as gRPC frames them, before the library reads them and after it has written them. What it would refuse by
//! itself is refused here, with statuses of our own (API-281, contract of the API, sections 11.1 and 11.4).
//!
//! A frame that is taken apart on the way costs a look at each prefix; nothing is copied. Inside gRPC-Web, so that both
//! flavours are one.

use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures::future::{Either, MapOk, TryFutureExt};
use http::{HeaderMap, HeaderName, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use pin_project_lite::pin_project;
use tonic::body::Body;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};
use tower::{Layer, Service};

use super::admission::StreamResponse;
use super::calls::Call;
use crate::request::Undecodable;
use crate::status;
use crate::telemetry::route::RouteKind;

/// Name of the header that says how messages are compressed.
const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const ACCEPT_ENCODING: &str = "grpc-accept-encoding";
const IDENTITY: &str = "identity";

/// Bytes of a prefix: a flag, and the length of the message.
const PREFIX_BYTES: usize = 5;

/// Holds what is framed to what is understood.
#[derive(Clone, Copy)]
pub(super) struct FramingLayer {
    /// Most bytes of a message of a request.
    pub(super) max_request_bytes: usize,
}

impl<S> Layer<S> for FramingLayer {
    type Service = Framing<S>;

    fn layer(&self, inner: S) -> Framing<S> {
        Framing {
            inner,
            max_request_bytes: self.max_request_bytes,
        }
    }
}

#[derive(Clone)]
pub(super) struct Framing<S> {
    inner: S,
    max_request_bytes: usize,
}

impl<S> Service<Request<Body>> for Framing<S>
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
        let encoding = request.headers().get(ENCODING);
        if encoding.is_some_and(|encoding| encoding != IDENTITY) {
            return Either::Left(ready(Ok(compressed().into_http())));
        }
        let call = request.extensions().get::<Arc<Call>>();
        let needs_message = call.is_some_and(|call| call.kind() != RouteKind::BidiStream);
        let max_bytes = self.max_request_bytes;
        let request = request.map(|body| {
            Body::new(Messages {
                body,
                max_bytes,
                place: Place::START,
                needs_message,
                failed: None,
            })
        });
        Either::Right(self.inner.call(request).map_ok(in_our_words as fn(_) -> _))
    }
}

fn compressed() -> Status {
    let mut status = Status::unimplemented("compression is not supported");
    let accepted = MetadataValue::from_static(IDENTITY);
    status.metadata_mut().insert(ACCEPT_ENCODING, accepted);
    status
}

/// Where in the frames a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Bytes of a prefix that have been seen, and the length as far as they say it.
    Prefix { seen: usize, length: u32 },
    /// Bytes of a message that are to come, of which there is at least one.
    Message { left: usize },
}

impl Place {
    const START: Self = Self::Prefix { seen: 0, length: 0 };

    /// Goes through `bytes`, as far as they can be taken: how many there are of these, and what is wrong with the next.
    fn advance(&mut self, bytes: &[u8], max_bytes: usize) -> (usize, Option<Status>) {
        let mut at = 0;
        // The end of the last message that is whole, or goes on.
        let mut good = 0;
        while at < bytes.len() {
            match self {
                Self::Message { left } => {
                    let taken = (*left).min(bytes.len() - at);
                    *left -= taken;
                    at += taken;
                    good = at;
                    if *left == 0 {
                        *self = Self::START;
                    }
                }
                Self::Prefix { seen, length } => {
                    let byte = bytes[at];
                    at += 1;
                    if *seen == 0 {
                        if byte != 0 {
                            return (good, Some(status::undecodable(Undecodable)));
                        }
                    } else {
                        *length = *length << 8 | u32::from(byte);
                    }
                    *seen += 1;
                    if *seen == PREFIX_BYTES {
                        let left = *length as usize;
                        if left > max_bytes {
                            return (good, Some(status::request_too_long()));
                        }
                        *self = if left == 0 {
                            good = at;
                            Self::START
                        } else {
                            Self::Message { left }
                        };
                    }
                }
            }
        }
        (at, None)
    }
}

pin_project! {
    /// The messages of a request.
    struct Messages {
        #[pin]
        body: Body,
        max_bytes: usize,
        place: Place,
        // Whether the body may not end before a message has begun.
        needs_message: bool,
        // What comes after the bytes that have been handed on.
        failed: Option<Status>,
    }
}

impl HttpBody for Messages {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.project();
        if let Some(status) = this.failed.take() {
            return Poll::Ready(Some(Err(status)));
        }
        let frame = match ready!(this.body.poll_frame(context)).transpose() {
            Ok(frame) => frame,
            Err(error) => return Poll::Ready(Some(Err(broken(&error)))),
        };
        // Trailers are an end as well.
        let Some(mut bytes) = frame.and_then(|frame| frame.into_data().ok()) else {
            if *this.place != Place::START {
                *this.place = Place::START;
                return Poll::Ready(Some(Err(status::undecodable(Undecodable))));
            }
            if *this.needs_message {
                *this.needs_message = false;
                return Poll::Ready(Some(Err(status::request_missing())));
            }
            return Poll::Ready(None);
        };
        *this.needs_message &= !bytes.has_remaining();
        let (taken, failed) = this.place.advance(&bytes, *this.max_bytes);
        bytes.truncate(taken);
        match failed {
            Some(status) if bytes.is_empty() => return Poll::Ready(Some(Err(status))),
            failed => *this.failed = failed,
        }
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        // What is missing at the end is an error that has to be asked for.
        self.failed.is_none()
            && !self.needs_message
            && self.place == Place::START
            && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A body that does not arrive, or is not what gRPC-Web makes of one.
fn broken(error: &Status) -> Status {
    match error.code() {
        Code::Internal => status::undecodable(Undecodable),
        code => Status::new(code, "request was interrupted"),
    }
}

/// An answer with our own words where the library would not write its message.
fn in_our_words(response: Response<Body>) -> Response<Body> {
    // Streams are not written by the library.
    if response.extensions().get::<StreamResponse>().is_some() {
        return response;
    }
    response.map(|body| {
        Body::new(body.map_frame(|mut frame| {
            if let Some(trailers) = frame.trailers_mut()
                && is_too_long(trailers)
            {
                *trailers = status::trailers(&status::response_too_long());
            }
            frame
        }))
    })
}

/// Whether the library has refused to write an answer. What a service refuses stands in the headers.
fn is_too_long(trailers: &HeaderMap) -> bool {
    let status = trailers.get(Status::GRPC_STATUS);
    status.is_some_and(|status| Code::from_bytes(status.as_bytes()) == Code::OutOfRange)
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt, stream};
    use http::HeaderMap;
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    /// The bytes that come through of `parts`, and the status at their end, which trailers do not change.
    async fn read(parts: &[&[u8]], needs_message: bool) -> (Vec<u8>, Option<Status>) {
        let data = || {
            let parts = parts.iter().map(|part| Bytes::copy_from_slice(part));
            parts.map(Frame::data)
        };
        let plain = read_frames(data().collect(), needs_message).await;
        let trailers = Frame::trailers(HeaderMap::new());
        let trailed = read_frames(data().chain([trailers]).collect(), needs_message).await;
        let code = |status: &Option<Status>| status.as_ref().map(Status::code);
        assert_eq!((&plain.0, code(&plain.1)), (&trailed.0, code(&trailed.1)));
        plain
    }

    async fn read_frames(
        frames: Vec<Frame<Bytes>>,
        needs_message: bool,
    ) -> (Vec<u8>, Option<Status>) {
        let frames = stream::iter(frames).map(Ok::<_, Status>);
        let mut body = Messages {
            body: Body::new(StreamBody::new(frames)),
            max_bytes: 3,
            place: Place::START,
            needs_message,
            failed: None,
        };
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => bytes.extend(frame.into_data().unwrap()),
                Err(status) => return (bytes, Some(status)),
            }
        }
        (bytes, None)
    }

    #[tokio::test]
    async fn api_281_whole_messages_come_through_however_they_are_cut() {
        let messages = b"\0\0\0\0\x03abc\0\0\0\0\0\0\0\0\0\x01d";
        for size in 1..=messages.len() {
            let parts: Vec<&[u8]> = messages.chunks(size).collect();
            let (bytes, status) = read(&parts, true).await;
            assert_eq!((&bytes[..], status.is_none()), (&messages[..], true));
        }
        assert!(read(&[], false).await.1.is_none());
    }

    #[tokio::test]
    async fn api_281_what_is_framed_wrongly_ends_after_the_messages_before_it() {
        let good = &b"\0\0\0\0\x01a"[..];
        for (bad, code) in [
            (&b"\x01\0\0\0\0"[..], Code::Internal),
            (b"\x02", Code::Internal),
            (b"\x80\0\0\0\0", Code::Internal),
            (b"\0", Code::Internal),
            (b"\0\0\0\0", Code::Internal),
            (b"\0\0\0\0\x02b", Code::Internal),
            (b"\0\0\0\0\x04", Code::OutOfRange),
            (b"\0\xff\xff\xff\xff", Code::OutOfRange),
        ] {
            for parts in [&[good, bad][..], &[&[good, bad].concat()[..]]] {
                let (bytes, status) = read(parts, true).await;
                assert!(bytes.starts_with(good), "{bad:?}");
                assert_eq!(status.map(|status| status.code()), Some(code), "{bad:?}");
            }
        }
        let (_, status) = read(&[b"", b""], true).await;
        assert_eq!(status.map(|status| status.code()), Some(Code::Internal));
    }
}
