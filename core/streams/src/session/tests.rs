//! Whole sessions without a transport.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::channel::mpsc;
use futures::{FutureExt, StreamExt};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use xmtp_protocol::{Topic, TopicKind};
use xmtp_store::Primary;
use xmtp_test_support::{TestDatabase, eventually};

use super::{Kind, Session};
use crate::pace::DOSE;
use crate::{
    ClientFrame, End, Frame, Interest, Limits, OutputStream, Rate, Settings, Shared, Streams,
    Update,
};

/// A migrated database.
pub(crate) async fn primary(database: &TestDatabase) -> Primary {
    let settings = xmtp_store::Settings {
        url: database.url().into(),
        max_connections: 4,
        statement_timeout: Duration::from_secs(5),
        transaction_timeout: Duration::from_secs(10),
    };
    let primary = Primary::connect(settings).await.unwrap();
    primary.prepare().await.unwrap();
    primary
}

const TWO: Rate = Rate {
    per_second: NonZeroU32::MIN,
    burst: NonZeroU32::MIN.saturating_add(1),
};

fn settings() -> Settings {
    Settings {
        poll_interval: Duration::from_millis(10),
        wake_on_commit: true,
        max_gap_ranges: 10,
        max_barrier_wait: Duration::from_secs(1),
        keepalive_interval_ms: NonZeroU32::MIN.saturating_add(59_999),
        max_pong_wait: Duration::from_secs(90),
        fetch_permits: NonZeroU32::MIN,
        limits: Limits {
            max_request_bytes: 10_000,
            max_response_bytes: 1 << 20,
            max_update_adds: 10,
            max_update_removes: 10,
            max_stream_topics: 10,
            max_static_topics: 10,
            updates: TWO,
            pings: TWO,
        },
    }
}

struct Instance {
    _database: TestDatabase,
    streams: Streams,
    shared: Arc<Shared>,
    shutdown: CancellationToken,
}

/// An instance may have many thousands of idle streams.
#[tokio::test]
async fn the_future_of_a_stream_is_small() {
    let instance = Instance::start(settings()).await;
    let (session, _output) = Session::open(
        Arc::clone(&instance.shared),
        Kind::Bidirectional,
        Uuid::nil(),
    )
    .unwrap();
    let future = session.run_bidirectional(Box::pin(futures::stream::pending()));
    let bytes = size_of_val(&future);
    assert!(bytes <= 1408, "{bytes} bytes");
}

impl Instance {
    async fn start(settings: Settings) -> Self {
        let database = TestDatabase::create().await;
        let primary = primary(&database).await;
        let shutdown = CancellationToken::new();
        let reads = primary.reads();
        let streams = Streams::start(primary, reads, settings, shutdown.clone(), || ())
            .await
            .unwrap();
        Self {
            _database: database,
            shared: Arc::clone(&streams.shared),
            streams,
            shutdown,
        }
    }

    /// A stream that follows two topics.
    async fn open(&self) -> Client {
        let (frames, inbound) = mpsc::channel(16);
        let output = self.streams.subscribe(Uuid::nil(), inbound).unwrap();
        let mut client = Client { frames, output };
        assert!(matches!(client.next().await, Some(Ok(Frame::Started))));
        client.send(update(1, &[1, 2]));
        let applied = client.next().await;
        assert!(matches!(applied, Some(Ok(Frame::Applied { id: 1, .. }))));
        client
    }
}

struct Client {
    frames: mpsc::Sender<Result<ClientFrame, End>>,
    output: OutputStream,
}

impl Client {
    fn send(&mut self, frame: ClientFrame) {
        self.frames.try_send(Ok(frame)).unwrap();
    }

    async fn next(&mut self) -> Option<Result<Frame, End>> {
        self.output.next().await
    }

    /// Reads to the end.
    async fn end(mut self) -> End {
        while let Some(frame) = self.next().await {
            if let Err(end) = frame {
                return end;
            }
        }
        End::Client
    }
}

/// An update that needs a rest.
fn many(id: u64) -> ClientFrame {
    let interest = |number: usize| Interest {
        topic: Some(group(&(number as u128).to_be_bytes())),
        after: 0,
    };
    ClientFrame::Update(Update {
        id,
        adds: (0..=DOSE).map(interest).collect(),
        removes: Vec::new(),
        encoded_len: 0,
    })
}

/// An instance that lets streams have many topics.
async fn roomy() -> Instance {
    let mut settings = settings();
    settings.limits.max_update_adds = 2 * DOSE;
    settings.limits.max_stream_topics = 2 * DOSE;
    Instance::start(settings).await
}

/// A stream in the middle of an update that waits for its turn to rest.
async fn resting(instance: &Instance) -> Client {
    const A_WHILE: Duration = Duration::from_millis(300);
    let mut client = instance.open().await;
    client.send(many(2));
    let waits = timeout(A_WHILE, client.next()).await.is_err();
    assert!(waits, "for its turn");
    client
}

