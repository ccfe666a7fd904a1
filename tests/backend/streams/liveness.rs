//! Signs of life (contract, section 6).

use tokio::time::Instant;
use tonic::Code;

use super::reader::{Frame, Reader};
use super::{group, messages};
use crate::harness::Backend;

#[tokio::test]
async fn st_01_s05_api_250_started_comes_before_any_request() {
    let backend = Backend::with("streams.keepalive_interval_ms = 4321").await;
    let mut reader = Reader::open(&backend).await;
    assert_eq!(reader.keepalive_interval_ms(), 4321);
    reader.probe(1).await;
    backend.stop().await;
}

#[tokio::test]
async fn st_19_api_255_api_256_pings_come_after_idle_time_and_answers_keep_the_stream() {
    let backend = Backend::with("streams.keepalive_interval_ms = 20").await;
    let mut reader = Reader::open(&backend).await;
    for nonce in 1..=20 {
        assert_eq!(reader.next().await, Frame::Ping(nonce));
        reader.pong(nonce);
    }
    backend.stop().await;
}

#[tokio::test]
async fn st_19_api_255_traffic_delays_pings() {
    let backend = Backend::with("streams.keepalive_interval_ms = 600").await;
    let mut reader = Reader::following(&backend, &[(group(1), 0)]).await;
    let started = Instant::now();
    let mut number = 0;
    let mut last_row = started;
    while started.elapsed().as_millis() < 1500 {
        number += 1;
        backend.publish(messages(1, [number])).await;
        while reader.position(&group(1)) < number {
            if let Frame::Ping(nonce) = reader.next().await {
                let idle = last_row.elapsed();
                assert!(idle.as_millis() >= 500, "Ping {nonce} after {idle:?}");
                reader.pong(nonce);
            }
        }
        last_row = Instant::now();
    }
    assert_eq!(reader.next().await, Frame::Ping(1));
    assert!(last_row.elapsed().as_millis() >= 500);
    backend.stop().await;
}

#[tokio::test]
async fn st_20_api_257_only_the_matching_pong_saves_a_stream() {
    let backend =
        Backend::with("streams.keepalive_interval_ms = 20\nstreams.max_pong_wait_ms = 400").await;
    let mut reader = Reader::open(&backend).await;
    assert_eq!(reader.next().await, Frame::Ping(1));
    let handoff = Instant::now();
    reader.pong(2);
    reader.ping(8);
    assert_eq!(reader.next().await, Frame::Pong(8));
    let status = reader.try_next().await.expect_err("one Ping, then the end");
    assert_eq!(status.code(), Code::DeadlineExceeded);
    // The client saw the Ping a little after the handoff.
    assert!(handoff.elapsed().as_millis() >= 300);
    backend.stop().await;
}
