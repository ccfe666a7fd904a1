//! What hostile clients cost the others.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use futures::stream::{self, StreamExt};
use http::{Request, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use prost::Message;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tonic::Status;
use tonic::body::Body;
use tonic::client::GrpcService;
use xmtp_protocol::client::PublishServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::subscribe_request::{self, Update};
use xmtp_protocol::proto::xmtp::backend::v1::{
    PublishRequest, SubscribeRequest, Topic as WireTopic, TopicQuery,
};
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
/// What a program takes to start is no part of its attack.
const ONSET: Duration = Duration::from_secs(1);
const PER_SECOND: u32 = 100;
/// The topic that peers follow who never read.
const BUSY: u32 = 1;

const MOST: f64 = 3.0;

const SUBSCRIBE: &str = "/xmtp.backend.v1.SubscriptionService/Subscribe";

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
        sleep(ONSET).await;
        let attacked = percentile(honest(&server, round).await, 99);
        drop(hostile);
        println!("{name}: {attacked:.1}");
        sleep(Duration::from_secs(1)).await;
    }
    let attackers = ATTACKS.map(|(name, _)| [ARGUMENT, name, &address]);
    let attackers = join_all(attackers.iter().map(|one| child::start_nice(one))).await;
    sleep(ONSET).await;
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

/// Opens streams with as many topics as one may have, one after the other. It encodes them once and decodes no
/// answer, so that the work is the server's.
async fn many_topics(address: SocketAddr) {
    let mut channel = connect(address).await;
    let adds = (100_000..200_000).map(|number| TopicQuery {
        topic: Some(WireTopic {
            topic: Bytes::copy_from_slice(group(number).as_bytes()),
        }),
        cursor: None,
    });
    let update = SubscribeRequest {
        request: Some(subscribe_request::Request::Update(Update {
            id: 1,
            adds: adds.collect(),
            removes: Vec::new(),
        })),
    };
    let length = u32::try_from(update.encoded_len()).expect("a few megabytes");
    let mut message = BytesMut::from(&[0; 1][..]);
    message.put_u32(length);
    message.extend(update.encode_to_vec());
    let message = message.freeze();
    loop {
        let update = stream::iter([Ok::<_, Status>(Frame::data(message.clone()))]);
        let request = Request::post(SUBSCRIBE)
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers")
            .body(Body::new(StreamBody::new(update.chain(stream::pending()))))
            .expect("a request");
        let ready = poll_fn(|context| GrpcService::<Body>::poll_ready(&mut channel, context)).await;
        ready.expect("the connection lives");
        let Ok(answer) = GrpcService::call(&mut channel, request).await else {
            continue;
        };
        // A target has its topic, as an interest has.
        let mut answer = answer.into_body();
        let mut left = message.len();
        while left > 0
            && let Some(Ok(frame)) = answer.frame().await
        {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
        }
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
