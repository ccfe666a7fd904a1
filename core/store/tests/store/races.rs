//! Many publishers on few topics, and a reader that watches.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::join_all;
use sqlx::Row;
use xmtp_protocol::{SequenceId, Topic};
use xmtp_store::{NewEnvelope, Page, Primary, TopicPosition};

use crate::fixture::{ROWS, Store, envelope, group, number, publish, set_for_new_sessions};

const ROUNDS: u16 = 500;
const TOPICS: u8 = 4;
/// Two publishers send each of these at the same time: 16 of them on 4 topics.
const PAIRS: u8 = 8;

/// What a pair sends in a round: two envelopes on two topics, named in either order.
fn sent(round: u16, pair: u8) -> Vec<NewEnvelope> {
    let payload = |n: u8| [&round.to_be_bytes()[..], &[pair, n]].concat();
    let topics = [pair % TOPICS, (pair + 1) % TOPICS];
    let mut envelopes = vec![
        envelope(group(topics[0]), payload(0)),
        envelope(group(topics[1]), payload(1)),
    ];
    if pair >= TOPICS {
        envelopes.reverse();
    }
    envelopes
}

/// Follows the topics from page to page until `done` and drained: what a client ends up with that never
/// looks below a cursor again.
async fn follow(primary: Primary, done: Arc<AtomicBool>) -> HashMap<Topic, Vec<SequenceId>> {
    let mut seen: HashMap<Topic, Vec<SequenceId>> =
        (0..TOPICS).map(|n| (group(n), Vec::new())).collect();
    loop {
        let last = done.load(Ordering::SeqCst);
        let positions: Vec<TopicPosition> = seen
            .iter()
            .map(|(topic, ids)| TopicPosition {
                topic: *topic,
                after: ids.last().copied().unwrap_or(SequenceId::START),
            })
            .collect();
        let page = primary.query(&positions, 1000, usize::MAX).await.unwrap();
        let Page::Rows { envelopes, .. } = page else {
            panic!("nothing is too large");
        };
        if envelopes.is_empty() && last {
            return seen;
        }
        for row in envelopes {
            seen.get_mut(&row.metadata.topic)
                .unwrap()
                .push(row.metadata.sequence_id);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn api_201_api_222_racing_publishers_keep_topic_order_and_store_each_envelope_once() {
    let store = Store::with(|settings| settings.max_connections = 16).await;
    // Order does not depend on the disk; the length of this test does.
    set_for_new_sessions(&store.database, "synchronous_commit = off").await;
    let other = store.another().await;
    let done = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn(follow(other.clone(), Arc::clone(&done)));

    let mut answered = HashSet::new();
    for round in 0..ROUNDS {
        let answers = join_all((0..2 * PAIRS).map(|publisher| {
            // The two of a pair are on two instances.
            let primary = if publisher < PAIRS {
                &store.primary
            } else {
                &other
            }
            .clone();
            tokio::spawn(async move {
                let envelopes = sent(round, publisher % PAIRS);
                publish(&primary, &envelopes).await.unwrap()
            })
        }))
        .await;
        let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
        let (ones, others) = answers.split_at(usize::from(PAIRS));
        assert!(ones == others, "identical publishes answer the same");
        answered.extend(ones.iter().flatten().map(|row| row.sequence_id));
    }
    done.store(true, Ordering::SeqCst);

    let mut witness = store.database.connect().await;
    let expected = i64::from(ROUNDS) * i64::from(PAIRS) * 2;
    assert_eq!(number(&mut witness, ROWS).await, expected);
    assert_eq!(i64::try_from(answered.len()).unwrap(), expected);

    let mut stored: HashMap<Topic, Vec<SequenceId>> = HashMap::new();
    let rows = sqlx::query("SELECT topic, sequence_id FROM envelopes ORDER BY sequence_id")
        .fetch_all(&mut witness)
        .await
        .unwrap();
    for row in rows {
        stored
            .entry(Topic::parse(row.get(0)).unwrap())
            .or_default()
            .push(row.get::<i64, _>(1).try_into().unwrap());
    }
    let followed = reader.await.unwrap();
    for (topic, ids) in stored {
        // A lower id that became visible after a higher one would be missing.
        assert!(followed[&topic] == ids);
    }
}
