//! The publish transaction: what it stores, and what it refuses to.

use std::sync::Arc;

use xmtp_store::publish::PublishLocks;
use xmtp_store::{ErrorKind, Metadata, NewEnvelope};

use crate::fixture::{
    ROWS, Store, at, envelope, failure, group, inbox, number, publish, publish_each, wrapped,
};

const WATERMARKS: &str = "SELECT coalesce(sum(last_sequence_id), 0)::bigint FROM topic_watermark";

#[tokio::test]
async fn arc_030_ids_follow_the_order_of_the_request_over_topics() {
    let store = Store::create().await;
    let envelopes: Vec<NewEnvelope> = (0..60)
        .map(|n: u8| envelope(group((59 - n) % 7), [n]))
        .collect();
    let stored = publish(&store.primary, &envelopes).await.unwrap();
    assert!(stored.is_sorted_by(|one, next| one.sequence_id < next.sequence_id));
    assert!(
        stored
            .iter()
            .map(Metadata::key)
            .eq(envelopes.iter().map(|new| new.key))
    );
}

#[tokio::test]
async fn api_286_ids_start_at_one_and_api_289_grow_over_topics_and_instances() {
    let store = Store::create().await;
    let other = store.another().await;
    let mut last = 0;
    for n in 1..=10 {
        let instance = if n % 2 == 0 { &store.primary } else { &other };
        let [id] = publish_each(instance, group(n % 3), [&n.to_string()]).await;
        assert!(id > last);
        if n == 1 {
            assert_eq!(id, 1);
        }
        last = id;
    }
}

#[tokio::test]
async fn api_221_new_stored_and_repeated_inputs_keep_their_positions() {
    let store = Store::create().await;
    let [old, one, two] = ["old", "one", "two"].map(|payload| envelope(group(1), payload));
    let first = publish(&store.primary, std::slice::from_ref(&old))
        .await
        .unwrap();
    let stored = publish(&store.primary, &[one.clone(), old, two.clone()])
        .await
        .unwrap();
    assert!(stored[1] == first[0]);
    assert!(stored[0].key() == one.key && stored[2].key() == two.key);
    assert!(first[0].sequence_id < stored[0].sequence_id);
    assert!(stored[0].sequence_id < stored[2].sequence_id);
    // A repetition answers what is stored, and stores nothing.
    let again = publish(&store.primary, &[two, one]).await.unwrap();
    assert!(again[0] == stored[2] && again[1] == stored[0]);
    assert_eq!(number(&mut store.database.connect().await, ROWS).await, 3);
}

#[tokio::test]
async fn arc_035_new_rows_of_one_publish_share_the_start_of_its_transaction() {
    let store = Store::create().await;
    let holder = store.primary.publish().await.unwrap();
    let holder = holder.begin(&PublishLocks::new([&group(1)])).await.unwrap();
    let before = store.primary.clock_ns().await.unwrap();
    let waiting = tokio::spawn({
        let primary = store.primary.clone();
        async move {
            let envelopes = [envelope(group(1), "a"), envelope(group(2), "b")];
            publish(&primary, &envelopes).await.unwrap()
        }
    });
    store.until_waiting(1).await;
    let while_waiting = store.primary.clock_ns().await.unwrap();
    holder.rollback().await;
    let stored = waiting.await.unwrap();
    assert_eq!(stored[0].server_ns, stored[1].server_ns);
    let server_ns = i64::try_from(stored[0].server_ns).unwrap();
    assert!((before..=while_waiting).contains(&server_ns));
}

#[tokio::test]
async fn api_212_expiry_is_the_server_time_and_the_retention_or_never() {
    const SECONDS: i64 = 7_776_000;
    let store = Store::create().await;
    let [mut kept, mut expiring] = ["kept", "expiring"].map(|payload| envelope(group(1), payload));
    kept.is_commit_or_proposal = true;
    expiring.retention_seconds = Some(SECONDS);
    let stored = publish(&store.primary, &[kept, expiring]).await.unwrap();
    assert!(stored[0].expiry_ns.is_none() && stored[0].is_commit_or_proposal);
    assert_eq!(
        stored[1].expiry_ns,
        Some(stored[1].server_ns + 7_776_000_000_000_000)
    );
    assert!(!stored[1].is_commit_or_proposal);
    // What a duplicate answers is what was stored, whatever is configured now.
    let again = publish(&store.primary, &[envelope(group(1), "expiring")]).await;
    assert!(again.unwrap()[0] == stored[1]);
}

#[tokio::test]
async fn ops_020_an_expiry_beyond_the_range_stores_nothing() {
    let store = Store::create().await;
    // The product overflows; only the sum does; the time would not be after the row's own.
    for seconds in [i64::MAX, 9_223_372_036, 0, -1] {
        let sound = envelope(group(1), "sound");
        let mut overflowing = envelope(group(2), "overflowing");
        overflowing.retention_seconds = Some(seconds);
        let error = failure(publish(&store.primary, &[sound, overflowing]).await);
        assert_eq!(error.kind(), ErrorKind::Invariant, "{seconds}");
    }
    let mut witness = store.database.connect().await;
    assert_eq!(number(&mut witness, ROWS).await, 0);
    assert_eq!(number(&mut witness, WATERMARKS).await, 0);
    store.at_rest().await;
}

