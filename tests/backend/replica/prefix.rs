//! What a lagging replica shows under load is always a past state of its primary (OPS-010, API-201).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use sqlx::{PgConnection, Row as _};
use tokio::task::JoinSet;
use tokio::time::sleep;
use xmtp_protocol::Topic;
use xmtp_protocol::client::PublishServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::PublishRequest;
use xmtp_test_support::Random;

use super::{Pair, newest, pause, resume};
use crate::harness::connect;
use crate::judge::{Rows, stored};
use crate::streams::{Reader, abort_allocation, group, messages};

const GROUPS: u8 = 4;
const PUBLISHERS: u64 = 6;
/// Of each publisher at least, and more until the replica was looked at often enough.
const PUBLISHES: u64 = 40;
const LOOKS: usize = 10;

/// What one look at a replica saw, in one snapshot: the boundary, and the ids of each topic in the order of reading.
struct Look {
    boundary: u64,
    ids: HashMap<Topic, Vec<u64>>,
}

impl Look {
    async fn at(connection: &mut PgConnection) -> Self {
        let rows = sqlx::query(
            "SELECT closed_sequence_id, topic, sequence_id FROM allocation_boundary
             LEFT JOIN envelopes ON true ORDER BY sequence_id",
        )
        .fetch_all(connection)
        .await
        .expect("a replica can be read");
        let mut ids: HashMap<Topic, Vec<u64>> = HashMap::new();
        for row in &rows {
            if let Some(topic) = row.get::<Option<&[u8]>, _>(1) {
                let topic = Topic::parse(topic).expect("a stored topic is legal");
                let id: i64 = row.get(2);
                ids.entry(topic).or_default().push(id.cast_unsigned());
            }
        }
        let boundary: i64 = rows[0].get(0);
        Self {
            boundary: boundary.cast_unsigned(),
            ids,
        }
    }

    /// Holds it against what is stored in the end: of each topic a prefix, and every row up to the boundary.
    fn judge(&self, stored: &Rows) {
        for (topic, rows) in stored {
            let all: Vec<u64> = rows.iter().map(|(id, _)| *id).collect();
            let seen = self.ids.get(topic).map_or(&[][..], Vec::as_slice);
            assert!(all.starts_with(seen), "{seen:?} of {all:?}");
            let settled = all.iter().filter(|id| **id <= self.boundary).count();
            assert!(seen.len() >= settled, "the boundary is ahead of its rows");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ops_010_api_201_a_lagging_replica_shows_a_prefix_of_every_topic_and_no_boundary_ahead_of_it()
 {
    let (pair, backend) = Pair::serve("").await;
    let topics: Vec<Topic> = (1..=GROUPS).map(group).collect();

    let enough = Arc::new(AtomicBool::new(false));
    let mut publishers = JoinSet::new();
    for number in 0..PUBLISHERS {
        let enough = enough.clone();
        let mut client = PublishServiceClient::new(connect(backend.address).await);
        publishers.spawn(async move {
            let mut random = Random::new(number);
            let mut publish = 0;
            while publish < PUBLISHES || !enough.load(Relaxed) {
                let group_number = 1 + u8::try_from(random.below(GROUPS.into())).expect("small");
                let numbers = [number * 1_000_000 + publish];
                let envelopes = messages(group_number, numbers);
                let answer = client.publish(PublishRequest { envelopes }).await;
                answer.expect("accepted");
                publish += 1;
            }
            publish
        });
    }
    let mut looks = Vec::new();
    let mut heads: HashMap<Topic, u64> = HashMap::new();
    let mut reader = Reader::following(&backend, &[(group(1), 0), (group(2), 0)]).await;
    let mut random = Random::new(7);
    let mut standby = pair.connect(&backend.database).await;
    let mut published = 0;
    while !publishers.is_empty() {
        // Ids that nobody stores: without the boundary they would be gaps for ever.
        abort_allocation(&backend.database).await;
        pause(&pair.standby).await;
        looks.push(Look::at(&mut standby).await);
        for topic in &topics {
            // One standby goes forwards only.
            let head = newest(&backend, topic).await.expect("answered");
            let before = heads.insert(*topic, head).unwrap_or_default();
            assert!(head >= before);
        }
        sleep(Duration::from_millis(random.below(20))).await;
        resume(&pair.standby).await;
        sleep(Duration::from_millis(random.below(20))).await;
        looks.push(Look::at(&mut standby).await);
        enough.store(looks.len() >= LOOKS, Relaxed);
        while let Some(done) = publishers.try_join_next() {
            published += done.expect("every publish is accepted");
        }
        let at = reader.position(&group(1)).max(1);
        reader.probe(at).await;
    }

    let stored = stored(&mut backend.database.connect().await, &topics).await;
    let rows: usize = stored.values().map(Vec::len).sum();
    assert_eq!(rows, usize::try_from(published).expect("small"));
    for look in &looks {
        look.judge(&stored);
    }
    let advanced = looks
        .iter()
        .filter(|look| look.boundary > looks[0].boundary);
    assert!(advanced.count() > 0, "the boundary has moved meanwhile");
    for topic in &topics[..2] {
        let all: Vec<u64> = stored[topic].iter().map(|(id, _)| *id).collect();
        reader.read_to(topic, all[all.len() - 1]).await;
        assert_eq!(reader.ids(topic), all);
    }
    drop(reader);
    backend.stop().await;
}
