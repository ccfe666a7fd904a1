//! Clients that mean harm: the others are served as if they were not there, and nothing of them stays.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::join_all;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;
use xmtp_protocol::proto::xmtp::backend::v1::SubscribeStaticRequest;
use xmtp_protocol::{Topic, TopicKind};
use xmtp_test_support::Random;

use super::reader::{Frame, Reader};
use super::{group, large_messages, messages};
use crate::harness::{Backend, meta_id, query, within};
use crate::http2::{RST_STREAM, Wire};
use crate::leaks::{DEFAULT_CONNECTIONS, Leaks, Metrics};
use crate::raw::{self, frame};

const SUBSCRIBE: &str = "/xmtp.backend.v1.SubscriptionService/Subscribe";
const SUBSCRIBE_STATIC: &str = "/xmtp.backend.v1.SubscriptionService/SubscribeStatic";

/// Peers of each kind at once.
const PEERS: u64 = 4;
/// Rounds of well-behaved work at least, however soon the attackers have done their worst.
const ROUNDS: u64 = 60;
/// Topics of the largest update (`limits.max_update_adds`).
const TOPICS: u64 = 100_000;
/// Updates of that size that one client sends.
const FLOOD: usize = 4;
/// Streams that one connection opens and resets.
const RESETS: u32 = 2_000;
/// More than the buffers of a connection hold, in messages of 900 KB.
const UNREAD: u8 = 16;
/// The code of a reset by a client that has lost interest.
const CANCEL: u32 = 8;

/// On several threads, as the program runs: attackers take turns with everybody else.
#[test]
fn s09_hostile_clients_cost_the_others_no_row_and_leave_nothing_behind() {
    let metrics = Metrics::new();
    let runtime = metrics.runtime();
    runtime.block_on(async {
        // A burst of updates that would take a minute is no better attack than one of seconds.
        let backend = Backend::with("limits.max_update_burst = 3").await;
        let leaks = Leaks::recorded(&metrics, &backend, DEFAULT_CONNECTIONS).await;
        backend.publish(large_messages(9, 0..UNREAD)).await;
        let over = AtomicBool::new(false);
        tokio::join!(attack(&backend, &over), behaves(&backend, &over));
        leaks.none(backend).await;
    });
}

/// Does everything at once that costs a server more than its client.
async fn attack(backend: &Backend, over: &AtomicBool) {
    let address = backend.address;
    let never_reading = join_all((0..PEERS).map(|_| never_reads(address))).await;
    let half_open = join_all((0..PEERS).map(|peer| half_opens(address, peer))).await;
    tokio::join!(
        join_all((0..2).map(|_| floods_with_updates(backend))),
        join_all((0..PEERS).map(|_| resets(address))),
        join_all((0..PEERS).map(|peer| sends_garbage(address, peer))),
    );
    over.store(true, Ordering::Relaxed);
    drop((never_reading, half_open));
}

/// Publishes, queries and streams, and gets everything once and in order.
async fn behaves(backend: &Backend, over: &AtomicBool) {
    let mut reader = Reader::following(backend, &[(group(1), 0)]).await;
    let mut published = Vec::new();
    for number in 0.. {
        if number >= ROUNDS && over.load(Ordering::Relaxed) {
            break;
        }
        let metas = within(backend.publish(messages(1, [number]))).await;
        published.push(meta_id(&metas[0]));
        reader.read_to(&group(1), meta_id(&metas[0])).await;
        if number % 16 == 0 {
            reader.probe(number).await;
            assert_eq!(backend.read(&group(1)).await.len(), published.len());
            let mut late = Reader::following(backend, &[(group(1), 0)]).await;
            late.read_to(&group(1), meta_id(&metas[0])).await;
            assert_eq!(late.ids(&group(1)), published);
        }
    }
    assert_eq!(reader.ids(&group(1)), published);
}

/// Adds and removes as many topics as it may, at full rate, until it is thrown out or has enough.
async fn floods_with_updates(backend: &Backend) {
    let topics: Vec<Topic> = (0..TOPICS)
        .map(|number| {
            let number = u128::from(number) + (1 << 64);
            Topic::new(TopicKind::GroupMessage, &number.to_be_bytes()).expect("sixteen bytes")
        })
        .collect();
    let adds: Vec<(Topic, u64)> = topics.iter().map(|topic| (*topic, 0)).collect();
    let mut reader = Reader::open(backend).await;
    for _ in 0..FLOOD / 2 {
        reader.update(&adds, &[]);
        reader.update(&[], &topics);
    }
    for _ in 0..FLOOD {
        match reader.try_next().await {
            Ok(frame) => assert!(matches!(frame, Some(Frame::Applied(_))), "{frame:?}"),
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
                break;
            }
        }
    }
}

/// Asks for more than the connection holds, and reads none of it.
async fn never_reads(address: SocketAddr) -> impl Sized {
    let request = SubscribeStaticRequest {
        topics: vec![query(&group(9), 0)],
    };
    let body = frame(&request.encode_to_vec());
    raw::open_web(address, SUBSCRIBE_STATIC, body, &[]).await
}

/// Says nothing, or stops in the middle of what it says.
async fn half_opens(address: SocketAddr, peer: u64) -> impl Sized {
    let mut stream = TcpStream::connect(address).await.expect("connected");
    let said: [&[u8]; 4] = [
        b"",
        b"PRI * HTTP/2.0\r\n\r\nSM",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\xff\x04",
        b"POST /xmtp.backend.v1.PublishService/Publish HTTP/1.1\r\nhost",
    ];
    let said = said[usize::try_from(peer).expect("few peers") % said.len()];
    stream.write_all(said).await.expect("sent");
    stream
}

/// Opens streams and resets them at once.
async fn resets(address: SocketAddr) {
    let mut wire = Wire::open(address).await;
    for number in 0..RESETS {
        let stream = 2 * number + 1;
        let opened = wire.open_stream(stream, SUBSCRIBE).await;
        let reset = wire
            .try_send(RST_STREAM, 0, stream, &CANCEL.to_be_bytes())
            .await;
        if opened.and(reset).is_err() {
            // The server has hung up.
            break;
        }
    }
}

/// Sends what is no frame, on every layer.
async fn sends_garbage(address: SocketAddr, peer: u64) {
    let mut random = Random::new(peer);
    for round in 0..12 {
        let length = 1 + random.index(4096);
        let noise: Vec<u8> = (0..length)
            .map(|_| u8::try_from(random.below(256)).expect("a byte"))
            .collect();
        let start: &[u8] = match round % 3 {
            0 => b"",
            1 => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            _ => {
                // A gRPC message that is none.
                let answer = raw::native(address, SUBSCRIBE, frame(&noise), &[]).await;
                assert_ne!(answer.code(), Code::Ok);
                continue;
            }
        };
        let mut stream = TcpStream::connect(address).await.expect("connected");
        // The server may hang up before it has read everything.
        let _ = stream.write_all(&[start, &noise].concat()).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let _ = within(stream.read_to_end(&mut answer)).await;
    }
}
