//! The bounded, ordered queue between a session and its transport (ARC-080).

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures::Stream;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::frame::{Frame, row_len};
use crate::settings::{OUTPUT_BYTES, OUTPUT_FRAMES};
use crate::{End, metrics};

/// What did not fit. The queue is unchanged.
#[derive(Debug)]
pub(crate) struct Full;

/// The session's side.
pub(crate) struct Output {
    queue: Arc<Queue>,
    /// Most bytes of a data frame.
    frame_bytes: usize,
    /// When a frame was last admitted.
    last_admission: Instant,
}

/// The transport's side: the frames, and the end if it is not the client's own. A frame leaves the
/// queue's budget when it is taken here.
pub struct OutputStream {
    queue: Arc<Queue>,
}

struct Queue {
    state: Mutex<State>,
    /// The transport took a frame or went away.
    taken: Notify,
}

#[derive(Default)]
struct State {
    frames: VecDeque<Queued>,
    bytes: usize,
    end: Option<End>,
    waker: Option<Waker>,
    /// When the transport took the last Ping.
    ping_taken: Option<Instant>,
    abandoned: bool,
}

/// A frame and its length on the wire.
struct Queued {
    frame: Frame,
    bytes: usize,
}

pub(crate) fn channel(frame_bytes: usize) -> (Output, OutputStream) {
    let queue = Arc::new(Queue {
        state: Mutex::default(),
        taken: Notify::new(),
    });
    let output = Output {
        queue: Arc::clone(&queue),
        frame_bytes,
        last_admission: Instant::now(),
    };
    (output, OutputStream { queue })
}

impl Output {
    /// Admits a frame that must not wait.
    pub(crate) fn admit(&mut self, frame: Frame) -> Result<(), Full> {
        let mut state = self.queue.lock();
        let bytes = frame.wire_len();
        if state.frames.len() >= OUTPUT_FRAMES || state.bytes + bytes > OUTPUT_BYTES {
            return Err(Full);
        }
        metrics::frame_sent(&frame);
        if matches!(frame, Frame::Ping(_)) {
            state.ping_taken = None;
        }
        state.frames.push_back(Queued { frame, bytes });
        state.bytes += bytes;
        self.last_admission = Instant::now();
        state.wake();
        Ok(())
    }

    /// Admits one live row: into the last frame while that has room and is still here, so that a
    /// stalled network costs bytes and not frames.
    pub(crate) fn admit_row(&mut self, row: Bytes) -> Result<(), Full> {
        let len = row_len(&row);
        let mut state = self.queue.lock();
        let fits = state.bytes + len <= OUTPUT_BYTES;
        if let Some(Queued {
            frame: Frame::Messages(rows),
            bytes,
        }) = state.frames.back_mut()
            && *bytes + len <= self.frame_bytes
        {
            if !fits {
                return Err(Full);
            }
            rows.push(row);
            *bytes += len;
            state.bytes += len;
            self.last_admission = Instant::now();
            return Ok(());
        }
        drop(state);
        self.admit(Frame::Messages(vec![row]))
    }

    /// Whether a whole data frame fits.
    pub(crate) fn has_room(&self) -> bool {
        let state = self.queue.lock();
        state.frames.len() < OUTPUT_FRAMES && state.bytes + self.frame_bytes <= OUTPUT_BYTES
    }

    /// Resolves when the transport has taken something since the last call, or has gone.
    pub(crate) async fn taken(&self) {
        self.queue.taken.notified().await;
    }

    /// Whether the transport has gone.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.queue.lock().abandoned
    }

    /// When a frame was last admitted.
    pub(crate) const fn last_admission(&self) -> Instant {
        self.last_admission
    }

    /// When the transport took the Ping that was admitted last.
    pub(crate) fn ping_taken(&self) -> Option<Instant> {
        self.queue.lock().ping_taken
    }

    /// Ends the stream. After the client's own end the frames in the queue still go out; any other end
    /// takes their place.
    pub(crate) fn finish(&self, end: End) {
        self.queue.lock().finish(end);
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn finish(&mut self, end: End) {
        if self.end.is_none() {
            self.end = Some(end);
            if end != End::Client {
                self.frames.clear();
                self.bytes = 0;
            }
            self.wake();
        }
    }
}

impl Stream for OutputStream {
    type Item = Result<Frame, End>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.queue.lock();
        if let Some(Queued { frame, bytes }) = state.frames.pop_front() {
            state.bytes -= bytes;
            if matches!(frame, Frame::Ping(_)) {
                state.ping_taken = Some(Instant::now());
            }
            drop(state);
            self.queue.taken.notify_one();
            return Poll::Ready(Some(Ok(frame)));
        }
        match state.end {
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
            Some(End::Client) => Poll::Ready(None),
            Some(end) => {
                // The status is said once.
                state.end = Some(End::Client);
                Poll::Ready(Some(Err(end)))
            }
        }
    }
}

impl Drop for OutputStream {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.abandoned = true;
        state.frames.clear();
        state.bytes = 0;
        drop(state);
        self.queue.taken.notify_one();
    }
}
