//! What a refused call still sends does no harm to the other calls of its connection.

use std::collections::HashSet;

use xmtp_protocol::client::HealthClient;

use crate::harness::{Backend, connect};
use crate::health::named;
use crate::http2::{
    ACK, DATA, END_STREAM, GOAWAY, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE, Wire,
};
use crate::publish;
use crate::raw::frame;

const SUBSCRIBE: &str = "/xmtp.backend.v1.SubscriptionService/Subscribe";
const HEALTH: &str = "/grpc.health.v1.Health/Check";

/// Calls that are open at once: fewer than may be, and more than the library forgives.
const OPEN: u32 = 80;
/// More than the 1,024 faults that the library allows a connection.
const ROUNDS: u32 = 30;
/// Frames of a body that come after its call was answered.
const LATE: usize = 3;
/// Long enough for the library not to take it for waste.
const PART: [u8; 300] = [0; 300];

/// Makes calls whose bodies begin with `first` and go on after the answer, and then a good one. The frames are written one
/// by one: a client of the library stops when it reads the answer, if what it has sent is not on its way by then.
async fn are_refused(backend: &Backend, path: &str, first: &[u8]) {
    let mut wire = Wire::open(backend.address).await;
    let mut next = 1;
    for _ in 0..ROUNDS {
        let streams: Vec<u32> = (0..OPEN).map(|place| next + 2 * place).collect();
        next += 2 * OPEN;
        let mut unanswered: HashSet<u32> = streams.iter().copied().collect();
        for stream in &streams {
            let opened = wire.open_stream(*stream, path).await;
            opened.expect("the connection is open");
            wire.send(DATA, 0, *stream, first).await;
        }
        while !unanswered.is_empty() {
            // A stream that was let in is refused in its trailers.
            let is_refusal = |kind, flags| kind == HEADERS && flags & END_STREAM != 0;
            let answer = wire
                .wait_for(|frame| frame.kind == GOAWAY || is_refusal(frame.kind, frame.flags))
                .await;
            assert_eq!(answer.kind, HEADERS, "the connection goes on");
            assert!(unanswered.remove(&answer.stream));
        }
        for stream in streams {
            for part in 1..=LATE {
                let flags = if part == LATE { END_STREAM } else { 0 };
                wire.send(DATA, flags, stream, &PART).await;
            }
        }
    }
    let opened = wire.open_stream(next, HEALTH).await;
    opened.expect("the connection is open");
    wire.send(DATA, END_STREAM, next, &frame(b"")).await;
    let answer = wire
        .wait_for(|frame| frame.kind == GOAWAY || frame.stream == next)
        .await;
    assert_eq!(answer.kind, HEADERS);
    assert_eq!(answer.flags & END_STREAM, 0, "an answer follows");
}

#[tokio::test]
async fn api_132_calls_of_unknown_paths_leave_the_connection_to_the_others() {
    let backend = Backend::start().await;
    are_refused(&backend, super::UNKNOWN[0], &PART).await;
}

#[tokio::test]
async fn api_132_requests_that_are_too_long_leave_the_connection_to_the_others() {
    let backend = Backend::start().await;
    let first = [&b"\0\xff\xff\xff\xff"[..], &PART].concat();
    are_refused(&backend, publish::PATH, &first).await;
    are_refused(&backend, SUBSCRIBE, &first).await;
}

#[cfg(feature = "auth")]
#[tokio::test]
async fn auth_001_calls_without_a_credential_leave_the_connection_to_the_others() {
    let backend = Backend::with_auth(crate::auth::ONE_API_KEY).await;
    are_refused(&backend, publish::PATH, &PART).await;
    are_refused(&backend, SUBSCRIBE, &PART).await;
}

#[tokio::test]
async fn api_132_a_body_that_goes_on_after_its_answer_is_reset_in_the_end() {
    let backend = Backend::start().await;
    // What is a quarter too much comes in two halves, since each has to be within the window.
    for (halves, parts, bytes) in [(1, 1, 1), (2, 40, 16_384)] {
        let mut wire = Wire::open(backend.address).await;
        wire.wait_for(|frame| frame.kind == SETTINGS && frame.flags == 0)
            .await;
        // From here on the window is as large as the server says.
        wire.send(SETTINGS, ACK, 0, b"").await;
        wire.open_stream(1, super::UNKNOWN[0]).await.expect("sent");
        let answer = wire.wait_for(|frame| frame.kind == HEADERS).await;
        assert_eq!(answer.flags & END_STREAM, END_STREAM);
        for half in 1..=halves {
            for _ in 0..parts {
                wire.send(DATA, 0, 1, &vec![0; bytes]).await;
            }
            if half < halves {
                wire.wait_for(|frame| frame.kind == WINDOW_UPDATE && frame.stream == 1)
                    .await;
            }
        }
        // At the bound of bytes, or of time.
        let end = wire
            .wait_for(|frame| frame.kind == RST_STREAM || frame.kind == GOAWAY)
            .await;
        assert_eq!((end.kind, end.stream), (RST_STREAM, 1));
    }
    let mut health = HealthClient::new(connect(backend.address).await);
    health.check(named("")).await.expect("it serves");
}
