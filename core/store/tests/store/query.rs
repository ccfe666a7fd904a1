//! Pages of topics above their cursors.

use std::collections::HashMap;

use bytes::Bytes;
use xmtp_protocol::{SequenceId, Topic};
use xmtp_store::{CatchUpRange, ErrorKind, Page, Primary, StoredEnvelope, TopicPosition};

use crate::fixture::{
    Store, WRAPPING, at, content, envelope, failure, group, publish, publish_each,
};

fn above(topic: Topic, after: i64) -> TopicPosition {
    TopicPosition {
        topic,
        after: at(after),
    }
}

async fn page(
    primary: &Primary,
    positions: &[TopicPosition],
    limit: i64,
) -> (Vec<StoredEnvelope>, bool) {
    match primary.query(positions, limit, usize::MAX).await.unwrap() {
        Page::Rows {
            envelopes,
            has_more,
        } => (envelopes, has_more),
        Page::TooLarge => panic!("there is no bound"),
    }
}

fn contents(rows: &[StoredEnvelope]) -> Vec<Bytes> {
    rows.iter().map(|row| content(&row.payload)).collect()
}

#[tokio::test]
async fn api_240_has_more_is_exact_around_the_limit() {
    let store = Store::create().await;
    publish_each(&store.primary, group(1), ["a", "b"]).await;
    publish_each(&store.primary, group(2), ["c", "d", "e"]).await;
    publish_each(&store.primary, group(3), ["of no topic asked for"]).await;
    let positions = [above(group(2), 0), above(group(1), 0)];
    let all = ["a", "b", "c", "d", "e"];
    // Of both topics, and of one that alone has more than the limit.
    for (positions, eligible) in [(&positions[..], &all[..]), (&positions[..1], &all[2..])] {
        for limit in 1..=6 {
            let (rows, more) = page(&store.primary, positions, limit).await;
            let limit = usize::try_from(limit).unwrap();
            assert_eq!(contents(&rows), eligible[..limit.min(eligible.len())]);
            assert_eq!(more, limit < eligible.len(), "limit {limit}");
        }
    }
}

#[tokio::test]
async fn api_240_a_page_is_the_union_above_each_cursor_and_each_row_once() {
    let store = Store::create().await;
    let [a1, _, _] = publish_each(&store.primary, group(1), ["a1", "a2", "a3"]).await;
    let [_, b2] = publish_each(&store.primary, group(2), ["b1", "b2"]).await;
    publish_each(&store.primary, group(1), ["a4"]).await;
    let positions = [
        above(group(1), a1),
        above(group(2), b2 - 1),
        above(group(3), 0),
    ];
    let (rows, more) = page(&store.primary, &positions, 100).await;
    assert_eq!(contents(&rows), ["a2", "a3", "b2", "a4"]);
    assert!(!more);
    assert!(rows.iter().all(|row| row.metadata.topic != group(3)));
}

#[tokio::test]
async fn api_015_a_cursor_at_or_above_the_head_yields_nothing() {
    let store = Store::create().await;
    let [id] = publish_each(&store.primary, group(1), ["a"]).await;
    for cursor in [id, id + 1, i64::MAX] {
        let (rows, more) = page(&store.primary, &[above(group(1), cursor)], 10).await;
        assert!(rows.is_empty() && !more, "{cursor}");
    }
    let (rows, more) = page(&store.primary, &[], 10).await;
    assert!(rows.is_empty() && !more);
}