#[tokio::test]
async fn arc_074_work_on_many_topics_rests_and_few_wait_for_nobody() {
    let instance = roomy().await;
    let turns = instance.shared.pace.all_turns().await;
    let mut patient = resting(&instance).await;
    let _few = instance.open().await;
    drop(turns);
    let applied = patient.next().await;
    assert!(matches!(applied, Some(Ok(Frame::Applied { id: 2, .. }))));
}

#[tokio::test]
async fn ops_007_a_stream_that_rests_is_told_of_the_shutdown_at_once() {
    let instance = roomy().await;
    let _turns = instance.shared.pace.all_turns().await;
    let client = resting(&instance).await;
    instance.shutdown.cancel();
    assert_eq!(client.end().await, End::Shutdown);
    instance.streams.stopped().await;
}

/// What a client does to be ended.
type Provoke = fn(&mut Client);

fn group(id: &[u8; 16]) -> Bytes {
    let topic = Topic::new(TopicKind::GroupMessage, id).unwrap();
    Bytes::copy_from_slice(topic.as_bytes())
}

fn interest(byte: u8) -> Interest {
    Interest {
        topic: Some(group(&[byte; 16])),
        after: 0,
    }
}

fn update(id: u64, adds: &[u8]) -> ClientFrame {
    ClientFrame::Update(Update {
        id,
        adds: adds.iter().map(|byte| interest(*byte)).collect(),
        removes: vec![],
        encoded_len: 100,
    })
}

#[tokio::test]
async fn st_40_arc_082_however_streams_end_nothing_of_them_stays() {
    let instance = Instance::start(settings()).await;
    let registry = &instance.shared.registry;
    let gone = async || {
        eventually("the registry is empty", async || {
            registry.is_empty().then_some(())
        })
        .await;
    };

    let mut half_closed = instance.open().await;
    half_closed.frames.close_channel();
    assert_eq!(half_closed.end().await, End::Client);
    gone().await;

    let cancelled = instance.open().await;
    assert!(!registry.is_empty());
    drop(cancelled);
    gone().await;

    let ends: [(Provoke, &str); 5] = [
        (|client| client.send(ClientFrame::Unset), "invalid"),
        (|client| client.send(update(1, &[3])), "invalid"),
        (
            |client| client.frames.try_send(Err(End::TooLong(""))).unwrap(),
            "invalid",
        ),
        (
            |client| (0..10).for_each(|nonce| client.send(ClientFrame::Ping(nonce))),
            "rate_limited",
        ),
        (
            |client| (2..12).for_each(|id| client.send(update(id, &[]))),
            "rate_limited",
        ),
    ];
    for (provoke, reason) in ends {
        let mut client = instance.open().await;
        provoke(&mut client);
        assert_eq!(client.end().await.reason(), reason);
        gone().await;
    }

    let still = instance
        .streams
        .subscribe_static(Uuid::nil(), &[interest(1), interest(2)])
        .unwrap();
    assert!(!registry.is_empty());
    drop(still);
    gone().await;

    let drained = instance.open().await;
    let mut still = instance
        .streams
        .subscribe_static(Uuid::nil(), &[interest(1)])
        .unwrap();
    instance.shutdown.cancel();
    assert_eq!(drained.end().await, End::Shutdown);
    loop {
        match still.next().await {
            Some(Ok(Frame::StartedStatic(_))) => {}
            Some(Err(End::Shutdown)) => break,
            _ => panic!("the drain ends it"),
        }
    }
    instance.streams.stopped().await;
    assert!(registry.is_empty());
    assert!(matches!(
        instance
            .streams
            .subscribe_static(Uuid::nil(), &[interest(1)]),
        Err(End::Shutdown)
    ));
}

/// On a single thread, which the test holds up itself.
#[tokio::test]
#[expect(
    clippy::disallowed_methods,
    reason = "what is tested is a task that is held up past its deadline"
)]
async fn st_21_arc_081_a_pong_that_arrived_in_time_counts_however_late_it_is_looked_at() {
    let wait = Duration::from_millis(200);
    let instance = Instance::start(Settings {
        keepalive_interval_ms: NonZeroU32::MIN.saturating_add(49),
        max_pong_wait: wait,
        ..settings()
    })
    .await;
    let mut client = instance.open().await;
    assert!(matches!(client.next().await, Some(Ok(Frame::Ping(1)))));
    client.send(ClientFrame::Ping(10));
    client.send(ClientFrame::Pong(1));
    client.send(update(2, &[]));
    client.send(ClientFrame::Ping(11));
    std::thread::sleep(wait + wait);
    assert!(matches!(client.next().await, Some(Ok(Frame::Pong(10)))));
    assert!(matches!(
        client.next().await,
        Some(Ok(Frame::Applied { id: 2, .. }))
    ));
    assert!(matches!(client.next().await, Some(Ok(Frame::Pong(11)))));
    assert!(client.next().now_or_never().is_none(), "the stream lives");
}
