//! The first bytes of a connection: the peer has a bounded time for them.
//!
//! The library waits for them without an end, to learn which version of HTTP is spoken; its own bounds begin
//! after that. A peer that says nothing would keep its socket for ever.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Time for them.
const OPENING_TIMEOUT: Duration = Duration::from_secs(30);

/// Length of the preface of HTTP/2. No request of HTTP/1.1 that names its host is shorter.
const OPENING_BYTES: usize = 24;

/// A stream whose reads fail when its first bytes are late.
pub(super) struct Opening<S> {
    stream: S,
    // None once they are there.
    deadline: Option<Pin<Box<Sleep>>>,
    missing: usize,
}

impl<S> Opening<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            deadline: Some(Box::pin(sleep(OPENING_TIMEOUT))),
            missing: OPENING_BYTES,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Opening<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, buffer);
        let Some(deadline) = &mut this.deadline else {
            return read;
        };
        if read.is_ready() {
            this.missing = this.missing.saturating_sub(buffer.filled().len() - before);
            if this.missing == 0 {
                this.deadline = None;
            }
            return read;
        }
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Err(ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Opening<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_does_not_say_its_protocol_is_given_up() {
        for said in ["", "P", "PRI * HTTP/2.0\r\n\r\n"] {
            let (mut peer, stream) = duplex(100);
            peer.write_all(said.as_bytes()).await.unwrap();
            let mut opening = Opening::new(stream);
            let begin = Instant::now();
            let error = opening.read_to_end(&mut Vec::new()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            assert_eq!(begin.elapsed(), OPENING_TIMEOUT);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_has_said_it_may_rest() {
        let (mut peer, stream) = duplex(100);
        let mut opening = Opening::new(stream);
        peer.write_all(&[0; OPENING_BYTES]).await.unwrap();
        opening.read_exact(&mut [0; OPENING_BYTES]).await.unwrap();
        sleep(OPENING_TIMEOUT * 2).await;
        peer.write_all(&[1]).await.unwrap();
        assert_eq!(opening.read_u8().await.unwrap(), 1);
    }
}