#[tokio::test]
async fn arc_021_a_watermark_is_the_greatest_id_of_its_topic() {
    let store = Store::create().await;
    let [_, second] = publish_each(&store.primary, group(1), ["a", "b"]).await;
    let [other] = publish_each(&store.primary, group(2), ["c"]).await;
    let heads = store
        .primary
        .reads()
        .heads(&[group(2), group(3), group(1)])
        .await
        .unwrap();
    assert!(heads == [at(other), at(0), at(second)]);
}

#[tokio::test]
async fn arc_034_a_watermark_that_would_not_advance_aborts_the_whole_publish() {
    let store = Store::create().await;
    publish_each(&store.primary, group(1), ["first"]).await;
    store
        .database
        .execute("UPDATE topic_watermark SET last_sequence_id = 1000000")
        .await;
    let envelopes = [envelope(group(2), "sound"), envelope(group(1), "behind")];
    let error = failure(publish(&store.primary, &envelopes).await);
    assert_eq!(error.kind(), ErrorKind::Invariant);
    let mut witness = store.database.connect().await;
    assert_eq!(number(&mut witness, ROWS).await, 1);
    assert_eq!(number(&mut witness, WATERMARKS).await, 1_000_000);
    store.at_rest().await;
    // The process goes on, and other topics with it.
    publish_each(&store.primary, group(2), ["sound"]).await;
}

#[tokio::test]
async fn arc_050_an_unexpected_unique_violation_aborts_the_whole_publish() {
    let store = Store::create().await;
    let stored = envelope(group(1), "stored");
    publish(&store.primary, std::slice::from_ref(&stored))
        .await
        .unwrap();
    // A caller that does not look for duplicates.
    let new = envelope(group(2), "new");
    let connection = store.primary.publish().await.unwrap();
    let locks = PublishLocks::new([&group(1), &group(2)]);
    let transaction = connection.begin(&locks).await.unwrap();
    let error = failure(transaction.commit(&[&new, &stored]).await);
    assert_eq!(error.kind(), ErrorKind::Invariant);
    let mut witness = store.database.connect().await;
    assert_eq!(number(&mut witness, ROWS).await, 1);
    assert_eq!(number(&mut witness, WATERMARKS).await, 1);
    store.at_rest().await;
}

#[tokio::test]
async fn arc_032_identity_publishes_of_all_inboxes_wait_for_each_other() {
    let store = Store::create().await;
    let connection = store.primary.publish().await.unwrap();
    let first = connection
        .begin(&PublishLocks::new([&inbox(1)]))
        .await
        .unwrap();
    let second = tokio::spawn({
        let primary = store.primary.clone();
        async move {
            publish(&primary, &[envelope(inbox(2), "second")])
                .await
                .unwrap()
        }
    });
    store.until_waiting(1).await;
    // A group waits for no inbox.
    publish_each(&store.primary, group(1), ["message"]).await;
    let first = first.commit(&[&envelope(inbox(1), "first")]).await.unwrap();
    let second = second.await.unwrap();
    assert!(first[0].sequence_id < second[0].sequence_id);
}

#[tokio::test]
async fn arc_036_the_recheck_sees_what_committed_while_the_locks_were_awaited() {
    let store = Store::create().await;
    let raced = Arc::new(envelope(group(1), "raced"));
    let connection = store.primary.publish().await.unwrap();
    let first = connection
        .begin(&PublishLocks::new([&group(1)]))
        .await
        .unwrap();
    let second = tokio::spawn({
        let (primary, raced) = (store.primary.clone(), Arc::clone(&raced));
        async move { publish(&primary, &[(*raced).clone()]).await.unwrap() }
    });
    store.until_waiting(1).await;
    let first = first.commit(&[&raced]).await.unwrap();
    assert!(second.await.unwrap() == first);
    assert_eq!(number(&mut store.database.connect().await, ROWS).await, 1);
}

#[tokio::test]
async fn api_232_a_history_and_its_head_come_from_one_snapshot() {
    let store = Store::create().await;
    let empty = store.primary.history(&inbox(1)).await.unwrap();
    assert!(empty.payloads.is_empty() && empty.head == at(0));
    publish_each(&store.primary, inbox(2), ["of another inbox"]).await;
    let [.., last] = publish_each(&store.primary, inbox(1), ["a", "b", "c"]).await;
    // A watermark read apart would say something else.
    store
        .database
        .execute("UPDATE topic_watermark SET last_sequence_id = last_sequence_id + 1000")
        .await;
    let history = store.primary.history(&inbox(1)).await.unwrap();
    assert_eq!(history.payloads, ["a", "b", "c"].map(wrapped));
    assert!(history.head == at(last));
}

#[tokio::test]
async fn arc_064_a_history_beyond_the_write_cap_is_read_whole() {
    let store = Store::create().await;
    let updates: Vec<NewEnvelope> = (0..300_u16)
        .map(|n| envelope(inbox(1), n.to_be_bytes()))
        .collect();
    let stored = publish(&store.primary, &updates).await.unwrap();
    let history = store.primary.history(&inbox(1)).await.unwrap();
    assert!(
        history
            .payloads
            .iter()
            .eq(updates.iter().map(|update| &update.payload))
    );
    assert!(history.head == stored[299].sequence_id);
}
