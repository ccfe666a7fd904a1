//! Streams under a random load: whatever happens to them, their clients end with exactly what is stored.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::join_all;
use tonic::{Code, Status};
use xmtp_protocol::Topic;
use xmtp_protocol::proto::xmtp::backend::v1::ServerEnvelope;

use super::obstacles::HeldId;
use super::oracle::topic_of;
use super::reader::{Frame, Reader};
use super::recovery::reopened;
use super::{group, messages};
use crate::harness::{Backend, sequence_id};

const GROUPS: u8 = 8;
const PUBLISHERS: u64 = 4;
const PUBLISHES: u64 = 150;
const CLIENTS: u64 = 6;

/// Numbers that are the same in every run (`SplitMix64`).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn group(&mut self) -> u8 {
        u8::try_from(self.below(GROUPS.into())).expect("there are few groups")
    }
}

/// What one client keeps over all its streams.
#[derive(Default)]
struct Client {
    rows: HashMap<Topic, Vec<u64>>,
    reconnections: u32,
}

impl Client {
    fn position(&self, topic: &Topic) -> u64 {
        self.rows
            .get(topic)
            .and_then(|ids| ids.last())
            .copied()
            .unwrap_or(0)
    }

    fn keep(&mut self, rows: &[ServerEnvelope]) {
        for row in rows {
            self.rows
                .entry(topic_of(row))
                .or_default()
                .push(sequence_id(row));
        }
    }

    /// Where to go on, on each of the groups.
    fn positions(&self, groups: impl IntoIterator<Item = u8>) -> Vec<(Topic, u64)> {
        groups
            .into_iter()
            .map(|number| (group(number), self.position(&group(number))))
            .collect()
    }

    /// Follows topics as chance will have it while `publishing`, and all of them to their end afterwards.
    async fn run(mut self, backend: &Backend, seed: u64, publishing: &AtomicU64) -> Self {
        let mut random = Random(seed);
        while publishing.load(Ordering::Relaxed) > 0 {
            let mut reader = reopened(backend).await;
            match self.wander(&mut reader, &mut random, publishing).await {
                Ok(()) => drop(reader),
                Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status:?}"),
            }
            self.reconnections += 1;
        }
        while self.finish(reopened(backend).await).await.is_err() {}
        self
    }

    /// Reads and changes topics for a while.
    async fn wander(
        &mut self,
        reader: &mut Reader,
        random: &mut Random,
        publishing: &AtomicU64,
    ) -> Result<(), Status> {
        for _ in 0..=random.below(40) {
            if publishing.load(Ordering::Relaxed) == 0 {
                return Ok(());
            }
            let numbers: Vec<u8> = (0..GROUPS).filter(|_| random.below(3) == 0).collect();
            let (removes, adds): (Vec<u8>, Vec<u8>) = numbers
                .into_iter()
                .partition(|number| reader.is_registered(&group(*number)) && random.below(3) > 0);
            let removes: Vec<Topic> = removes.into_iter().map(group).collect();
            reader.update(&self.positions(adds), &removes);
            let mut applied = false;
            let mut frames = random.below(6);
            while !applied || frames > 0 {
                if applied {
                    // Rows may be owed to nobody: an answer is.
                    reader.ping(frames);
                    frames -= 1;
                }
                loop {
                    match reader.try_next().await?.expect("the server ends no stream") {
                        Frame::Rows(rows) => self.keep(&rows),
                        Frame::Applied(_) => {
                            applied = true;
                            break;
                        }
                        Frame::Pong(_) => break,
                        Frame::Ping(nonce) => reader.pong(nonce),
                    }
                }
            }
        }
        Ok(())
    }

    /// Catches up with everything.
    async fn finish(&mut self, mut reader: Reader) -> Result<(), Status> {
        reader.update(&self.positions(0..GROUPS), &[]);
        let mut targets = None;
        while targets.as_ref().is_none_or(|targets: &Vec<u64>| {
            (0..GROUPS)
                .zip(targets)
                .any(|(number, target)| self.position(&group(number)) < *target)
        }) {
            match reader.try_next().await?.expect("the server ends no stream") {
                Frame::Rows(rows) => self.keep(&rows),
                Frame::Applied(of) => targets = Some(of),
                Frame::Ping(nonce) => reader.pong(nonce),
                Frame::Pong(_) => {}
            }
        }
        Ok(())
    }
}

/// Publishes to random topics, some at once, and now and then holds an id for a while.
async fn publish(backend: &Backend, publisher: u64) {
    let mut random = Random(1000 + publisher);
    for number in 0..PUBLISHES {
        let envelopes: Vec<_> = (0..=random.below(4))
            .flat_map(|part| messages(random.group(), [publisher * 1_000_000 + number * 10 + part]))
            .collect();
        let held = match random.below(20) {
            0 => Some(HeldId::new(&backend.database).await),
            _ => None,
        };
        backend.publish(envelopes).await;
        if let Some(held) = held {
            // A group of its own: a topic has one publisher at a time, and this one holds no topic lock.
            let own = 100 + u8::try_from(publisher).expect("there are few publishers");
            if random.below(2) == 0 {
                held.commit(&group(own), &messages(own, [number])[0]).await;
            } else {
                held.roll_back().await;
            }
        }
        if publisher == 0 && number == PUBLISHES / 2 {
            backend.database.kill_sessions("xmtp-backend-tailer").await;
        }
    }
}

/// Buckets that never run dry.
const SETTINGS: &str = "limits.max_update_frames_per_second = 1000000
    limits.max_update_burst = 1000000
    limits.max_ping_frames_per_second = 1000000
    limits.max_ping_burst = 1000000";

#[tokio::test(flavor = "multi_thread")]
async fn arc_112_under_random_load_no_row_is_lost_repeated_or_reordered() {
    let backend = Backend::with(SETTINGS).await;
    let publishing = AtomicU64::new(PUBLISHERS);
    let publishers = join_all((0..PUBLISHERS).map(async |publisher| {
        publish(&backend, publisher).await;
        publishing.fetch_sub(1, Ordering::Relaxed);
    }));
    let clients =
        join_all((0..CLIENTS).map(|seed| Client::default().run(&backend, seed, &publishing)));
    let (_, clients) = tokio::join!(publishers, clients);

    let mut stored = HashMap::new();
    for number in 0..GROUPS {
        let rows = backend.read(&group(number)).await;
        let ids: Vec<u64> = rows.iter().map(sequence_id).collect();
        stored.insert(group(number), ids);
    }
    assert!(stored.values().map(Vec::len).sum::<usize>() > 1000);
    for client in clients {
        assert!(client.reconnections > 0);
        assert_eq!(client.rows, stored);
    }
    backend.stop().await;
}
