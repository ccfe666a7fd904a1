//! How long a backend takes to come and to go.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::Instant;
use tonic::{Code, Streaming};
use xmtp_protocol::client::SubscriptionServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::{
    Cursor, SubscribeStaticRequest, SubscribeStaticResponse, Topic as WireTopic, TopicQuery,
};
use xmtp_protocol::{Topic, TopicKind};
use xmtp_test_support::TestDatabase;

use crate::figures::{Verdict, at_most, median, milliseconds};
use crate::server::Server;

const ROUNDS: usize = 7;

const STREAMS: u32 = 2000;
const STREAMS_OF_A_CONNECTION: u32 = 100;
/// Idle connections that a drain closes.
const CONNECTIONS: usize = 20;

/// From the start of the process until it accepts, which it does only once it reports SERVING (OPS-005).
const START_LIMIT: Duration = Duration::from_millis(300);
/// The same with all migrations to be applied.
const FIRST_START_LIMIT: Duration = Duration::from_millis(1500);
/// From SIGTERM until the process is gone, with nothing in flight.
const EXIT_LIMIT: Duration = Duration::from_millis(200);
/// From SIGTERM until the last stream has its status.
const TOLD_LIMIT: Duration = Duration::from_millis(500);

pub(crate) async fn measure() -> Verdict {
    starts_and_exits().await.and(streams().await)
}

async fn starts_and_exits() -> Verdict {
    let (mut first, mut later, mut exits) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let database = TestDatabase::create().await;
        for starts in [&mut first, &mut later] {
            let begin = Instant::now();
            let server = Server::start(&database, "").await;
            starts.push(milliseconds(begin.elapsed()));
            let idle = join_all((0..CONNECTIONS).map(|_| server.connect())).await;
            let begin = Instant::now();
            server.terminate();
            server.ended().await;
            exits.push(milliseconds(begin.elapsed()));
            drop(idle);
        }
    }
    let limit = |name, figures, limit| at_most(name, median(figures), milliseconds(limit));
    limit("start on an empty database, ms", first, FIRST_START_LIMIT)
        .and(limit(
            "start on a migrated database, ms",
            later,
            START_LIMIT,
        ))
        .and(limit("exit with idle connections, ms", exits, EXIT_LIMIT))
}

/// Every open stream is told, however many there are.
async fn streams() -> Verdict {
    let database = TestDatabase::create().await;
    let server = Server::start(&database, "").await;
    let mut streams = Vec::new();
    for connection in 0..STREAMS / STREAMS_OF_A_CONNECTION {
        let channel = server.connect().await;
        let first = connection * STREAMS_OF_A_CONNECTION;
        let opening = (first..first + STREAMS_OF_A_CONNECTION).map(|number| {
            let client = SubscriptionServiceClient::new(channel.clone());
            async move { open(client, number).await }
        });
        streams.extend(join_all(opening).await);
    }
    let begin = Instant::now();
    let ends = streams.into_iter().map(|mut stream| {
        tokio::spawn(async move {
            let status = loop {
                if let Err(status) = stream.message().await {
                    break status;
                }
            };
            assert_eq!(status.code(), Code::Unavailable);
            begin.elapsed()
        })
    });
    let ends: Vec<_> = ends.collect();
    server.terminate();
    let told = join_all(ends).await.into_iter().map(|end| {
        let elapsed = end.expect("the stream ends with a status");
        milliseconds(elapsed)
    });
    let last = told.fold(0.0, f64::max);
    server.ended().await;
    at_most(
        "the last of 2,000 streams is told of a drain after, ms",
        last,
        milliseconds(TOLD_LIMIT),
    )
}

/// A stream of one topic, admitted.
async fn open(
    mut client: SubscriptionServiceClient<tonic::transport::Channel>,
    number: u32,
) -> Streaming<SubscribeStaticResponse> {
    let id = u128::from(number).to_be_bytes();
    let topic = Topic::new(TopicKind::GroupMessage, &id).expect("16 bytes");
    let request = SubscribeStaticRequest {
        topics: vec![TopicQuery {
            topic: Some(WireTopic {
                topic: topic.as_bytes().to_vec().into(),
            }),
            cursor: Some(Cursor { sequence_id: 0 }),
        }],
    };
    let opened = client.subscribe_static(request).await.expect("admitted");
    let mut stream = opened.into_inner();
    stream
        .message()
        .await
        .expect("it lives")
        .expect("it is open");
    stream
}
