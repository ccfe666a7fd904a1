//! Static streams (contract, section 9).

use tonic::Code;
use xmtp_protocol::proto::xmtp::backend::v1::{Cursor, Topic as WireTopic, TopicQuery};

use super::obstacles::LockedTable;
use super::static_reader::{Frame, StaticReader, request};
use super::{group, messages};
use crate::harness::{Backend, query};

#[tokio::test]
async fn st_31_api_260_a_bad_request_gets_a_status_and_no_frame() {
    let backend = Backend::with("limits.max_static_topics = 3").await;
    let topics = |count| (0..count).map(|number| query(&group(number), 0)).collect();
    let absent = TopicQuery {
        topic: None,
        cursor: Some(Cursor { sequence_id: 0 }),
    };
    let illegal = TopicQuery {
        topic: Some(WireTopic::default()),
        cursor: None,
    };
    let cases: [(&str, Vec<TopicQuery>); 6] = [
        ("empty", vec![]),
        ("a repeat", vec![query(&group(1), 0), query(&group(1), 4)]),
        ("one past the cap", topics(4)),
        ("a bad cursor", vec![query(&group(1), 1 << 63)]),
        ("an absent topic", vec![absent]),
        ("an illegal topic", vec![illegal]),
    ];
    for (case, topics) in cases {
        match request(&backend, topics).await {
            Err(status) => assert_eq!(status.code(), Code::InvalidArgument, "{case}"),
            Ok(_) => panic!("{case} is accepted"),
        }
    }
    request(&backend, topics(3)).await.expect("the cap itself");
    backend.stop().await;
}

#[tokio::test]
async fn st_31_api_260_the_caps_of_updates_do_not_bind_static_streams() {
    let backend = Backend::with("limits.max_update_adds = 1\nlimits.max_stream_topics = 1").await;
    let asked = [(group(1), 0), (group(2), 0)];
    let mut reader = StaticReader::open(&backend, &asked).await;
    assert_eq!(reader.next().await, Frame::Started(vec![0, 0], 30_000));
    backend.stop().await;
}

#[tokio::test]
async fn st_32_api_260_targets_then_history_then_live_rows() {
    let backend = Backend::start().await;
    backend.publish(messages(1, 1..=2)).await;
    let mut reader = StaticReader::open(&backend, &[(group(2), 0), (group(1), 0)]).await;
    assert_eq!(reader.next().await, Frame::Started(vec![0, 2], 30_000));
    reader.read_to(&group(1), 2).await;
    backend.publish(messages(1, [3])).await;
    backend.publish(messages(2, [4])).await;
    reader.read_to(&group(1), 3).await;
    reader.read_to(&group(2), 4).await;
    assert_eq!(reader.ids(&group(1)), [1, 2, 3]);
    assert_eq!(reader.ids(&group(2)), [4]);
    backend.stop().await;
}

#[tokio::test]
async fn st_33_s06_api_255_keepalives_go_on_without_an_answer() {
    let backend =
        Backend::with("streams.keepalive_interval_ms = 10\nstreams.max_pong_wait_ms = 20").await;
    let mut reader = StaticReader::open(&backend, &[(group(1), 0)]).await;
    assert_eq!(reader.next().await, Frame::Started(vec![0], 10));
    for _ in 0..30 {
        assert_eq!(reader.next().await, Frame::Keepalive);
    }
    backend.publish(messages(1, [1])).await;
    reader.read_to(&group(1), 1).await;
    backend.stop().await;
}

#[tokio::test]
async fn st_34_s05_api_260_headers_come_at_once_and_no_frame_before_started() {
    let backend =
        Backend::with("streams.keepalive_interval_ms = 10\nstreams.max_pong_wait_ms = 20").await;
    let mut other = StaticReader::open(&backend, &[(group(2), 0)]).await;
    assert_eq!(other.next().await, Frame::Started(vec![0], 10));
    let mut heads = LockedTable::new(&backend.database, "topic_watermark").await;
    let mut reader = StaticReader::open(&backend, &[(group(1), 0)]).await;
    heads.blocks(1).await;
    for _ in 0..10 {
        assert_eq!(other.next().await, Frame::Keepalive);
    }
    heads.unlock().await;
    assert_eq!(reader.next().await, Frame::Started(vec![0], 10));
    assert_eq!(reader.next().await, Frame::Keepalive);
    backend.stop().await;
}
