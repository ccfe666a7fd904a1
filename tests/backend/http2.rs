//! HTTP/2, frame by frame.

use std::io;
use std::net::SocketAddr;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::within;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const END_STREAM: u8 = 1;
/// Of settings.
pub(crate) const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// A frame that the server sent.
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Bytes,
}

/// A connection on which nothing is sent but what the test says.
pub(crate) struct Wire(TcpStream);

impl Wire {
    pub(crate) async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("connected");
        let mut wire = Self(stream);
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        wire.0.write_all(preface).await.expect("sent");
        wire.send(SETTINGS, 0, 0, b"").await;
        wire
    }

    pub(crate) async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let sent = self.try_send(kind, flags, stream, payload).await;
        sent.expect("the server listens");
    }

    /// Sends a frame to a server that may have hung up.
    pub(crate) async fn try_send(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
    ) -> io::Result<()> {
        let mut bytes = BytesMut::new();
        bytes.put_uint(payload.len() as u64, 3);
        bytes.put_u8(kind);
        bytes.put_u8(flags);
        bytes.put_u32(stream);
        bytes.put_slice(payload);
        self.0.write_all(&bytes).await
    }

    /// Opens a stream for a call whose body is still to come.
    pub(crate) async fn open_stream(&mut self, stream: u32, path: &str) -> io::Result<()> {
        let mut headers = BytesMut::new();
        for (name, value) in [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "test"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ] {
            // A literal that enters no table.
            headers.put_u8(0);
            for text in [name, value] {
                headers.put_u8(text.len().try_into().expect("short"));
                headers.put_slice(text.as_bytes());
            }
        }
        self.try_send(HEADERS, END_HEADERS, stream, &headers).await
    }

    async fn receive(&mut self) -> Frame {
        let mut head = [0; 9];
        within(self.0.read_exact(&mut head)).await.expect("a frame");
        let mut head = &head[..];
        let length = usize::try_from(head.get_uint(3)).expect("short");
        let (kind, flags, stream) = (head.get_u8(), head.get_u8(), head.get_u32());
        let mut payload = vec![0; length];
        within(self.0.read_exact(&mut payload))
            .await
            .expect("its payload");
        Frame {
            kind,
            flags,
            stream,
            payload: payload.into(),
        }
    }

    /// The next frame for which `wanted` holds.
    pub(crate) async fn wait_for(&mut self, wanted: impl Fn(&Frame) -> bool) -> Frame {
        loop {
            let frame = self.receive().await;
            if wanted(&frame) {
                return frame;
            }
        }
    }
}
