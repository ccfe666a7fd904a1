//! What hostile clients cost the others.

use std::net::SocketAddr;
use std::time::Duration;

use futures::future::join_all;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use xmtp_protocol::client::PublishServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::PublishRequest;
use xmtp_test_support::TestDatabase;
use xmtp_test_support::payloads::{ContentType, mls_message};

use super::client::{Stream, group, group_id};
use super::latency;
use crate::figures::{Verdict, at_most, milliseconds, percentile};
use crate::server::{Server, connect};

const TIME: Duration = Duration::from_secs(12);
const PER_SECOND: u32 = 100;
/// The topic that peers follow who never read.
const BUSY: u32 = 1;

const MOST: f64 = 3.0;

pub(crate) async fn measure() -> Verdict {
    let database = TestDatabase::create().await;
    let server = Server::start(&database, "").await;
    println!("{PER_SECOND} messages a second of an honest client: publish to delivery, p99, ms");
    honest(&server, 0).await;
    let normal = percentile(honest(&server, 1).await, 99);
    println!("alone: {normal:.1}");
    let address = server.address;
    let mut hostile = JoinSet::new();
    hostile.spawn(many_topics(address));
    hostile.spawn(never_reading(address));
    hostile.spawn(half_open(address));
    hostile.spawn(rapid_reset(address));
    hostile.spawn(garbage(address));
    let attacked = percentile(honest(&server, 2).await, 99);
    println!("attacked: {attacked:.1}");
    hostile.shutdown().await;
    at_most("attacked, of alone", attacked / normal, MOST)
}

/// Publishes at its pace, and follows its own topic.
async fn honest(server: &Server, round: u32) -> Vec<f64> {
    let own = round + 10;
    let stream = Stream::open(&server.connect().await, [group(own)]).await;
    let count = PER_SECOND * u32::try_from(TIME.as_secs()).expect("seconds");
    let reading = tokio::spawn(latency::arrivals(stream, count));
    let published = latency::publish(server, PER_SECOND, count, |_| own).await;
    let arrived = reading.await.expect("the reader ends well");
    published
        .iter()
        .map(|(id, (called, _))| milliseconds(arrived[id].duration_since(*called)))
        .collect()
}

/// Opens streams with as many topics as one may have, one after the other.
async fn many_topics(address: SocketAddr) {
    let channel = connect(address).await;
    loop {
        drop(Stream::open(&channel, (100_000..200_000).map(group)).await);
    }
}

/// Follows a busy topic and reads none of it.
async fn never_reading(address: SocketAddr) {
    let channel = connect(address).await;
    let streams = join_all((0..50).map(|_| Stream::open(&channel, [group(BUSY)]))).await;
    let mut client = PublishServiceClient::new(channel);
    let text = vec![0x5a; 100_000];
    for number in 0_u32.. {
        let text = [&number.to_be_bytes()[..], &text].concat();
        let envelopes = vec![mls_message(
            &group_id(BUSY),
            ContentType::Application,
            &text,
        )];
        // Refusals are what an attacker expects.
        let _ = client.publish(PublishRequest { envelopes }).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(streams);
}

/// Opens connections and says nothing.
async fn half_open(address: SocketAddr) {
    let mut connections = Vec::new();
    for _ in 0..500 {
        connections.extend(TcpStream::connect(address).await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    std::future::pending::<()>().await;
    drop(connections);
}

/// Opens streams and drops them at once.
async fn rapid_reset(address: SocketAddr) {
    loop {
        let channel = connect(address).await;
        for _ in 0..200 {
            let opening = Stream::open(&channel, [group(2)]);
            let _ = timeout(Duration::from_micros(200), opening).await;
        }
    }
}

/// Sends what is no HTTP.
async fn garbage(address: SocketAddr) {
    let noise: Vec<u8> = (0..4096_u32)
        .map(|number| (number * 31 % 251) as u8)
        .collect();
    loop {
        if let Ok(mut connection) = TcpStream::connect(address).await {
            let _ = connection
                .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
                .await;
            let _ = connection.write_all(&noise).await;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
