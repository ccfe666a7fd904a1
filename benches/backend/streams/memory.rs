//! What streams and topics cost in resident memory of the server.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::sleep;
use xmtp_test_support::TestDatabase;

use super::client::{Stream, group};
use crate::bare::{self, BareServer};
use crate::figures::{Verdict, at_most};
use crate::server::{Server, connect, memory};

const STREAMS: u32 = 2000;
const TOPICS_OF_A_STREAM: u32 = 10;
const MANY_STREAMS: u32 = 5000;
const STREAMS_OF_A_CONNECTION: u32 = 100;
const TOPICS: u32 = 100_000;

/// Time for the server to come to rest, and for its allocator to give back what it does not need.
const REST: Duration = Duration::from_secs(15);

const KIB: f64 = 1024.0;
const MIB: f64 = 1024.0 * KIB;

pub(crate) async fn measure() -> Verdict {
    idle_streams().await.and(topics().await).and(closed().await)
}

async fn open(server: &Server, count: u32) -> Vec<Stream> {
    let mut streams = Vec::new();
    for connection in 0..count / STREAMS_OF_A_CONNECTION {
        let channel = server.connect().await;
        let opening = (0..STREAMS_OF_A_CONNECTION).map(|number| {
            let first = (connection * STREAMS_OF_A_CONNECTION + number) * TOPICS_OF_A_STREAM;
            Stream::open(&channel, (first..first + TOPICS_OF_A_STREAM).map(group))
        });
        streams.extend(join_all(opening).await);
    }
    streams
}

/// An idle stream with its topics, above a bare one.
async fn idle_streams() -> Verdict {
    let database = TestDatabase::create().await;
    let server = Server::start(&database, "").await;
    // What the first stream of all makes the server allocate is nobody's.
    drop(open(&server, STREAMS_OF_A_CONNECTION).await);
    sleep(REST).await;
    let before = server.memory();
    let streams = open(&server, STREAMS).await;
    sleep(REST).await;
    let ours = (server.memory() - before) / f64::from(STREAMS);
    drop(streams);

    let server = BareServer::start().await;
    let before = memory(&server.child);
    let mut streams = Vec::new();
    for _ in 0..STREAMS / STREAMS_OF_A_CONNECTION {
        let channel = connect(server.address).await;
        let opening = (0..STREAMS_OF_A_CONNECTION).map(|_| bare::follow(&channel));
        streams.extend(join_all(opening).await);
    }
    sleep(REST).await;
    let bare = (memory(&server.child) - before) / f64::from(STREAMS);
    drop(streams);
    println!(
        "an idle stream: {:.1} KiB with {TOPICS_OF_A_STREAM} topics, a bare one {:.1} KiB",
        ours / KIB,
        bare / KIB
    );
    at_most(
        "an idle stream above a bare one, KiB",
        (ours - bare) / KIB,
        4.0,
    )
}

/// Topics on one stream.
async fn topics() -> Verdict {
    let database = TestDatabase::create().await;
    let server = Server::start(&database, "").await;
    let channel = server.connect().await;
    let one = Stream::open(&channel, [group(0)]).await;
    sleep(REST).await;
    let before = server.memory();
    let stream = Stream::open(&channel, (0..TOPICS).map(group)).await;
    sleep(REST).await;
    let grown = server.memory() - before;
    drop((one, stream));
    println!(
        "{TOPICS} topics: {:.0} bytes each",
        grown / f64::from(TOPICS)
    );
    at_most("100,000 topics on one stream, MiB", grown / MIB, 20.0)
}

/// What is left when many streams have closed.
async fn closed() -> Verdict {
    let database = TestDatabase::create().await;
    let server = Server::start(&database, "").await;
    drop(open(&server, STREAMS_OF_A_CONNECTION).await);
    sleep(REST).await;
    let before = server.memory();
    let streams = open(&server, MANY_STREAMS).await;
    let open = server.memory();
    drop(streams);
    sleep(REST).await;
    let after = server.memory();
    println!(
        "{MANY_STREAMS} streams: {:.1} MiB before, {:.1} open, {:.1} closed",
        before / MIB,
        open / MIB,
        after / MIB
    );
    at_most("after closing, of before", after / before, 1.2)
}
