//! What hostile clients cost the others.

use std::net::SocketAddr;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use xmtp_protocol::client::PublishServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::PublishRequest;
use xmtp_test_support::TestDatabase;
use xmtp_test_support::payloads::{ContentType, mls_message};

use super::client::{Stream, group, group_id};
use super::latency;
use crate::child;
use crate::figures::{Verdict, at_most, milliseconds, percentile};
use crate::server::{Server, connect};

/// Makes this program a hostile client; the name of the attack and the server's address follow.
pub(crate) const ARGUMENT: &str = "attack";

const TIME: Duration = Duration::from_secs(10);
const PER_SECOND: u32 = 100;
/// The topic that peers follow who never read.
const BUSY: u32 = 1;

const MOST: f64 = 3.0;

type Attack = (&'static str, fn(SocketAddr) -> BoxFuture<'static, ()>);

const ATTACKS: [Attack; 5] = [
    ("many topics", |address| many_topics(address).boxed()),
    ("never reading", |address| never_reading(address).boxed()),
    ("half open", |address| half_open(address).boxed()),
    ("rapid reset", |address| rapid_reset(address).boxed()),
    ("garbage", |address| garbage(address).boxed()),
];

/// Attacks one by one, then all together. Attackers are processes that run when nobody else wants to, since
/// those of the world do not run on the server's machine; the server's work for them is not held back.
pub(crate) async fn measure() -> Verdict {
    let database = TestDatabase::create().await;
    let server = Server::start(&database, "").await;
    println!("{PER_SECOND} messages a second of an honest client: publish to delivery, p99, ms");
    honest(&server, 0).await;
    let normal = percentile(honest(&server, 1).await, 99);
    println!("alone: {normal:.1}");
    let address = server.address.to_string();
    for (round, (name, _)) in (2..).zip(ATTACKS) {
        let hostile = child::start_nice(&[ARGUMENT, name, &address]).await;
        let attacked = percentile(honest(&server, round).await, 99);
        drop(hostile);
        println!("{name}: {attacked:.1}");
        sleep(Duration::from_secs(1)).await;
    }
    let attackers = ATTACKS.map(|(name, _)| [ARGUMENT, name, &address]);
    let attackers = join_all(attackers.iter().map(|one| child::start_nice(one))).await;
    let attacked = percentile(honest(&server, 100).await, 99);
    drop(attackers);
    println!("all together: {attacked:.1}");
    at_most("attacked by all, of alone", attacked / normal, MOST)
}

/// Attacks the server at `address` until it is killed.
pub(crate) async fn attack(name: &str, address: &str) {
    let address = address.parse().expect("an address");
    let named = ATTACKS.iter().find(|(attack, _)| *attack == name);
    let (_, attack) = named.expect("an attack has this name");
    println!("attacking");
    attack(address).await;
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
        let _ = Stream::try_open(&channel, (100_000..200_000).map(group)).await;
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
        sleep(Duration::from_millis(20)).await;
    }
    drop(streams);
}

/// Opens connections and says nothing.
async fn half_open(address: SocketAddr) {
    let mut connections = Vec::new();
    for _ in 0..500 {
        connections.extend(TcpStream::connect(address).await);
        sleep(Duration::from_millis(5)).await;
    }
    std::future::pending::<()>().await;
    drop(connections);
}

/// Opens streams and drops them at once.
async fn rapid_reset(address: SocketAddr) {
    loop {
        let channel = connect(address).await;
        for _ in 0..200 {
            let opening = Stream::try_open(&channel, [group(2)]);
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
        sleep(Duration::from_millis(2)).await;
    }
}
