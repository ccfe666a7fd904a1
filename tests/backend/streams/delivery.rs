//! What is delivered, in which order, and how topics share a stream (contract, sections 4.3, 4.4 and 5).

use std::collections::HashMap;

use tokio::task::JoinSet;
use tonic::Code;
use xmtp_protocol::client::{PublishServiceClient, SubscriptionServiceClient};
use xmtp_protocol::proto::xmtp::backend::v1::PublishRequest;
use xmtp_protocol::{Topic, TopicKind};
use xmtp_test_support::eventually;
use xmtp_test_support::payloads::{ContentType, mls_message};

use super::obstacles::LockedTable;
use super::oracle::topic_of;
use super::reader::{Frame, Reader};
use super::{group, large_messages, messages};
use crate::harness::{Backend, meta_id};

#[tokio::test]
async fn st_03_api_252_history_then_live() {
    let backend = Backend::start().await;
    backend.publish(messages(1, 1..=100)).await;
    let mut reader = Reader::open(&backend).await;
    reader.update(&[(group(1), 0)], &[]);
    assert_eq!(reader.applied().await, [100]);
    backend.publish(messages(1, [101])).await;
    reader.read_to(&group(1), 101).await;
    assert_eq!(reader.ids(&group(1)), (1..=101).collect::<Vec<_>>());
    backend.stop().await;
}

#[tokio::test]
async fn st_05_str_012_rows_at_or_below_the_cursor_never_come() {
    let backend = Backend::start().await;
    let mut reader = Reader::open(&backend).await;
    reader.update(&[(group(2), 3)], &[]);
    assert_eq!(reader.applied().await, [0]);
    for number in 1..=4 {
        backend.publish(messages(2, [number])).await;
    }
    reader.read_to(&group(2), 4).await;
    assert_eq!(reader.ids(&group(2)), [4]);
    backend.stop().await;
}

