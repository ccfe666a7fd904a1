//! Changes of interests: what is refused, and what is acknowledged in which order (contract, section 4).

use std::time::Instant;

use tonic::Code;
use xmtp_protocol::Topic;
use xmtp_protocol::proto::xmtp::backend::v1::subscribe_request::{Request, Update};
use xmtp_protocol::proto::xmtp::backend::v1::{Cursor, Topic as WireTopic, TopicQuery};

use super::obstacles::LockedTable;
use super::reader::{Frame, Reader};
use super::{group, messages};
use crate::harness::{Backend, meta_id, query, wire};

#[tokio::test]
async fn st_02_api_252_an_empty_update_is_acknowledged() {
    let backend = Backend::start().await;
    let mut reader = Reader::open(&backend).await;
    reader.update(&[], &[]);
    assert_eq!(reader.next().await, Frame::Applied(vec![]));
    reader.ping(77);
    assert_eq!(reader.next().await, Frame::Pong(77));
    reader.ping(0);
    assert_eq!(reader.next().await, Frame::Pong(0));
    reader.half_close();
    reader.end().await.expect("a clean end");
    backend.stop().await;
}

#[tokio::test]
async fn st_04_api_253_adding_an_active_topic_changes_nothing() {
    let backend = Backend::start().await;
    backend.publish(messages(1, 1..=3)).await;
    let mut reader = Reader::following(&backend, &[(group(1), 0)]).await;
    reader.read_to(&group(1), 3).await;
    reader.update(&[(group(1), 0)], &[]);
    assert_eq!(reader.next().await, Frame::Applied(vec![]));
    backend.publish(messages(1, [4])).await;
    reader.read_to(&group(1), 4).await;
    assert_eq!(reader.ids(&group(1)), [1, 2, 3, 4]);
    backend.stop().await;
}

#[tokio::test]
async fn st_07_api_252_only_new_topics_have_targets_in_the_order_of_the_adds() {
    let backend = Backend::start().await;
    backend.publish(messages(4, [1])).await;
    backend.publish(messages(2, [1])).await;
    let mut reader = Reader::following(&backend, &[(group(2), 0), (group(5), 0)]).await;
    let adds = [3, 2, 4, 5, 1].map(|number| (group(number), 0));
    reader.update(&adds, &[]);
    assert_eq!(reader.applied().await, [0, 1, 0], "of 3, 4 and 1");
    reader.read_to(&group(4), 1).await;
    backend.stop().await;
}

#[tokio::test]
async fn st_12_api_251_what_is_malformed_ends_the_stream() {
    let backend = Backend::start().await;
    let topic = || query(&group(1), 0);
    let bytes = |topic: &'static [u8]| TopicQuery {
        topic: Some(WireTopic {
            topic: topic.into(),
        }),
        cursor: None,
    };
    let absent = TopicQuery {
        topic: None,
        cursor: Some(Cursor { sequence_id: 0 }),
    };
    let removed = || wire(&group(1));
    let update = |id, adds, removes| Some(Request::Update(Update { id, adds, removes }));
    let cases = [
        ("unset frame", None),
        ("id 0", update(0, vec![], vec![])),
        ("id repeated", update(5, vec![], vec![])),
        ("id lower", update(4, vec![], vec![])),
        (
            "twice in adds",
            update(6, vec![topic(), query(&group(1), 7)], vec![]),
        ),
        (
            "twice in removes",
            update(6, vec![], vec![removed(), removed()]),
        ),
        ("in both", update(6, vec![topic()], vec![removed()])),
        ("bad kind", update(6, vec![bytes(&[9; 17])], vec![])),
        ("bad length", update(6, vec![bytes(&[0; 16])], vec![])),
        (
            "bad removed topic",
            update(6, vec![], vec![WireTopic::default()]),
        ),
        ("empty topic", update(6, vec![bytes(&[])], vec![])),
        ("absent topic", update(6, vec![absent], vec![])),
        (
            "cursor 2^63",
            update(6, vec![query(&group(1), 1 << 63)], vec![]),
        ),
    ];
    for (case, request) in cases {
        let mut reader = Reader::open(&backend).await;
        reader.skip_updates_to(5);
        reader.update(&[], &[]);
        reader.applied().await;
        reader.send(request);
        let status = match reader.try_next().await {
            Err(status) => status,
            Ok(frame) => panic!("{case}: {frame:?}"),
        };
        assert_eq!(status.code(), Code::InvalidArgument, "{case}");
    }
    backend.stop().await;
}

