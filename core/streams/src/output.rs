//! The bounded, ordered queue between a session and its transport (ARC-080).

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures::Stream;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::frame::Frame;
use crate::settings::{OUTPUT_BYTES, OUTPUT_FRAMES};
use crate::{End, metrics};

/// Most bytes of an answer that outlives its stream's mistake: all but the `Applied` of hundreds of topics.
const SMALL_FRAME_BYTES: usize = 16 * 1024;

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
        let len = row.len();
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

    /// Whether a whole frame of history fits. History waits, so it takes half of the queue at most: the
    /// other half is for what cannot wait.
    pub(crate) fn has_room(&self) -> bool {
        let state = self.queue.lock();
        state.frames.len() < OUTPUT_FRAMES / 2 && state.bytes + self.frame_bytes <= OUTPUT_BYTES / 2
    }

    /// Whether the next client frame may be answered: while half of the queue's frames are free, so that the
    /// other half is left to what cannot wait.
    pub(crate) fn has_answer_room(&self) -> bool {
        self.queue.lock().frames.len() < OUTPUT_FRAMES / 2
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

    /// Ends the stream. After the client's own end everything that was admitted still goes out; after its
    /// mistake the answers do, and rows are left to the next stream. Any other end takes their place.
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

    fn retain(&mut self, keep: impl Fn(&Queued) -> bool) {
        self.frames
            .retain(|queued| keep(queued) && !matches!(queued.frame, Frame::Messages(_)));
        self.bytes = self.frames.iter().map(|queued| queued.bytes).sum();
    }

    fn finish(&mut self, end: End) {
        if self.end.is_none() {
            self.end = Some(end);
            match end {
                End::Client => {}
                // Nobody watches any more whether the peer reads: what stays has to be small.
                _ if end.is_mistake() => self.retain(|queued| queued.bytes <= SMALL_FRAME_BYTES),
                _ => self.retain(|_| false),
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
            if state.frames.is_empty() {
                // Thousands of idle streams keep what is not given back here.
                state.frames = VecDeque::new();
            }
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

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt};

    use super::*;

    const FRAME_BYTES: usize = 1000;

    fn take(stream: &mut OutputStream) -> Option<Result<Frame, End>> {
        stream.next().now_or_never().expect("something is there")
    }

    fn is_idle(stream: &mut OutputStream) -> bool {
        stream.next().now_or_never().is_none()
    }

    fn take_rows(stream: &mut OutputStream) -> usize {
        match take(stream) {
            Some(Ok(Frame::Messages(rows))) => rows.len(),
            _ => panic!("rows are next"),
        }
    }

    #[test]
    fn o2_frames_leave_in_the_order_of_their_admission() {
        let (mut output, mut stream) = channel(FRAME_BYTES);
        for nonce in 0..10 {
            output.admit(Frame::Pong(nonce)).unwrap();
        }
        for nonce in 0..10 {
            assert!(matches!(take(&mut stream), Some(Ok(Frame::Pong(taken))) if taken == nonce));
        }
        assert!(is_idle(&mut stream));
    }

    #[test]
    fn arc_080_the_queue_is_bounded_by_frames_until_the_transport_takes_one() {
        let (mut output, mut stream) = channel(FRAME_BYTES);
        for nonce in 0..OUTPUT_FRAMES as u64 {
            output.admit(Frame::Pong(nonce)).unwrap();
        }
        assert!(output.admit(Frame::Keepalive).is_err());
        assert!(matches!(take(&mut stream), Some(Ok(Frame::Pong(0)))));
        output.admit(Frame::Keepalive).unwrap();
    }

    #[test]
    fn history_takes_half_of_the_queue_and_leaves_the_rest_to_what_cannot_wait() {
        let (mut output, _stream) = channel(FRAME_BYTES);
        let history = || Frame::Messages(vec![Bytes::from(vec![0; FRAME_BYTES - 64])]);
        while output.has_room() {
            output.admit(history()).unwrap();
        }
        // An Applied of 100,000 topics, a Pong and live rows still fit.
        let applied = Bytes::from(vec![0; 5 << 20]);
        output.admit(Frame::Messages(vec![applied])).unwrap();
        output.admit(Frame::Pong(1)).unwrap();
        output.admit_row(Bytes::from(vec![0; 1 << 20])).unwrap();

        let (mut output, _stream) = channel(FRAME_BYTES);
        for nonce in 0..OUTPUT_FRAMES as u64 / 2 {
            assert!(output.has_room());
            output.admit(Frame::Pong(nonce)).unwrap();
        }
        assert!(!output.has_room());
        output.admit(Frame::Keepalive).unwrap();
    }

    #[test]
    fn arc_080_the_queue_is_bounded_by_bytes_and_a_refused_frame_changes_nothing() {
        let (mut output, mut stream) = channel(OUTPUT_BYTES);
        let half = || Bytes::from(vec![0; OUTPUT_BYTES / 2]);
        output.admit(Frame::Messages(vec![half()])).unwrap();
        assert!(output.admit(Frame::Messages(vec![half()])).is_err());
        assert!(output.admit_row(half()).is_err());
        output.admit(Frame::Pong(1)).unwrap();
        assert_eq!(take_rows(&mut stream), 1);
        assert!(matches!(take(&mut stream), Some(Ok(Frame::Pong(1)))));
        output.admit(Frame::Messages(vec![half()])).unwrap();
    }

    #[test]
    fn s07_live_rows_join_the_last_frame_while_it_is_here_and_has_room() {
        let (mut output, mut stream) = channel(FRAME_BYTES);
        let row = || Bytes::from(vec![0; 300]);
        for _ in 0..4 {
            output.admit_row(row()).unwrap();
        }
        assert_eq!(take_rows(&mut stream), 3, "three fit into one frame");
        output.admit_row(row()).unwrap();
        output.admit(Frame::Pong(1)).unwrap();
        output.admit_row(row()).unwrap();
        assert_eq!(take_rows(&mut stream), 2);
        assert!(matches!(take(&mut stream), Some(Ok(Frame::Pong(1)))));
        assert_eq!(
            take_rows(&mut stream),
            1,
            "no row overtakes a control frame"
        );
        output.admit_row(row()).unwrap();
        assert_eq!(take_rows(&mut stream), 1, "a frame that left is not joined");
    }

    #[test]
    fn str_035_the_clients_own_end_flushes_the_queue_and_is_no_error() {
        let (mut output, mut stream) = channel(FRAME_BYTES);
        output.admit(Frame::Pong(1)).unwrap();
        output.finish(End::Client);
        assert!(matches!(take(&mut stream), Some(Ok(Frame::Pong(1)))));
        assert!(take(&mut stream).is_none());
    }

    #[test]
    fn st_17_a_clients_mistake_is_said_after_what_was_admitted() {
        let (mut output, mut stream) = channel(FRAME_BYTES);
        output.admit(Frame::Pong(1)).unwrap();
        output.admit_row(Bytes::from(vec![0; 100])).unwrap();
        output.admit(Frame::Pong(2)).unwrap();
        output.finish(End::RateLimited("ping rate exceeded"));
        assert!(matches!(take(&mut stream), Some(Ok(Frame::Pong(1)))));
        assert!(matches!(take(&mut stream), Some(Ok(Frame::Pong(2)))));
        assert!(matches!(take(&mut stream), Some(Err(End::RateLimited(_)))));
        assert!(take(&mut stream).is_none());
    }

    #[test]
    fn arc_082_any_other_end_is_said_at_once_and_once() {
        let (mut output, mut stream) = channel(FRAME_BYTES);
        output.admit(Frame::Pong(1)).unwrap();
        output.finish(End::Tailer);
        output.finish(End::Shutdown);
        assert!(matches!(take(&mut stream), Some(Err(End::Tailer))));
        assert!(take(&mut stream).is_none());
    }

    #[test]
    fn arc_081_a_ping_is_handed_off_when_the_transport_takes_it() {
        let (mut output, mut stream) = channel(FRAME_BYTES);
        for nonce in 1..=2 {
            output.admit(Frame::Ping(nonce)).unwrap();
            assert_eq!(output.ping_taken(), None);
            assert!(matches!(take(&mut stream), Some(Ok(Frame::Ping(_)))));
            assert!(output.ping_taken().is_some());
        }
    }

    #[tokio::test]
    async fn arc_082_a_transport_that_goes_away_is_noticed() {
        let (output, stream) = channel(FRAME_BYTES);
        assert!(!output.is_abandoned());
        drop(stream);
        output.taken().await;
        assert!(output.is_abandoned());
    }
}
