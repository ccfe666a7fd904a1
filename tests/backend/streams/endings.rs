//! How streams end (contract, sections 8 and 10).

use tonic::Code;
use xmtp_protocol::client::SubscriptionServiceClient;

use super::obstacles::LockedTable;
use super::reader::{Frame, Reader};
use super::{group, large_messages, messages};
use crate::harness::{Backend, meta_id};
use crate::leaks::Leaks;

#[tokio::test]
async fn st_22_api_259_a_half_close_waits_for_no_read() {
    let backend = Backend::start().await;
    let leaks = Leaks::watch(&backend).await;
    backend.publish(messages(1, 1..=500)).await;
    let mut other = Reader::following(&backend, &[(group(2), 0)]).await;
    for table in ["topic_watermark", "envelopes"] {
        let mut reads = LockedTable::new(&backend.database, table).await;
        let mut reader = Reader::open(&backend).await;
        reader.update(&[(group(1), 0)], &[]);
        reads.blocks(1).await;
        reader.half_close();
        reader.end().await.expect("a clean end");
        other.probe(1).await;
        reads.unlock().await;
    }
    let metas = backend.publish(messages(2, [1])).await;
    other.read_to(&group(2), meta_id(&metas[0])).await;
    drop(other);
    leaks.none(backend).await;
}

#[tokio::test]
async fn st_22_str_035_a_half_close_flushes_what_was_admitted() {
    let backend = Backend::start().await;
    let leaks = Leaks::watch(&backend).await;
    let mut reader = Reader::open(&backend).await;
    for nonce in 0..50 {
        reader.ping(nonce);
    }
    reader.half_close();
    for nonce in 0..50 {
        assert_eq!(reader.next().await, Frame::Pong(nonce));
    }
    reader.end().await.expect("a clean end");
    drop(reader);
    leaks.none(backend).await;
}

#[tokio::test]
async fn api_254_a_failed_read_ends_the_stream() {
    let backend = Backend::with("database.max_statement_timeout_ms = 1000").await;
    let leaks = Leaks::watch(&backend).await;
    backend.publish(messages(1, [1])).await;
    let heads = LockedTable::new(&backend.database, "topic_watermark").await;
    let mut reader = Reader::open(&backend).await;
    reader.update(&[(group(1), 0)], &[]);
    let status = reader.end().await.expect_err("the head read timed out");
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(status.message(), "target capture failed");
    heads.unlock().await;
    drop(reader);
    leaks.none(backend).await;
}

#[tokio::test]
async fn api_254_a_head_without_its_row_ends_the_stream() {
    let backend = Backend::start().await;
    let leaks = Leaks::watch(&backend).await;
    backend.publish(messages(1, 1..=3)).await;
    backend
        .database
        .execute("DELETE FROM envelopes WHERE sequence_id = 3")
        .await;
    // The end may take the place of an acknowledgement that the transport has not taken yet.
    let mut reader = Reader::open(&backend).await;
    reader.update(&[(group(1), 0)], &[]);
    let status = reader.end().await.expect_err("a row is missing");
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(status.message(), "history read failed");
    drop(reader);
    leaks.none(backend).await;
}

#[tokio::test]
async fn arc_079_a_row_that_fits_no_frame_ends_the_stream_live_and_in_catch_up() {
    let backend = Backend::start().await;
    // An instance whose limits were lowered, beside one that stores what it cannot deliver.
    let settings = "limits.max_envelope_bytes = 100_000\nlimits.max_response_bytes = 200_000\n\
                    limits.max_query_limit = 100\nlimits.default_query_limit = 100";
    let (lowered, channel) = backend.another(settings).await;
    let open = || Reader::try_open_with(SubscriptionServiceClient::new(channel.clone()));
    let mut live = open().await.expect("the stream is admitted");
    live.update(&[(group(1), 0), (group(2), 0)], &[]);
    live.applied().await;
    let small = backend.publish(messages(2, [1])).await;
    live.read_to(&group(2), meta_id(&small[0])).await;

    backend.publish(large_messages(1, [1])).await;
    let mut late = open().await.expect("the stream is admitted");
    late.update(&[(group(1), 0)], &[]);
    for mut reader in [live, late] {
        let status = reader.end().await.expect_err("no frame holds the row");
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(
            status.message(),
            "stored envelope exceeds delivery capacity"
        );
        assert_eq!(reader.position(&group(1)), 0, "nothing of it came");
    }
    drop(channel);
    lowered.stop().await;
}
