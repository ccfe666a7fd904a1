//! What the client of a bidirectional stream sends, in its order.

use std::collections::VecDeque;
use std::pin::Pin;

use futures::{FutureExt, Stream, StreamExt};

use super::challenge::Challenge;
use crate::End;
use crate::frame::ClientFrame;

/// Frames as the transport decodes them.
pub(super) type ClientFrames = Pin<Box<dyn Stream<Item = Result<ClientFrame, End>> + Send>>;

/// Client frames, those first that were put aside while looking for a late Pong.
pub(super) struct Inbound {
    kept: VecDeque<ClientFrame>,
    frames: ClientFrames,
}

impl Inbound {
    pub(super) const fn new(frames: ClientFrames) -> Self {
        Self {
            kept: VecDeque::new(),
            frames,
        }
    }

    /// The next frame; `None` after a half-close. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Result<ClientFrame, End>> {
        match self.kept.pop_front() {
            Some(frame) => Some(Ok(frame)),
            None => self.frames.next().await,
        }
    }

    /// Looks once, without waiting, at the frames that have arrived, for the answer to a challenge whose
    /// time is over (ARC-081). The frames before it keep their order for later, `max_bytes` of them.
    ///
    /// # Errors
    /// [`End::Keepalive`] where no answer is among them.
    pub(super) fn take_answer(
        &mut self,
        challenge: &Challenge,
        max_bytes: usize,
    ) -> Result<(), End> {
        let mut bytes = 0;
        loop {
            match self.frames.next().now_or_never() {
                None => return Err(End::Keepalive),
                Some(None) => return Err(End::Client),
                Some(Some(Err(end))) => return Err(end),
                Some(Some(Ok(ClientFrame::Pong(nonce)))) if challenge.is_answered_by(nonce) => {
                    return Ok(());
                }
                Some(Some(Ok(frame))) => {
                    if let ClientFrame::Update(update) = &frame {
                        bytes += update.encoded_len;
                    }
                    bytes += size_of::<ClientFrame>();
                    if bytes > max_bytes {
                        return Err(End::Capacity("pending control capacity exceeded"));
                    }
                    self.kept.push_back(frame);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use tokio::time::Instant;

    use super::*;

    const ENOUGH: usize = 10_000;

    /// Frames that have arrived, with more to come.
    fn arrived(frames: impl IntoIterator<Item = ClientFrame>) -> Inbound {
        let frames: Vec<_> = frames.into_iter().map(Ok).collect();
        Inbound::new(stream::iter(frames).chain(stream::pending()).boxed())
    }

    fn challenge(nonce: u64) -> Challenge {
        let mut challenge = Challenge::new(nonce, Instant::now());
        challenge.handed_off(Instant::now());
        challenge
    }

    #[tokio::test]
    async fn st_21_arc_081_a_late_pong_counts_and_the_frames_around_it_keep_their_order() {
        use ClientFrame::{Ping, Pong};
        let mut inbound = arrived([Ping(1), Pong(8), Ping(2), Pong(7), Ping(3)]);
        assert_eq!(inbound.take_answer(&challenge(7), ENOUGH), Ok(()));
        let mut order = Vec::new();
        for _ in 0..4 {
            match inbound.next().await {
                Some(Ok(Ping(nonce) | Pong(nonce))) => order.push(nonce),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(order, [1, 8, 2, 3]);
    }

    #[test]
    fn api_257_without_the_matching_pong_the_stream_ends() {
        for frames in [vec![], vec![ClientFrame::Pong(6), ClientFrame::Ping(7)]] {
            let answer = arrived(frames).take_answer(&challenge(7), ENOUGH);
            assert_eq!(answer, Err(End::Keepalive));
        }
    }

    #[test]
    fn api_259_a_half_close_found_meanwhile_is_a_clean_end() {
        let mut inbound = Inbound::new(stream::iter([Ok(ClientFrame::Ping(1))]).boxed());
        let answer = inbound.take_answer(&challenge(7), ENOUGH);
        assert_eq!(answer, Err(End::Client));
    }

    #[test]
    fn arc_080_the_frames_put_aside_are_bounded() {
        let pings = (0..1000).map(ClientFrame::Ping);
        let answer = arrived(pings).take_answer(&challenge(7), ENOUGH);
        assert!(matches!(answer, Err(End::Capacity(_))), "{answer:?}");
    }
}
