//! The head of each topic.

use xmtp_protocol::Topic;
use xmtp_store::{Metadata, NewestEnvelope};

use crate::fixture::{Store, WRAPPING, content, envelope, group, inbox, publish};

fn of(newest: &[NewestEnvelope], topic: Topic) -> Option<&NewestEnvelope> {
    let mut found = newest.iter().filter(|row| row.metadata.topic == topic);
    let one = found.next();
    assert!(found.next().is_none(), "one row of a topic");
    one
}

async fn written(store: &Store) -> [Metadata; 2] {
    let mut last = envelope(group(1), "newest");
    last.retention_seconds = Some(1);
    last.is_commit_or_proposal = true;
    let rows = [
        envelope(group(1), "older"),
        envelope(inbox(1), "update"),
        last,
        envelope(group(9), "not asked for"),
    ];
    let stored = publish(&store.primary, &rows).await.unwrap();
    [stored[2], stored[1]]
}

#[tokio::test]
async fn api_244_metadata_is_complete_and_topics_without_rows_are_left_out() {
    let store = Store::create().await;
    let [message, update] = written(&store).await;
    let topics = [group(2), inbox(1), group(1)];
    let newest = store
        .primary
        .reads()
        .newest_metadata(&topics)
        .await
        .unwrap();
    assert_eq!(newest.len(), 2);
    for expected in [message, update] {
        let found = of(&newest, expected.topic).unwrap();
        assert!(found.metadata == expected && found.payload.is_none());
    }
    assert!(
        store
            .primary
            .reads()
            .newest_metadata(&[])
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn api_244_envelopes_carry_their_payload_within_the_bound() {
    let store = Store::with(|settings| settings.max_connections = 2).await;
    let [message, update] = written(&store).await;
    let topics = [group(1), inbox(1), group(2)];
    let reads = store.primary.reads();
    // Six bytes each, wrapped.
    let bytes = 2 * usize::try_from(6 + WRAPPING).unwrap();
    let newest = reads.newest_envelopes(&topics, bytes).await.unwrap();
    let newest = newest.unwrap();
    assert_eq!(newest.len(), 2);
    for (expected, sent) in [(message, "newest"), (update, "update")] {
        let found = of(&newest, expected.topic).unwrap();
        assert!(found.metadata == expected);
        assert_eq!(found.payload.as_ref().map(content).unwrap(), sent);
    }
    for _ in 0..5 {
        let newest = reads.newest_envelopes(&topics, bytes - 1).await.unwrap();
        assert!(newest.is_none());
    }
    store.serves(2).await;
}

#[tokio::test]
async fn ops_002_an_expired_row_is_still_the_newest() {
    let store = Store::create().await;
    let [message, _] = written(&store).await;
    store
        .database
        .execute("UPDATE envelopes SET server_ns = 1, expiry_ns = 2")
        .await;
    let newest = store
        .primary
        .reads()
        .newest_metadata(&[group(1)])
        .await
        .unwrap();
    assert!(newest[0].metadata.sequence_id == message.sequence_id);
    assert_eq!(newest[0].metadata.expiry_ns, Some(2));
}
