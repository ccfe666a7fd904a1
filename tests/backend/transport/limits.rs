//! HTTP/2, frame by frame (API-132).

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Backend, within};
use crate::publish;
use crate::raw::frame;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const REFUSED_STREAM: u32 = 7;

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Bytes,
}

/// A connection on which nothing is sent but what the test says.
struct Wire(TcpStream);

impl Wire {
    async fn open(backend: &Backend) -> Self {
        let stream = TcpStream::connect(backend.address)
            .await
            .expect("connected");
        let mut wire = Self(stream);
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        wire.0.write_all(preface).await.expect("sent");
        wire.send(SETTINGS, 0, 0, b"").await;
        wire
    }

    async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut bytes = BytesMut::new();
        bytes.put_uint(payload.len() as u64, 3);
        bytes.put_u8(kind);
        bytes.put_u8(flags);
        bytes.put_u32(stream);
        bytes.put_slice(payload);
        self.0.write_all(&bytes).await.expect("sent");
    }

    /// Opens a stream for a publish whose body is still to come.
    async fn open_stream(&mut self, stream: u32) {
        let mut headers = BytesMut::new();
        for (name, value) in [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", publish::PATH),
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
        self.send(HEADERS, END_HEADERS, stream, &headers).await;
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
    async fn wait_for(&mut self, wanted: impl Fn(&Frame) -> bool) -> Frame {
        loop {
            let frame = self.receive().await;
            if wanted(&frame) {
                return frame;
            }
        }
    }
}

#[tokio::test]
async fn api_132_the_settings_say_how_many_streams_there_may_be() {
    for (settings, expected) in [("", 100), ("limits.max_http2_streams = 2", 2)] {
        let backend = Backend::with(settings).await;
        let mut wire = Wire::open(&backend).await;
        let mut settings = wire
            .wait_for(|frame| frame.kind == SETTINGS && frame.flags == 0)
            .await
            .payload;
        let mut values = BTreeMap::new();
        while settings.has_remaining() {
            values.insert(settings.get_u16(), settings.get_u32());
        }
        assert_eq!(values.get(&MAX_CONCURRENT_STREAMS), Some(&expected));
    }
}

#[tokio::test]
async fn api_132_one_stream_too_many_is_refused_and_the_others_go_on() {
    let backend = Backend::with("limits.max_http2_streams = 2").await;
    let mut wire = Wire::open(&backend).await;
    for stream in [1, 3, 5] {
        wire.open_stream(stream).await;
    }
    let mut refused = wire.wait_for(|frame| frame.kind == RST_STREAM).await;
    assert_eq!(refused.stream, 5);
    assert_eq!(refused.payload.get_u32(), REFUSED_STREAM);

    let body = frame(b"");
    for stream in [1, 3] {
        wire.send(DATA, END_STREAM, stream, &body).await;
        let end = wire
            .wait_for(|frame| {
                let headers = frame.kind == HEADERS && frame.flags & END_STREAM != 0;
                frame.stream == stream && (headers || frame.kind == RST_STREAM)
            })
            .await;
        assert_eq!(end.kind, HEADERS, "the trailers come");
    }
    // And there is room again.
    wire.open_stream(7).await;
    wire.send(DATA, END_STREAM, 7, &body).await;
    let answer = wire.wait_for(|frame| frame.stream == 7).await;
    assert_eq!(answer.kind, HEADERS);
}