#[tokio::test]
async fn st_12_api_286_the_greatest_cursor_is_accepted() {
    let backend = Backend::start().await;
    let mut reader = Reader::open(&backend).await;
    reader.update(&[(group(1), i64::MAX.cast_unsigned())], &[]);
    assert_eq!(reader.applied().await, [0]);
    backend.stop().await;
}

#[tokio::test]
async fn st_13_str_002_an_update_at_the_topic_cap_counts_what_really_changes() {
    let backend = Backend::with("limits.max_stream_topics = 2\nlimits.max_update_adds = 2").await;
    let mut reader = Reader::following(&backend, &[(group(1), 0), (group(2), 0)]).await;
    reader.update(&[(group(3), 0)], &[group(1)]);
    assert_eq!(reader.applied().await, [0]);
    // Neither an active topic nor an unregistered remove makes room or takes it.
    reader.update(&[(group(2), 0)], &[group(1)]);
    assert_eq!(reader.applied().await, [0; 0]);
    reader.update(&[(group(4), 0)], &[group(9)]);
    let status = reader.end().await.expect_err("one above the cap");
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(!reader.is_registered(&group(4)));
    backend.stop().await;
}

#[tokio::test]
async fn st_14_api_131_adds_and_removes_have_limits() {
    let backend = Backend::with("limits.max_update_adds = 3\nlimits.max_update_removes = 2").await;
    let adds: Vec<(Topic, u64)> = (1..=4).map(|number| (group(number), 0)).collect();
    let removes: Vec<Topic> = (7..=9).map(group).collect();

    let mut reader = Reader::open(&backend).await;
    reader.update(&adds[..3], &[]);
    assert_eq!(reader.applied().await, [0; 3]);
    reader.update(&[], &removes[..2]);
    assert_eq!(reader.applied().await, [0; 0]);
    // Counted as sent: these are active, and none is new.
    reader.update(&adds[..3], &removes[..2]);
    assert_eq!(reader.applied().await, [0; 0]);
    reader.update(&adds, &[]);
    let status = reader.end().await.expect_err("one add too many");
    assert_eq!(status.code(), Code::InvalidArgument);

    let mut reader = Reader::open(&backend).await;
    reader.update(&[], &removes);
    let status = reader.end().await.expect_err("one remove too many");
    assert_eq!(status.code(), Code::InvalidArgument);
    backend.stop().await;
}

#[tokio::test]
async fn st_15_arc_074_one_update_adds_as_many_topics_as_a_stream_may_have() {
    let backend = Backend::start().await;
    let adds: Vec<(Topic, u64)> = (0..100_000u128)
        .map(|number| {
            let kind = xmtp_protocol::TopicKind::GroupMessage;
            let topic = Topic::new(kind, &number.to_be_bytes()).expect("16 bytes");
            (topic, 0)
        })
        .collect();
    let mut reader = Reader::open(&backend).await;
    reader.update(&adds, &[]);
    // 23 bytes a target at least: the frame is above the 2 MiB of deliveries.
    assert_eq!(reader.applied().await, vec![0; adds.len()]);
    let removes: Vec<Topic> = adds.iter().map(|(topic, _)| *topic).collect();
    reader.update(&[], &removes);
    assert_eq!(reader.applied().await, [0; 0]);
    backend.stop().await;
}

#[tokio::test]
async fn st_16_api_252_updates_wait_in_line_and_probes_do_not() {
    let backend = Backend::start().await;
    let metas = backend.publish(messages(2, 1..=2)).await;
    let head = meta_id(&metas[1]);
    let mut heads = LockedTable::new(&backend.database, "topic_watermark").await;
    let mut reader = Reader::open(&backend).await;
    reader.update(&[(group(1), 0)], &[]);
    heads.blocks(1).await;
    reader.update(&[(group(2), 0)], &[group(1)]);
    reader.ping(5);
    reader.update(&[(group(1), 0)], &[]);
    assert_eq!(reader.next().await, Frame::Pong(5));
    heads.unlock().await;
    assert_eq!(reader.next().await, Frame::Applied(vec![0]));
    assert_eq!(reader.applied().await, [head]);
    assert_eq!(reader.applied().await, [0]);
    reader.read_to(&group(2), head).await;
    assert!(reader.is_registered(&group(1)));
    backend.stop().await;
}

