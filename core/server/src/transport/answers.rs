//! What is held of finished answers for peers that have not taken them yet: bounded in bytes, and in time.
//!
//! A peer decides how fast it takes an answer, and the library asks for as much of it as there is, whether the peer
//! takes any or not. Here a large answer leaves in chunks, so that no more than a chunk is out of reach. The rest is
//! let go once the peer takes nothing, by a clock of its own: for a peer that takes nothing the library never asks
//! again. Streams have bounds of their own and pass; so do answers of a chunk or less, untouched.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};

use super::admission::StreamResponse;
use super::calls::Call;
use crate::status;
use crate::telemetry::route::RouteKind;

/// Most bytes that leave in one piece. A multiple of three: in the text flavour of gRPC-Web the chunks of a message
/// join without padding between them, and are 64 KiB each.
const CHUNK_BYTES: usize = 48 << 10;

/// How much is held of answers that have not left yet, and for how long.
#[derive(Clone, Copy)]
pub(crate) struct AnswerLimits {
    /// Most bytes of all large answers of this instance.
    max_bytes: usize,
    /// Most bytes of those that wait for room among them, on top.
    max_waiting_bytes: usize,
    /// Longest wait for room.
    max_wait: Duration,
    /// Longest time in which a peer takes no chunk.
    max_pause: Duration,
}

impl Default for AnswerLimits {
    /// 256 MiB are ten answers of the largest size, or 64 times a page of 4 MiB. Room comes with every answer that
    /// has left, so that a second tells a burst from an overload, and the answers of a second fit in 64 MiB. In 30
    /// seconds the slowest line that is in use takes a chunk, at 1.6 kB a second, and a phone is back from a tunnel.
    fn default() -> Self {
        Self {
            max_bytes: 256 << 20,
            max_waiting_bytes: 64 << 20,
            max_wait: Duration::from_secs(1),
            max_pause: Duration::from_secs(30),
        }
    }
}

/// Ends the connection of a request that has it for itself, which is one of HTTP/1.1: an extension of the request.
#[derive(Clone)]
pub(super) struct OwnConnection(pub(super) CancellationToken);

/// Holds answers to [`AnswerLimits`].
#[derive(Clone)]
pub(super) struct AnswersLayer(Room);

impl AnswersLayer {
    pub(super) fn new(limits: AnswerLimits) -> Self {
        Self(Room {
            limits,
            held: Arc::new(Semaphore::new(limits.max_bytes)),
            waiting: Arc::new(Semaphore::new(limits.max_waiting_bytes)),
        })
    }
}

impl<S> Layer<S> for AnswersLayer {
    type Service = Answers<S>;

    fn layer(&self, inner: S) -> Answers<S> {
        Answers {
            inner,
            room: self.0.clone(),
        }
    }
}

#[derive(Clone)]
pub(super) struct Answers<S> {
    inner: S,
    room: Room,
}

impl<S> Service<Request<Body>> for Answers<S>
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
        let call = request.extensions().get::<Arc<Call>>();
        let Some(call) = call.filter(|call| call.kind() == RouteKind::Unary).cloned() else {
            return Box::pin(self.inner.call(request));
        };
        let connection = request.extensions().get::<OwnConnection>().cloned();
        let room = self.room.clone();
        let response = self.inner.call(request);
        Box::pin(async move {
            let response = response.await?;
            if response.body().is_end_stream()
                || response.extensions().get::<StreamResponse>().is_some()
            {
                return Ok(response);
            }
            let (head, mut rest) = response.into_parts();
            // The library encodes an answer when it is first asked for it, and has it then in one piece.
            let mut first = rest.frame().await;
            let mut unread = None;
            if let Some(Ok(frame)) = &mut first
                && let Some(bytes) = frame.data_mut()
                && bytes.len() > CHUNK_BYTES
            {
                let Some(place) = room.place(bytes.len()).await else {
                    return Ok(status::answers_unread().into_http());
                };
                let bytes = std::mem::take(bytes);
                // The buffer that the library encodes into is the same memory: it goes, and leaves the trailers.
                first = rest.frame().await;
                rest = Body::empty();
                let paused = move |was_let_go| {
                    if was_let_go {
                        call.answered(Code::DeadlineExceeded);
                    }
                    if let Some(OwnConnection(connection)) = connection {
                        connection.cancel();
                    }
                };
                unread = Some(Unread::new(bytes, place, room.limits.max_pause, paused));
            }
            let answer = Answer {
                unread,
                first,
                rest,
            };
            Ok(Response::from_parts(head, Body::new(answer)))
        })
    }
}

