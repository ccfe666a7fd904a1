//! Thousands of small random schedules on two instances with one database: publishes that are dropped, slow
//! or rolled back, held locks, lost connections, and streams that come, change, go and are resumed. What
//! every client was delivered is compared with the tables.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::ops::AddAssign;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::future::join_all;
use futures::{FutureExt, StreamExt, stream};
use prost::Message;
use sqlx::{AssertSqlSafe, PgConnection};
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;
use tonic::{Code, Status};
use xmtp_protocol::client::{HealthClient, PublishServiceClient, SubscriptionServiceClient};
use xmtp_protocol::proto::grpc::health::v1::HealthCheckRequest;
use xmtp_protocol::proto::xmtp::backend::v1::{ClientEnvelope, EnvelopeMeta, PublishRequest};
use xmtp_protocol::{Topic, TopicKind};
use xmtp_test_support::payloads::{ContentType, mls_message};
use xmtp_test_support::{Random, eventually};

use super::client::{Client, UNLIMITED};
use super::obstacles::{HeldBarrier, HeldId};
use super::reader::Reader;
use crate::harness::{Backend, connect, meta_id};
use crate::judge::{Row, Rows, Verdict, broken, stored};
use crate::leaks::{Leaks, Metrics};
use crate::storage::topic_key;

const SCHEDULES: u64 = 2_000;
/// Schedules under way at once: enough for both processors, and each with connections of its own.
const AT_ONCE: usize = 12;
/// Publishers of one schedule.
const PUBLISHERS: u64 = 2;
/// `database.max_connections` of each instance: few, so that schedules meet.
const CONNECTIONS: i64 = 8;

/// Two instances on one database.
struct World {
    backend: Backend,
    addresses: [SocketAddr; 2],
    /// Connections to the database that wait for a schedule to end.
    witnesses: RefCell<Vec<PgConnection>>,
}

impl World {
    /// The rows of topics on which nothing is under way any more: whoever publishes holds their locks.
    async fn settled(&self, topics: &[Topic]) -> Rows {
        let witness = self.witnesses.borrow_mut().pop();
        let mut witness = match witness {
            Some(witness) => witness,
            None => self.backend.database.connect().await,
        };
        let mut keys: Vec<i64> = topics.iter().map(topic_key).collect();
        keys.sort_unstable();
        run(&mut witness, "BEGIN").await;
        for key in keys {
            let lock = format!("SELECT pg_advisory_xact_lock({key})");
            run(&mut witness, &lock).await;
        }
        let stored = stored(&mut witness, topics).await;
        run(&mut witness, "ROLLBACK").await;
        self.witnesses.borrow_mut().push(witness);
        stored
    }
}

/// What happened.
#[derive(Default)]
struct Totals {
    rows: usize,
    deliveries: usize,
    dropped: usize,
    committed_late: usize,
    rolled_back: usize,
    barriers: usize,
    terminations: usize,
    resumptions: usize,
    broken: usize,
    verdict: Verdict,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.rows += other.rows;
        self.deliveries += other.deliveries;
        self.dropped += other.dropped;
        self.committed_late += other.committed_late;
        self.rolled_back += other.rolled_back;
        self.barriers += other.barriers;
        self.terminations += other.terminations;
        self.resumptions += other.resumptions;
        self.broken += other.broken;
        self.verdict += other.verdict;
    }
}

#[test]
fn arc_112_two_thousand_schedules_lose_repeat_and_reorder_nothing() {
    let metrics = Metrics::new();
    let runtime = metrics.runtime();
    runtime.block_on(async {
        let settings = format!("{UNLIMITED}\ndatabase.max_connections = {CONNECTIONS}");
        let backend = Backend::with(&settings).await;
        let leaks = Leaks::recorded(&metrics, &backend, CONNECTIONS).await;
        let (other, channel) = backend.another(&settings).await;
        drop(channel);
        let world = World {
            addresses: [backend.address, other.local_addr()],
            backend,
            witnesses: RefCell::default(),
        };
        let mut totals = Totals::default();
        let mut schedules = stream::iter(0..SCHEDULES)
            .map(|seed| named(&world, seed))
            .buffer_unordered(AT_ONCE);
        while let Some(of_one) = schedules.next().await {
            totals += of_one;
        }
        drop(schedules);
        world.witnesses.borrow_mut().clear();
        other.stop().await;
        check(&totals);
        leaks.none(world.backend).await;
    });
}

fn check(totals: &Totals) {
    report(totals);
    assert_eq!(totals.verdict, Verdict::default());
    assert_eq!(totals.broken, 0, "acknowledged, and not stored once");
    for often in [
        totals.dropped,
        totals.committed_late,
        totals.rolled_back,
        totals.barriers,
        totals.terminations,
    ] {
        assert!(often > 20, "chance was not fair");
    }
    assert!(totals.resumptions > 1000);
}

