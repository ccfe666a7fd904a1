//! From the call of a publish to the row on a stream, on the instance that took it and on another.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tokio::time::interval;
use xmtp_protocol::client::PublishServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::PublishRequest;
use xmtp_test_support::TestDatabase;
use xmtp_test_support::payloads::{ContentType, mls_message};

use super::client::{Stream, group, group_id, sequence_id};
use crate::figures::{Verdict, at_most, milliseconds, percentile};
use crate::server::Server;

const PER_SECOND: u32 = 200;
const SECONDS: u32 = 15;
const COUNT: u32 = PER_SECOND * SECONDS;
const GROUPS: u32 = 50;
/// The default of `streams.poll_interval_ms`.
const INTERVAL_MS: f64 = 100.0;

pub(crate) async fn measure() -> Verdict {
    let database = TestDatabase::create().await;
    let own = Server::start(&database, "").await;
    let other = Server::start(&database, "").await;
    println!("{PER_SECOND} messages a second for {SECONDS} s, default interval");
    let mut readers = Vec::new();
    for server in [&own, &other] {
        let stream = Stream::open(&server.connect().await, (0..GROUPS).map(group)).await;
        readers.push(tokio::spawn(arrivals(stream, COUNT)));
    }
    let published = publish(&own, PER_SECOND, COUNT, |number| number % GROUPS).await;
    let own_times: Vec<f64> = published
        .values()
        .map(|(called, answered)| milliseconds(answered.duration_since(*called)))
        .collect();
    println!(
        "the publish itself, ms: p50 {:.2}, p99 {:.2}",
        percentile(own_times.clone(), 50),
        percentile(own_times, 99)
    );
    let mut verdict = Verdict::Good;
    let limits = [
        ("own instance", 1.0, "ms", 5.0, 20.0),
        ("another instance", INTERVAL_MS, "intervals", 0.6, 1.2),
    ];
    for (reader, (name, unit_ms, unit, median, tail)) in readers.into_iter().zip(limits) {
        let arrived = reader.await.expect("a reader ends well");
        let latencies: Vec<f64> = published
            .iter()
            .map(|(id, (called, _))| milliseconds(arrived[id].duration_since(*called)) / unit_ms)
            .collect();
        for (percent, limit) in [(50, median), (99, tail)] {
            let value = percentile(latencies.clone(), percent);
            verdict = verdict.and(at_most(
                &format!("{name}, p{percent}, {unit}"),
                value,
                limit,
            ));
        }
    }
    verdict
}

/// When each of so many rows came, by sequence id.
pub(super) async fn arrivals(mut stream: Stream, count: u32) -> HashMap<u64, Instant> {
    let mut arrived = HashMap::new();
    while arrived.len() < count as usize {
        let rows = stream.rows().await;
        let now = Instant::now();
        arrived.extend(rows.iter().map(|row| (sequence_id(row), now)));
    }
    arrived
}

/// Publishes at a steady pace, each message to the group that its number gives. When the publish of each row
/// was called and answered, by sequence id.
pub(super) async fn publish(
    server: &Server,
    per_second: u32,
    count: u32,
    group_of: impl Fn(u32) -> u32,
) -> HashMap<u64, (Instant, Instant)> {
    let client = PublishServiceClient::new(server.connect().await);
    let mut ticks = interval(Duration::from_secs(1) / per_second);
    let mut calls = Vec::new();
    for number in 0..count {
        ticks.tick().await;
        let mut client = client.clone();
        let id = group_id(group_of(number));
        calls.push(tokio::spawn(async move {
            let text = [&number.to_be_bytes()[..], &[0; 300]].concat();
            let message = mls_message(&id, ContentType::Application, &text);
            let request = PublishRequest {
                envelopes: vec![message],
            };
            let called = Instant::now();
            let answer = client.publish(request).await.expect("a publish succeeds");
            let times = (called, Instant::now());
            let meta = answer.into_inner().envelope_metas.remove(0);
            (meta.cursor.expect("a cursor").sequence_id, times)
        }));
    }
    let mut published = HashMap::new();
    for call in calls {
        published.extend([call.await.expect("a publish ends well")]);
    }
    published
}
