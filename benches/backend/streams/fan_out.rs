//! One topic to many streams, against a bare broadcast of equal bytes.

use std::time::Instant;

use bytes::Bytes;
use futures::future::join_all;
use prost::Message;
use tokio::task::JoinSet;
use tonic::transport::Channel;
use xmtp_protocol::client::PublishServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::{PublishRequest, ServerEnvelope};
use xmtp_test_support::TestDatabase;
use xmtp_test_support::payloads::{ContentType, mls_message};

use super::client::{Stream, group, group_id};
use crate::bare::{self, BareServer};
use crate::figures::{Verdict, at_least, median};
use crate::server::{Server, connect};

const STREAMS: u32 = 1000;
const STREAMS_OF_A_CONNECTION: usize = 100;
const ROWS: u32 = 100;
/// Lets one connection have that many.
pub(crate) const SETTINGS: &str = "limits.max_http2_streams = 1000";
const ROUNDS: usize = 3;
const CIPHERTEXT: [u8; 960] = [0x5a; 960];

const LEAST_RATIO: f64 = 0.4;

pub(crate) async fn measure() -> Verdict {
    let database = TestDatabase::create().await;
    let server = Server::start(&database, SETTINGS).await;
    let bare = BareServer::start().await;
    println!("{ROWS} rows to {STREAMS} streams: deliveries a second");
    println!("{:>6}  {:>9}  {:>9}", "round", "backend", "bare");
    let (mut ours, mut bares) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let number = u32::try_from(round).expect("few rounds");
        let delivered = deliver(&server, number).await;
        let figures = (delivered, broadcast(&bare, row(number)).await);
        println!("{round:>6}  {:>9.0}  {:>9.0}", figures.0, figures.1);
        if round > 0 {
            ours.push(figures.0);
            bares.push(figures.1);
        }
    }
    at_least(
        "ratio to a bare broadcast",
        median(ours) / median(bares),
        LEAST_RATIO,
    )
}

fn rate(begin: Instant) -> f64 {
    f64::from(STREAMS * ROWS) / begin.elapsed().as_secs_f64()
}

/// Deliveries a second of a backend that is set up for so many streams of a connection.
pub(crate) async fn deliver(server: &Server, round: u32) -> f64 {
    let mut streams = Vec::new();
    for _ in 0..STREAMS as usize / STREAMS_OF_A_CONNECTION {
        let channel = server.connect().await;
        let opening = (0..STREAMS_OF_A_CONNECTION).map(|_| Stream::open(&channel, [group(round)]));
        streams.extend(join_all(opening).await);
    }
    let client = PublishServiceClient::new(server.connect().await);
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for mut stream in streams {
        tasks.spawn(async move {
            stream.take(ROWS as usize).await;
        });
    }
    publish(client, round).await;
    tasks.join_all().await;
    rate(begin)
}

async fn publish(mut client: PublishServiceClient<Channel>, round: u32) {
    for number in 0..ROWS {
        let envelopes = vec![message(round, number)];
        client
            .publish(PublishRequest { envelopes })
            .await
            .expect("a publish succeeds");
    }
}

fn message(round: u32, number: u32) -> xmtp_protocol::proto::xmtp::backend::v1::ClientEnvelope {
    let text = [&number.to_be_bytes()[..], &CIPHERTEXT].concat();
    mls_message(&group_id(round), ContentType::Application, &text)
}

/// As many bytes as a row has, with its metadata.
fn row(round: u32) -> Bytes {
    let envelope = ServerEnvelope {
        meta: None,
        envelope: Some(message(round, 0)),
    };
    let metadata = [0; 100];
    [&envelope.encode_to_vec()[..], &metadata].concat().into()
}

async fn broadcast(bare: &BareServer, row: Bytes) -> f64 {
    let mut streams = Vec::new();
    for _ in 0..STREAMS as usize / STREAMS_OF_A_CONNECTION {
        let channel = connect(bare.address).await;
        let opening = (0..STREAMS_OF_A_CONNECTION).map(|_| bare::follow(&channel));
        streams.extend(join_all(opening).await);
    }
    let channel = connect(bare.address).await;
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for mut stream in streams {
        tasks.spawn(async move {
            for _ in 0..ROWS {
                let frame = stream.message().await.expect("the stream lives");
                frame.expect("the bare server ends no stream");
            }
        });
    }
    for _ in 0..ROWS {
        bare::send(&channel, row.clone()).await;
    }
    tasks.join_all().await;
    rate(begin)
}
