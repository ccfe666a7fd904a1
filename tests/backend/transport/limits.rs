//! The bound of streams on a connection (API-132).

use std::collections::BTreeMap;

use bytes::Buf;

use crate::harness::Backend;
use crate::http2::{DATA, END_STREAM, HEADERS, RST_STREAM, SETTINGS, Wire};
use crate::publish;
use crate::raw::frame;

const MAX_CONCURRENT_STREAMS: u16 = 3;
const REFUSED_STREAM: u32 = 7;

#[tokio::test]
async fn api_132_the_settings_say_how_many_streams_there_may_be() {
    for (settings, expected) in [("", 100), ("limits.max_http2_streams = 2", 2)] {
        let backend = Backend::with(settings).await;
        let mut wire = Wire::open(backend.address).await;
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
    let mut wire = Wire::open(backend.address).await;
    for stream in [1, 3, 5] {
        let opened = wire.open_stream(stream, publish::PATH).await;
        opened.expect("sent");
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
    let opened = wire.open_stream(7, publish::PATH).await;
    opened.expect("sent");
    wire.send(DATA, END_STREAM, 7, &body).await;
    let answer = wire.wait_for(|frame| frame.stream == 7).await;
    assert_eq!(answer.kind, HEADERS);
}