/// Room for answers, in bytes. Cheap to clone.
#[derive(Clone)]
struct Room {
    limits: AnswerLimits,
    held: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

impl Room {
    /// Room for `bytes`; `None` where there is none in time. What waits for it is held as well, and is bounded itself.
    async fn place(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes).ok()?;
        if let Ok(place) = Arc::clone(&self.held).try_acquire_many_owned(bytes) {
            return Some(place);
        }
        let _waiting = self.waiting.try_acquire_many(bytes).ok()?;
        let place = Arc::clone(&self.held).acquire_many_owned(bytes);
        timeout(self.limits.max_wait, place).await.ok()?.ok()
    }
}

/// The one message of an answer, and its trailers.
struct Answer {
    /// A message of more than a chunk.
    unread: Option<Arc<Unread>>,
    /// A message of a chunk or less, or the trailers.
    first: Option<Result<Frame<Bytes>, Status>>,
    rest: Body,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(unread) = &self.unread {
            match unread.take_chunk() {
                Taken::Chunk(chunk) => return Poll::Ready(Some(Ok(Frame::data(chunk)))),
                Taken::All => self.unread = None,
                Taken::LetGo => {
                    self.unread = None;
                    self.first = None;
                    return Poll::Ready(Some(Err(status::answer_not_read())));
                }
            }
        }
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        Pin::new(&mut self.rest).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.unread.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// What is left of a large answer. Its body has it, and so has each chunk that is on its way.
struct Unread {
    state: Mutex<State>,
    /// Ends with this.
    _watch: AbortOnDropHandle<()>,
}

struct State {
    message: Message,
    /// When the peer took something last, as far as the transport tells: it asked for a chunk, or let go of one.
    moved: Instant,
}

enum Message {
    /// Chunks are parts of one allocation, of which the whole is held until the last is taken.
    Held {
        bytes: Bytes,
        _place: OwnedSemaphorePermit,
    },
    Taken,
    LetGo,
}

enum Taken {
    Chunk(Bytes),
    All,
    LetGo,
}

impl Unread {
    /// `paused` is called once nothing has moved for `max_pause`, with whether there was something to let go.
    fn new(
        bytes: Bytes,
        place: OwnedSemaphorePermit,
        max_pause: Duration,
        paused: impl FnOnce(bool) + Send + 'static,
    ) -> Arc<Self> {
        Arc::new_cyclic(|unread| {
            let watch = watch(Weak::clone(unread), max_pause, paused);
            Self {
                state: Mutex::new(State {
                    message: Message::Held {
                        bytes,
                        _place: place,
                    },
                    moved: Instant::now(),
                }),
                _watch: AbortOnDropHandle::new(tokio::spawn(watch)),
            }
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_chunk(self: &Arc<Self>) -> Taken {
        let mut state = self.state();
        let Message::Held { bytes, .. } = &mut state.message else {
            return match state.message {
                Message::LetGo => Taken::LetGo,
                _ => Taken::All,
            };
        };
        let part = bytes.split_to(bytes.len().min(CHUNK_BYTES));
        // A part would keep the whole for as long as the transport has it.
        let chunk = Chunk {
            bytes: part.to_vec(),
            unread: Arc::clone(self),
        };
        if bytes.is_empty() {
            state.message = Message::Taken;
        }
        state.moved = Instant::now();
        Taken::Chunk(Bytes::from_owner(chunk))
    }
}

/// A chunk in the hands of the transport.
struct Chunk {
    bytes: Vec<u8>,
    unread: Arc<Unread>,
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // A transport asks for several before it sends the first, and for none until it has sent the last.
        self.unread.state().moved = Instant::now();
    }
}

/// Lets an answer go when the peer takes nothing of it for `max_pause`.
async fn watch(unread: Weak<Unread>, max_pause: Duration, paused: impl FnOnce(bool)) {
    let mut until = Instant::now() + max_pause;
    loop {
        sleep_until(until).await;
        let Some(unread) = unread.upgrade() else {
            return;
        };
        let mut state = unread.state();
        until = state.moved + max_pause;
        if until > Instant::now() {
            continue;
        }
        let is_held = matches!(state.message, Message::Held { .. });
        if is_held {
            state.message = Message::LetGo;
        }
        drop(state);
        paused(is_held);
        return;
    }
}

#[cfg(test)]
mod tests;