#[expect(clippy::print_stdout, reason = "shown with --nocapture")]
fn report(totals: &Totals) {
    let Totals {
        rows,
        deliveries,
        dropped,
        committed_late,
        rolled_back,
        barriers,
        terminations,
        resumptions,
        broken,
        verdict,
    } = totals;
    println!(
        "{SCHEDULES} schedules: {rows} rows, {deliveries} deliveries, {dropped} publishes dropped, \
         {committed_late} ids committed late, {rolled_back} rolled back, {barriers} barriers held, \
         {terminations} connections terminated, {resumptions} streams resumed; \
         {broken} acknowledgements broken, {} rows lost, {} duplicated, {} reordered, {} invented",
        verdict.lost, verdict.duplicated, verdict.reordered, verdict.invented
    );
}

/// Runs a schedule; its failure says which it was.
async fn named(world: &World, seed: u64) -> Totals {
    let run = AssertUnwindSafe(schedule(world, seed)).catch_unwind();
    let Ok(totals) = run.await else {
        panic!("in the schedule of seed {seed}")
    };
    totals
}

async fn schedule(world: &World, seed: u64) -> Totals {
    let mut random = Random::new(seed);
    let channels = [
        connect(world.addresses[0]).await,
        connect(world.addresses[1]).await,
    ];
    let topics: Vec<Topic> = (0..=random.below(2)).map(|it| topic(seed, it)).collect();
    let publishing = Cell::new(PUBLISHERS);
    let publishers = join_all((0..PUBLISHERS).map(async |number| {
        let publisher = Publisher::new(world, &channels, seed, number, &topics)
            .run()
            .await;
        publishing.set(publishing.get() - 1);
        publisher
    }));
    let mut client = Client::new(&topics);
    let following = follow(&channels, &mut client, &mut random, &publishing);
    let (publishers, mut reader) = tokio::join!(publishers, following);

    let mut totals = Totals::default();
    let mut acknowledged = Vec::new();
    for mut publisher in publishers {
        publisher.settle().await;
        totals += publisher.totals;
        acknowledged.append(&mut publisher.acknowledged);
    }
    let stored = world.settled(&topics).await;
    loop {
        let mut current = match reader.take() {
            Some(reader) => reader,
            None => open(&channels, &mut random).await,
        };
        match client.finish(&mut current, &stored).await {
            Ok(()) => break,
            Err(status) => {
                assert_eq!(status.code(), Code::Unavailable, "{status:?}");
                client.resumptions += 1;
            }
        }
    }
    totals += Totals {
        rows: stored.values().map(Vec::len).sum(),
        deliveries: client.deliveries(),
        resumptions: client.resumptions,
        broken: broken(&acknowledged, &stored),
        verdict: client.verdict(&stored),
        ..Totals::default()
    };
    totals
}

/// A topic of one schedule alone.
fn topic(seed: u64, number: u64) -> Topic {
    Topic::new(TopicKind::GroupMessage, &group_id(seed, number)).expect("sixteen bytes")
}

fn group_id(seed: u64, number: u64) -> [u8; 16] {
    (u128::from(seed) << 64 | u128::from(number)).to_be_bytes()
}

fn microseconds(random: &mut Random, bound: u64) -> Duration {
    Duration::from_micros(random.below(bound))
}

/// Opens a stream on either instance, as soon as one is admitted.
async fn open(channels: &[Channel; 2], random: &mut Random) -> Reader {
    eventually("a stream is admitted", async || {
        let client = SubscriptionServiceClient::new(channels[random.index(2)].clone());
        match Reader::try_open_with(client).await {
            Ok(reader) => Some(reader),
            Err(status) => {
                assert_eq!(status.code(), Code::Unavailable, "{status:?}");
                None
            }
        }
    })
    .await
}

/// Streams from here and there until nobody publishes. The last one may still be open.
async fn follow(
    channels: &[Channel; 2],
    client: &mut Client,
    random: &mut Random,
    publishing: &Cell<u64>,
) -> Option<Reader> {
    let going = || publishing.get() > 0;
    let mut open_stream = None;
    while going() {
        let mut reader = match open_stream.take() {
            Some(reader) => reader,
            None => open(channels, random).await,
        };
        match client.follow(&mut reader, random, going).await {
            Ok(()) if random.one_in(2) => open_stream = Some(reader),
            Ok(()) => client.resumptions += 1,
            Err(status) => {
                assert_eq!(status.code(), Code::Unavailable, "{status:?}");
                client.resumptions += 1;
            }
        }
    }
    open_stream
}

async fn run(connection: &mut PgConnection, statement: &str) {
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned()))
        .execute(connection)
        .await
        .expect("the statement runs");
}

/// Publishes to the topics of a schedule, and stands in the way of others.
struct Publisher<'a> {
    world: &'a World,
    seed: u64,
    number: u64,
    topics: &'a [Topic],
    random: Random,
    channel: Channel,
    sent: u64,
    acknowledged: Vec<(Topic, Row)>,
    totals: Totals,
}

/// What is let go of after a while.
enum Held {
    Nothing,
    Id {
        id: HeldId,
        topic: Topic,
        envelope: ClientEnvelope,
        commits: bool,
    },
    Barrier(HeldBarrier),
}