#[tokio::test]
async fn st_06_api_252_a_cursor_at_or_above_the_head_owes_no_history() {
    let backend = Backend::start().await;
    backend.publish(messages(1, 1..=2)).await;
    let mut at = Reader::open(&backend).await;
    at.update(&[(group(1), 2)], &[]);
    assert_eq!(at.applied().await, [2]);
    let mut above = Reader::open(&backend).await;
    above.update(&[(group(1), 3)], &[]);
    assert_eq!(above.applied().await, [2]);
    for number in 3..=4 {
        backend.publish(messages(1, [number])).await;
    }
    at.read_to(&group(1), 4).await;
    assert_eq!(at.ids(&group(1)), [3, 4]);
    above.read_to(&group(1), 4).await;
    assert_eq!(above.ids(&group(1)), [4]);
    backend.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn st_08_arc_076_no_row_is_lost_where_history_meets_live_rows() {
    const STREAMS: u64 = 24;
    const PUBLISHES: u64 = 200;
    let backend = Backend::start().await;
    let publish = async {
        for first in 0..PUBLISHES {
            backend
                .publish(messages(1, [2 * first, 2 * first + 1]))
                .await;
        }
    };
    let follow = async {
        let mut readers = Vec::new();
        for _ in 0..STREAMS {
            let mut reader = Reader::open(&backend).await;
            reader.update(&[(group(1), 0)], &[]);
            let target = reader.applied().await[0];
            reader.read_to(&group(1), target).await;
            readers.push(reader);
        }
        readers
    };
    let ((), readers) = tokio::join!(publish, follow);
    let mut reading = JoinSet::new();
    for mut reader in readers {
        reading.spawn(async move {
            reader.read_to(&group(1), 2 * PUBLISHES).await;
            reader.ids(&group(1))
        });
    }
    for ids in reading.join_all().await {
        assert_eq!(ids, (1..=2 * PUBLISHES).collect::<Vec<_>>());
    }
    backend.stop().await;
}

#[tokio::test]
async fn st_09_st_10_api_253_a_removal_waits_for_no_read_and_an_add_after_it_starts_afresh() {
    let backend = Backend::start().await;
    backend.publish(messages(1, 1..=200)).await;
    let mut history = LockedTable::new(&backend.database, "envelopes").await;
    let mut reader = Reader::following(&backend, &[(group(1), 0)]).await;
    history.blocks(1).await;
    reader.update(&[], &[group(1)]);
    assert_eq!(reader.next().await, Frame::Applied(vec![]));
    history.unlock().await;

    // From here on a row of the removed topic fails the test.
    reader.update(&[(group(2), 0)], &[]);
    reader.applied().await;
    let metas = backend.publish(messages(2, [1])).await;
    reader.read_to(&group(2), meta_id(&metas[0])).await;

    reader.update(&[(group(1), 199)], &[]);
    assert_eq!(reader.applied().await, [200]);
    reader.read_to(&group(1), 200).await;
    assert_eq!(reader.ids(&group(1)), [200]);
    backend.stop().await;
}

#[tokio::test]
async fn st_11_arc_087_removing_a_topic_costs_its_turn_mates_nothing() {
    let backend = Backend::start().await;
    backend.publish(messages(1, 1..=100)).await;
    backend.publish(messages(2, 1..=100)).await;
    let mut history = LockedTable::new(&backend.database, "envelopes").await;
    let mut reader = Reader::following(&backend, &[(group(1), 0), (group(2), 0)]).await;
    history.blocks(1).await;
    reader.update(&[], &[group(1)]);
    assert_eq!(reader.next().await, Frame::Applied(vec![]));
    history.unlock().await;
    reader.read_to(&group(2), 200).await;
    assert_eq!(reader.ids(&group(2)), (101..=200).collect::<Vec<_>>());
    backend.stop().await;
}

#[tokio::test]
async fn st_23_api_261_large_topics_take_turns() {
    let backend = Backend::start().await;
    backend.publish(large_messages(1, 0..4)).await;
    backend.publish(large_messages(2, 0..4)).await;
    let mut reader = Reader::following(&backend, &[(group(1), 0), (group(2), 0)]).await;
    for turn in [group(1), group(2), group(1), group(2)] {
        let Frame::Rows(rows) = reader.next().await else {
            panic!("rows are owed")
        };
        let topics: Vec<Topic> = rows.iter().map(topic_of).collect();
        assert_eq!(topics, [turn, turn]);
    }
    backend.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn st_24_arc_086_no_topic_gets_a_frame_before_those_that_had_fewer() {
    const TOPICS: u128 = 1000;
    const ROWS: u64 = 200;
    let backend = Backend::start().await;
    backend
        .database
        .execute(&format!(
            "INSERT INTO envelopes
             SELECT nextval('envelope_sequence'), topic, 1, NULL, sha256(topic || int8send(number)),
                    false, false, NULL, '\\x'
             FROM generate_series(1, {ROWS}) AS number,
                  LATERAL (SELECT '\\x00'::bytea || decode(lpad(to_hex(n), 32, '0'), 'hex') AS topic
                           FROM generate_series(0, {}) AS n) AS topics;
             INSERT INTO topic_watermark SELECT topic, max(sequence_id) FROM envelopes GROUP BY topic",
            TOPICS - 1
        ))
        .await;
    let adds: Vec<(Topic, u64)> = (0..TOPICS)
        .map(|number| {
            let topic = Topic::new(TopicKind::GroupMessage, &number.to_be_bytes());
            (topic.expect("16 bytes"), 0)
        })
        .collect();
    let mut reader = Reader::open(&backend).await;
    reader.update(&adds, &[]);
    let targets: HashMap<Topic, u64> = adds
        .iter()
        .map(|(topic, _)| *topic)
        .zip(reader.applied().await)
        .collect();
    let mut frames: HashMap<Topic, u32> = targets.keys().map(|topic| (*topic, 0)).collect();
    while targets
        .iter()
        .any(|(topic, target)| reader.position(topic) < *target)
    {
        let owing: Vec<Topic> = targets
            .iter()
            .filter(|(topic, target)| reader.position(topic) < **target)
            .map(|(topic, _)| *topic)
            .collect();
        let fewest = owing.iter().map(|topic| frames[topic]).min();
        let Frame::Rows(rows) = reader.next().await else {
            continue;
        };
        let mut served: Vec<Topic> = rows.iter().map(topic_of).collect();
        served.dedup();
        let most = served.iter().map(|topic| frames[topic]).max();
        for topic in served {
            *frames.entry(topic).or_default() += 1;
        }
        // Those with the fewest may all be in this frame, and some that come after them.
        let left_behind = owing
            .iter()
            .any(|topic| Some(frames[topic]) == fewest && fewest < most);
        assert!(!left_behind, "a topic was served out of turn");
    }
    for topic in targets.keys() {
        assert_eq!(reader.rows(topic).len() as u64, ROWS);
    }
    backend.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn st_25_arc_073_a_slow_reader_ends_and_nobody_else_notices() {
    let backend = Backend::start().await;
    let mut slow = Reader::following(&backend, &[(group(1), 0)]).await;
    let mut fast = Reader::following(&backend, &[(group(1), 0)]).await;
    // More than connection and queue hold, so that the server has to decide.
    let count = 36;
    for number in 0..count {
        backend.publish(large_messages(1, [number])).await;
        fast.read_to(&group(1), u64::from(number) + 1).await;
        fast.probe(number.into()).await;
    }
    let status = slow.end().await.expect_err("rows could not be queued");
    assert_eq!(status.code(), Code::ResourceExhausted);
    let position = slow.position(&group(1));
    assert!(position < count.into());

    let mut resumed = Reader::following(&backend, &[(group(1), position)]).await;
    resumed.read_to(&group(1), count.into()).await;
    assert_eq!(
        resumed.ids(&group(1)),
        (position + 1..=count.into()).collect::<Vec<_>>()
    );
    assert_eq!(fast.ids(&group(1)), (1..=count.into()).collect::<Vec<_>>());
    backend.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s09_arc_073_a_reader_that_reads_survives_the_largest_publish() {
    let backend = Backend::start().await;
    let mut reader = Reader::following(&backend, &[(group(1), 0)]).await;
    backend.publish(large_messages(1, 0..20)).await;
    reader.read_to(&group(1), 20).await;
    assert_eq!(reader.ids(&group(1)), (1..=20).collect::<Vec<_>>());
    backend.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn st_26_arc_080_history_waits_for_a_slow_reader() {
    let backend = Backend::with("streams.keepalive_interval_ms = 60000").await;
    for first in [0, 20, 40] {
        backend.publish(large_messages(1, first..first + 20)).await;
    }
    let mut slow = Reader::following(&backend, &[(group(1), 0)]).await;
    let mut other = Reader::following(&backend, &[(group(2), 0)]).await;
    // The slow one reads a frame whenever another stream has had a row delivered: far slower than it could.
    for number in 0..30 {
        let metas = backend.publish(messages(2, [number])).await;
        other.read_to(&group(2), meta_id(&metas[0])).await;
        slow.next().await;
    }
    slow.read_to(&group(1), 60).await;
    assert_eq!(slow.ids(&group(1)), (1..=60).collect::<Vec<_>>());
    backend.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn st_36_s10_str_011_commits_and_application_messages_are_one_sequence() {
    let backend = Backend::start().await;
    let kinds = |number: u8| {
        if number.is_multiple_of(3) {
            ContentType::Commit
        } else {
            ContentType::Application
        }
    };
    let mut reader = Reader::open(&backend).await;
    let publish = async {
        for number in 1..=120 {
            let message = mls_message(&[1; 16], kinds(number), &[number]);
            backend.publish([message]).await;
        }
    };
    let follow = async {
        eventually("there is history", async || {
            (backend.read(&group(1)).await.len() >= 20).then_some(())
        })
        .await;
        reader.update(&[(group(1), 0)], &[]);
        reader.read_to(&group(1), 120).await;
    };
    tokio::join!(publish, follow);
    let flags: Vec<(u64, bool)> = reader
        .rows(&group(1))
        .iter()
        .filter_map(|row| row.meta.as_ref())
        .map(|meta| (meta_id(meta), meta.is_commit_or_proposal))
        .collect();
    let expected: Vec<(u64, bool)> = (1..=120)
        .map(|number| (number.into(), kinds(number) == ContentType::Commit))
        .collect();
    assert_eq!(flags, expected);
    backend.stop().await;
}

/// Far longer than a test waits.
const NO_POLL: &str = "streams.poll_interval_ms = 600000";

#[tokio::test]
async fn a_commit_wakes_the_streams_of_its_own_instance() {
    let backend = Backend::with(NO_POLL).await;
    let mut reader = Reader::following(&backend, &[(group(1), 0), (group(2), 0)]).await;
    for number in 1..=20 {
        let metas = backend
            .publish(messages(1 + number % 2, [number.into()]))
            .await;
        let topic = group(1 + number % 2);
        reader.read_to(&topic, meta_id(&metas[0])).await;
    }
    backend.stop().await;
}

#[tokio::test]
async fn arc_071_the_interval_finds_what_no_commit_of_this_instance_says() {
    let backend = Backend::with(NO_POLL).await;
    let quick = "streams.poll_interval_ms = 10";
    let (other, of_other) = backend.another(quick).await;
    let deaf = format!("{quick}\nstreams.wake_on_commit = false");
    let (deaf, of_deaf) = backend.another(&deaf).await;
    let mut readers = Vec::new();
    for channel in [of_other, of_deaf.clone()] {
        let mut reader = Reader::try_open_with(SubscriptionServiceClient::new(channel))
            .await
            .expect("admitted");
        reader.update(&[(group(1), 0)], &[]);
        reader.applied().await;
        readers.push(reader);
    }
    let mut own = PublishServiceClient::new(of_deaf);
    for number in 1..=20 {
        let request = PublishRequest {
            envelopes: messages(1, [number]),
        };
        let answer = if number % 2 == 0 {
            own.publish(request).await
        } else {
            backend.publisher().publish(request).await
        };
        let id = meta_id(&answer.expect("accepted").into_inner().envelope_metas[0]);
        for reader in &mut readers {
            reader.read_to(&group(1), id).await;
        }
    }
    other.stop().await;
    deaf.stop().await;
    backend.stop().await;
}
