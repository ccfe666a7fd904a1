//! Streams under a random load: whatever happens to them, their clients end with exactly what is stored.

use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::join_all;
use tonic::{Code, Status};
use xmtp_protocol::Topic;
use xmtp_test_support::Random;

use super::client::{Client, UNLIMITED};
use super::obstacles::HeldId;
use super::reader::{Frame, Reader};
use super::recovery::reopened;
use super::{group, messages};
use crate::harness::Backend;
use crate::judge::{Verdict, stored};

const GROUPS: u8 = 8;
const PUBLISHERS: u64 = 4;
const PUBLISHES: u64 = 150;
const CLIENTS: u64 = 6;

fn topics() -> Vec<Topic> {
    (0..GROUPS).map(group).collect()
}

/// Follows topics as chance will have it while `publishing`, and all of them to their end afterwards.
async fn run(backend: &Backend, seed: u64, publishing: &AtomicU64) -> Client {
    let mut client = Client::new(&topics());
    let mut random = Random::new(seed);
    while publishing.load(Ordering::Relaxed) > 0 {
        let mut reader = reopened(backend).await;
        match wander(&mut client, &mut reader, &mut random, publishing).await {
            Ok(()) => drop(reader),
            Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status:?}"),
        }
        client.resumptions += 1;
    }
    let stored = stored(&mut backend.database.connect().await, &topics()).await;
    while client
        .finish(&mut reopened(backend).await, &stored)
        .await
        .is_err()
    {}
    client
}

/// Reads and changes topics for a while, as fast as the server answers.
async fn wander(
    client: &mut Client,
    reader: &mut Reader,
    random: &mut Random,
    publishing: &AtomicU64,
) -> Result<(), Status> {
    for _ in 0..=random.below(40) {
        if publishing.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        client.change(reader, random);
        let mut applied = false;
        let mut frames = random.below(6);
        while !applied || frames > 0 {
            if applied {
                // Rows may be owed to nobody: an answer is.
                reader.ping(frames);
                frames -= 1;
            }
            loop {
                let frame = reader.try_next().await?;
                let frame = frame.expect("the server ends no stream");
                let (acknowledges, answers) = (
                    matches!(frame, Frame::Applied(_)),
                    matches!(frame, Frame::Pong(_)),
                );
                client.take(frame, reader);
                applied |= acknowledges;
                if acknowledges || answers {
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Publishes to random topics, some at once, and now and then holds an id for a while.
async fn publish(backend: &Backend, publisher: u64) {
    let mut random = Random::new(1000 + publisher);
    for number in 0..PUBLISHES {
        let envelopes: Vec<_> = (0..=random.below(4))
            .flat_map(|part| {
                let group = u8::try_from(random.below(GROUPS.into())).expect("few groups");
                messages(group, [publisher * 1_000_000 + number * 10 + part])
            })
            .collect();
        let held = match random.below(20) {
            0 => Some(HeldId::new(&backend.database).await),
            _ => None,
        };
        backend.publish(envelopes).await;
        if let Some(held) = held {
            // A group of its own: a topic has one publisher at a time, and this one holds no topic lock.
            let own = 100 + u8::try_from(publisher).expect("there are few publishers");
            if random.one_in(2) {
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

#[tokio::test(flavor = "multi_thread")]
async fn arc_112_under_random_load_no_row_is_lost_repeated_or_reordered() {
    let backend = Backend::with(UNLIMITED).await;
    let publishing = AtomicU64::new(PUBLISHERS);
    let publishers = join_all((0..PUBLISHERS).map(async |publisher| {
        publish(&backend, publisher).await;
        publishing.fetch_sub(1, Ordering::Relaxed);
    }));
    let clients = join_all((0..CLIENTS).map(|seed| run(&backend, seed, &publishing)));
    let (_, clients) = tokio::join!(publishers, clients);

    let stored = stored(&mut backend.database.connect().await, &topics()).await;
    assert!(stored.values().map(Vec::len).sum::<usize>() > 1000);
    for client in clients {
        assert!(client.resumptions > 0);
        assert_eq!(client.verdict(&stored), Verdict::default());
    }
    backend.stop().await;
}
