//! Calls whose answer is a stream of messages that are encoded already.
//!
//! The library encodes into a buffer of each call, and keeps the largest for as long as the call lasts. A server
//! has thousands of idle streams: here a message leaves in parts of its own, and nothing of it stays.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use http::{Request, Response, header};
use http_body::{Body as HttpBody, Frame};
use tonic::body::Body;
use tonic::metadata::GRPC_CONTENT_TYPE;
use tonic::{Status, Streaming};

use super::admission::StreamResponse;
use crate::codec::EncodedDecoder;
use crate::frames::Parts;
use crate::request::Encoded;
use crate::status;

/// The messages of a request, none longer than `max_bytes`.
pub(crate) fn messages<M: 'static>(
    request: Request<Body>,
    max_bytes: usize,
) -> Streaming<Encoded<M>> {
    let body = request.into_body();
    let decoder = EncodedDecoder::default();
    Streaming::new_request(decoder, body, None, Some(max_bytes))
}

/// The answer of a call. No drain waits for its end: the stream is told to end instead.
pub(crate) fn response(
    messages: impl Stream<Item = Result<Parts, Status>> + Send + Unpin + 'static,
) -> Response<Body> {
    let mut response = Response::new(Body::new(Messages {
        messages,
        parts: Parts::new(),
        ended: false,
    }));
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, GRPC_CONTENT_TYPE);
    response.extensions_mut().insert(StreamResponse);
    response
}

/// Messages, then the status.
struct Messages<S> {
    messages: S,
    /// What is left of the message that is on its way.
    parts: Parts,
    ended: bool,
}

impl<S> HttpBody for Messages<S>
where
    S: Stream<Item = Result<Parts, Status>> + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        while self.parts.is_empty() {
            if self.ended {
                return Poll::Ready(None);
            }
            let status = match Pin::new(&mut self.messages).poll_next(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(parts))) => {
                    self.parts = parts;
                    continue;
                }
                Poll::Ready(Some(Err(status))) => status,
                Poll::Ready(None) => Status::ok(""),
            };
            self.ended = true;
            return Poll::Ready(Some(Ok(Frame::trailers(status::trailers(&status)))));
        }
        let part = self.parts.remove(0);
        Poll::Ready(Some(Ok(Frame::data(part))))
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn parts_leave_in_order_and_the_status_once() {
        let message = Parts::from_vec(vec![Bytes::from_static(b"a"), Bytes::from_static(b"b")]);
        let messages = [
            Ok(message.clone()),
            Ok(message),
            Err(Status::aborted("over")),
        ];
        let mut body = response(stream::iter(messages)).into_body();
        for expected in ["a", "b", "a", "b"] {
            let frame = body.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), expected);
        }
        let trailers = body
            .frame()
            .await
            .unwrap()
            .unwrap()
            .into_trailers()
            .unwrap();
        assert_eq!(trailers[Status::GRPC_STATUS], "10");
        assert_eq!(trailers[Status::GRPC_MESSAGE], "over");
        assert!(body.frame().await.is_none());
    }
}