#[tokio::test]
async fn st_16_str_002_updates_in_line_have_a_byte_limit() {
    let backend =
        Backend::with("limits.max_request_bytes = 1200\nlimits.max_envelope_bytes = 100").await;
    let mut heads = LockedTable::new(&backend.database, "topic_watermark").await;
    let mut reader = Reader::open(&backend).await;
    reader.update(&[(group(1), 0)], &[]);
    heads.blocks(1).await;
    let removes: Vec<Topic> = (0..50).map(group).collect();
    reader.update(&[], &removes);
    reader.probe(1).await;
    reader.update(&[], &removes);
    let status = reader.end().await.expect_err("two of them are too much");
    assert_eq!(status.code(), Code::ResourceExhausted);
    heads.unlock().await;
    backend.stop().await;
}

#[tokio::test]
async fn api_031_a_frame_above_the_request_limit_ends_the_stream() {
    let backend =
        Backend::with("limits.max_request_bytes = 1000\nlimits.max_envelope_bytes = 100").await;
    let mut reader = Reader::open(&backend).await;
    let removes: Vec<Topic> = (0..=255).map(group).collect();
    reader.update(&[], &removes);
    let status = reader.end().await.expect_err("too long");
    assert_eq!(status.code(), Code::OutOfRange);
    backend.stop().await;
}

const BUCKETS: &str = "limits.max_update_frames_per_second = 1
    limits.max_update_burst = 2
    limits.max_ping_frames_per_second = 1
    limits.max_ping_burst = 2";

#[tokio::test]
async fn st_17_api_258_pings_and_updates_have_buckets_of_their_own() {
    let backend = Backend::with(BUCKETS).await;
    for pings in [true, false] {
        let opened = Instant::now();
        let mut reader = Reader::open(&backend).await;
        reader.update(&[], &[]);
        reader.ping(1);
        reader.update(&[], &[]);
        reader.ping(2);
        for frame in [
            Frame::Applied(vec![]),
            Frame::Pong(1),
            Frame::Applied(vec![]),
            Frame::Pong(2),
        ] {
            assert_eq!(reader.next().await, frame);
        }
        for nonce in 3..20 {
            if pings {
                reader.ping(nonce);
            } else {
                reader.update(&[], &[]);
            }
        }
        let mut served = 0;
        let status = loop {
            match reader.try_next().await {
                Ok(Some(_)) => served += 1,
                Ok(None) => panic!("a bucket that is empty is an error"),
                Err(status) => break status,
            }
        };
        assert_eq!(status.code(), Code::ResourceExhausted);
        let refilled = opened.elapsed().as_secs();
        assert!(served <= refilled, "{served} served, {refilled} refilled");
    }
    backend.stop().await;
}

#[tokio::test]
async fn st_18_api_258_pongs_cost_nothing() {
    let backend = Backend::with(BUCKETS).await;
    let mut reader = Reader::open(&backend).await;
    for nonce in 0..1000 {
        reader.pong(nonce);
    }
    reader.probe(9).await;
    backend.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn api_258_a_whole_burst_is_served_however_fast_it_comes() {
    const BURST: u64 = 100;
    let backend = Backend::start().await;
    for _ in 0..10 {
        let mut reader = Reader::open(&backend).await;
        for nonce in 0..BURST {
            reader.ping(nonce);
            reader.update(&[], &[]);
        }
        for nonce in 0..BURST {
            assert_eq!(reader.next().await, Frame::Pong(nonce));
            assert_eq!(reader.next().await, Frame::Applied(vec![]));
        }
    }
    backend.stop().await;
}

#[tokio::test]
async fn o2_a_bad_update_ends_the_stream_after_the_answers_to_the_good_ones() {
    let backend = Backend::start().await;
    for _ in 0..10 {
        let mut reader = Reader::open(&backend).await;
        for _ in 0..3 {
            reader.update(&[], &[]);
        }
        reader.skip_updates_to(1);
        reader.update(&[], &[]);
        for _ in 0..3 {
            assert_eq!(reader.next().await, Frame::Applied(vec![]));
        }
        let status = reader.end().await.expect_err("an id that does not grow");
        assert_eq!(status.code(), Code::InvalidArgument);
    }
    backend.stop().await;
}
