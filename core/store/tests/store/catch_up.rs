//! Heads, and bounded fetch turns.

use bytes::Bytes;
use xmtp_protocol::Topic;
use xmtp_store::{CatchUpPage, CatchUpRange};

use crate::fixture::{Store, WRAPPING, at, content, group, publish_each};

fn range(topic: Topic, after: i64, through: i64) -> CatchUpRange {
    CatchUpRange {
        topic,
        after: at(after),
        through: at(through),
    }
}

/// Range and content of each row.
fn rows(page: &CatchUpPage) -> Vec<(usize, Bytes)> {
    page.rows
        .iter()
        .map(|row| (row.range, content(&row.envelope.payload)))
        .collect()
}

fn expected<const N: usize>(rows: [(usize, &str); N]) -> Vec<(usize, Bytes)> {
    rows.map(|(range, content)| (range, Bytes::copy_from_slice(content.as_bytes())))
        .into()
}

/// Two topics with interleaved ids: group 1 has the odd ones from 1 to 7, group 2 the even ones.
async fn interleaved() -> Store {
    let store = Store::create().await;
    for (topic, payload) in [
        (1, "a1"),
        (2, "b1"),
        (1, "a2"),
        (2, "b2"),
        (1, "a3"),
        (2, "b3"),
        (1, "a4"),
        (2, "b4"),
    ] {
        publish_each(&store.primary, group(topic), [payload]).await;
    }
    store
}

#[tokio::test]
async fn arc_076_heads_answer_each_topic_and_zero_for_an_empty_one() {
    let store = interleaved().await;
    let reads = store.primary.reads();
    let heads = reads
        .heads(&[group(2), group(3), group(1), group(3)])
        .await
        .unwrap();
    assert!(heads == [at(8), at(0), at(7), at(0)]);
    assert!(reads.heads(&[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn arc_086_each_range_gives_at_most_its_rows_lowest_first() {
    let store = interleaved().await;
    let reads = store.primary.reads();
    // The order of the ranges, not of the ids; the bounds of each; an empty one between.
    let ranges = [
        range(group(2), 2, 8),
        range(group(3), 0, 8),
        range(group(1), 0, 5),
    ];
    let page = reads.catch_up(&ranges, 2, 1_000_000, 0).await.unwrap();
    assert_eq!(
        rows(&page),
        expected([(0, "b2"), (0, "b3"), (2, "a1"), (2, "a2")])
    );
    assert!(!page.cut, "the row bound is not the byte bound");
    let page = reads.catch_up(&ranges, 64, 1_000_000, 0).await.unwrap();
    let expected = expected([
        (0, "b2"),
        (0, "b3"),
        (0, "b4"),
        (2, "a1"),
        (2, "a2"),
        (2, "a3"),
    ]);
    assert_eq!(rows(&page), expected);
    assert!(!page.cut);
}

#[tokio::test]
async fn arc_087_a_byte_cut_keeps_a_prefix_of_each_range_in_the_order_of_ranges() {
    let store = interleaved().await;
    let reads = store.primary.reads();
    let ranges = [range(group(2), 0, 8), range(group(1), 0, 8)];
    let all = expected([
        (0, "b1"),
        (0, "b2"),
        (0, "b3"),
        (0, "b4"),
        (1, "a1"),
        (1, "a2"),
        (1, "a3"),
        (1, "a4"),
    ]);
    // Two bytes wrapped, and ten of overhead each.
    let row = 12 + WRAPPING;
    for bytes in 0..=9 * row {
        let page = reads.catch_up(&ranges, 64, bytes, 10).await.unwrap();
        let fit = usize::try_from(bytes / row).unwrap().clamp(1, all.len());
        assert_eq!(rows(&page), all[..fit], "{bytes} bytes");
        assert_eq!(page.cut, fit < all.len(), "{bytes} bytes");
    }
}

#[tokio::test]
async fn arc_087_the_first_row_fits_whatever_its_size() {
    let store = Store::create().await;
    let large = "x".repeat(1_000_000);
    publish_each(&store.primary, group(1), [&large, "next"]).await;
    let reads = store.primary.reads();
    let page = reads
        .catch_up(&[range(group(1), 0, 2)], 64, 1, 100)
        .await
        .unwrap();
    assert_eq!(rows(&page), expected([(0, &large)]));
    assert!(page.cut);
}

#[tokio::test]
async fn arc_086_nothing_owed_gives_an_empty_page() {
    let store = interleaved().await;
    let reads = store.primary.reads();
    let ranges = [
        range(group(1), 7, 8),
        range(group(2), 8, 8),
        range(group(1), 5, 4),
    ];
    for ranges in [&ranges[..], &[]] {
        let page = reads.catch_up(ranges, 64, 1_000_000, 0).await.unwrap();
        assert!(page.rows.is_empty() && !page.cut);
    }
}