impl Held {
    async fn release(self, after: Duration) {
        sleep(after).await;
        match self {
            Self::Nothing => {}
            Self::Id {
                id,
                topic,
                envelope,
                commits: true,
            } => id.commit(&topic, &envelope).await,
            Self::Id { id, .. } => id.roll_back().await,
            Self::Barrier(barrier) => barrier.release().await,
        }
    }
}

impl<'a> Publisher<'a> {
    fn new(
        world: &'a World,
        channels: &[Channel; 2],
        seed: u64,
        number: u64,
        topics: &'a [Topic],
    ) -> Self {
        let mut random = Random::new(seed << 8 | (number + 1));
        Self {
            world,
            seed,
            number,
            topics,
            channel: channels[random.index(2)].clone(),
            random,
            sent: 0,
            acknowledged: Vec::new(),
            totals: Totals::default(),
        }
    }

    async fn run(mut self) -> Self {
        for _ in 0..=self.random.below(2) {
            let held = self.hold().await;
            let release = held.release(microseconds(&mut self.random, 12_000));
            let publish = self.publish();
            tokio::join!(publish, release);
            if self.random.one_in(50) {
                self.terminate().await;
            }
            sleep(microseconds(&mut self.random, 4_000)).await;
        }
        self
    }

    async fn hold(&mut self) -> Held {
        let database = &self.world.backend.database;
        match self.random.below(32) {
            0..6 => {
                let (topic, envelope) = self.envelope();
                let id = HeldId::on_topic(database, &topic).await;
                let commits = self.random.one_in(2);
                if commits {
                    self.totals.committed_late += 1;
                    let row = (id.id.cast_unsigned(), envelope.encode_to_vec());
                    self.acknowledged.push((topic, row));
                } else {
                    self.totals.rolled_back += 1;
                }
                Held::Id {
                    id,
                    topic,
                    envelope,
                    commits,
                }
            }
            6 => {
                self.totals.barriers += 1;
                Held::Barrier(HeldBarrier::new(database).await)
            }
            _ => Held::Nothing,
        }
    }

    /// The next envelope, on one of the topics.
    fn envelope(&mut self) -> (Topic, ClientEnvelope) {
        let topic = self.random.index(self.topics.len());
        let group = group_id(self.seed, topic as u64);
        self.sent += 1;
        let text = format!("{} {}", self.number, self.sent);
        let envelope = mls_message(&group, ContentType::Application, text.as_bytes());
        (self.topics[topic], envelope)
    }

    /// Publishes some envelopes; sometimes the call is dropped, and sometimes sent again then.
    async fn publish(&mut self) {
        let (topics, envelopes): (Vec<Topic>, Vec<ClientEnvelope>) =
            (0..=self.random.below(2)).map(|_| self.envelope()).unzip();
        let mut metas = None;
        if self.random.one_in(6) {
            let patience = microseconds(&mut self.random, 8_000);
            let call = timeout(patience, send(self.channel.clone(), &envelopes));
            metas = call.await.ok().and_then(Result::ok);
            if metas.is_none() {
                self.totals.dropped += 1;
                if self.random.one_in(2) {
                    return;
                }
            }
        }
        let metas = match metas {
            Some(metas) => metas,
            None => self.send_until_acknowledged(&envelopes).await,
        };
        for ((topic, envelope), meta) in topics.into_iter().zip(envelopes).zip(metas) {
            let row = (meta_id(&meta), envelope.encode_to_vec());
            self.acknowledged.push((topic, row));
        }
    }

    async fn send_until_acknowledged(&self, envelopes: &[ClientEnvelope]) -> Vec<EnvelopeMeta> {
        eventually("the publish is acknowledged", async || {
            match send(self.channel.clone(), envelopes).await {
                Ok(metas) => Some(metas),
                Err(status) => {
                    // A connection to the database was lost.
                    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
                    None
                }
            }
        })
        .await
    }

    /// Ends connections to the database: a tailer's, or those of the pools, which the boundary tasks use too.
    async fn terminate(&mut self) {
        let application = ["xmtp-backend-tailer", "xmtp-backend"][self.random.index(2)];
        let sessions = 1 + self.random.below(4);
        let terminate = format!(
            "SELECT pg_terminate_backend(pid) FROM (
                 SELECT pid FROM pg_stat_activity
                 WHERE datname = current_database() AND application_name = '{application}'
                 ORDER BY state = 'idle', random() LIMIT {sessions}
             ) AS victims"
        );
        let terminated = sqlx::query(AssertSqlSafe(terminate))
            .fetch_all(&mut self.world.backend.database.connect().await)
            .await
            .expect("sessions can be ended");
        self.totals.terminations += terminated.len();
    }

    /// An answer on the connection: the server knows by then which calls were dropped.
    async fn settle(&mut self) {
        let answer = HealthClient::new(self.channel.clone())
            .check(HealthCheckRequest::default())
            .await;
        answer.expect("health answers");
    }
}

async fn send(channel: Channel, envelopes: &[ClientEnvelope]) -> Result<Vec<EnvelopeMeta>, Status> {
    let request = PublishRequest {
        envelopes: envelopes.to_vec(),
    };
    let answer = PublishServiceClient::new(channel).publish(request).await?;
    Ok(answer.into_inner().envelope_metas)
}