#[tokio::test]
async fn arc_062_pages_drain_many_topics_without_a_hole() {
    let store = Store::create().await;
    let mut written: HashMap<Topic, Vec<SequenceId>> = HashMap::new();
    for n in 0..40_u8 {
        // Of different length, and interleaved.
        let topic = group(n % 8 % 5);
        let stored = publish(&store.primary, &[envelope(topic, [n])])
            .await
            .unwrap();
        written
            .entry(topic)
            .or_default()
            .push(stored[0].sequence_id);
    }
    for limit in [1, 3, 7, 39, 40, 41] {
        let mut read: HashMap<Topic, Vec<SequenceId>> = HashMap::new();
        loop {
            let positions: Vec<TopicPosition> = (0..5)
                .map(|n| TopicPosition {
                    topic: group(n),
                    after: read
                        .get(&group(n))
                        .and_then(|ids| ids.last().copied())
                        .unwrap_or(SequenceId::START),
                })
                .collect();
            let (rows, more) = page(&store.primary, &positions, limit).await;
            assert!(rows.len() <= usize::try_from(limit).unwrap() && !rows.is_empty());
            for row in rows {
                read.entry(row.metadata.topic)
                    .or_default()
                    .push(row.metadata.sequence_id);
            }
            if !more {
                break;
            }
        }
        assert!(read == written, "limit {limit}");
    }
}

#[tokio::test]
async fn api_202_a_publish_that_was_answered_is_read_by_another_instance() {
    let store = Store::create().await;
    let other = store.another().await;
    let stored = publish(&store.primary, &[envelope(group(1), "a")])
        .await
        .unwrap();
    let (rows, _) = page(&other, &[above(group(1), 0)], 10).await;
    // API-288: the same metadata in the receipt and in every read.
    assert!(rows[0].metadata == stored[0]);
}

#[tokio::test]
async fn api_283_payloads_beyond_the_bound_make_no_page_and_the_pool_goes_on() {
    let store = Store::with(|settings| settings.max_connections = 2).await;
    publish_each(&store.primary, group(1), ["12345", "67890"]).await;
    let positions = [above(group(1), 0)];
    let bytes = 2 * usize::try_from(5 + WRAPPING).unwrap();
    for _ in 0..5 {
        let page = store.primary.query(&positions, 10, bytes - 1);
        let page = page.await.unwrap();
        assert!(matches!(page, Page::TooLarge));
    }
    let exact = store.primary.query(&positions, 10, bytes).await.unwrap();
    assert!(matches!(exact, Page::Rows { envelopes, .. } if envelopes.len() == 2));
    store.serves(2).await;
}

/// What a disk or a hand leaves where a client envelope was.
const DAMAGE: &str = r"UPDATE envelopes SET payload = '\xffffff' WHERE sequence_id = (SELECT min(sequence_id) FROM envelopes)";

#[tokio::test]
async fn api_5_6_a_stored_row_that_does_not_decode_fails_every_read_of_it_and_no_other() {
    let store = Store::create().await;
    let [damaged, last] = publish_each(&store.primary, group(1), ["a", "b"]).await;
    let mut tail = store.primary.reads().tail().await.unwrap();
    store.database.execute(DAMAGE).await;
    let reads = store.primary.reads();
    let range = |after| CatchUpRange {
        topic: group(1),
        after: at(after),
        through: at(last),
    };
    for (after, is_sound) in [(0, false), (damaged, true)] {
        let (positions, ranges) = ([above(group(1), after)], [range(after)]);
        let page = store.primary.query(&positions, 10, 1000);
        let outcomes = [
            page.await.map(drop),
            reads.catch_up(&ranges, 10, 1000, 0).await.map(drop),
            tail.poll(at(after), &[], 10, 1000).await.map(drop),
        ];
        for outcome in outcomes {
            assert_eq!(outcome.is_ok(), is_sound, "above {after}: {outcome:?}");
            if let Err(error) = outcome {
                assert_eq!(error.kind(), ErrorKind::Invariant);
                assert_eq!(error.to_string(), "stored envelope is invalid");
            }
        }
    }
    assert!(reads.newest_envelopes(&[group(1)], 1000).await.is_ok());
    store
        .database
        .execute(r"UPDATE envelopes SET payload = '\xffffff'")
        .await;
    let error = failure(reads.newest_envelopes(&[group(1)], 1000).await);
    assert_eq!(error.kind(), ErrorKind::Invariant);
    // What the connections were asked for was read to its end, or went with them.
    store.serves(8).await;
}
