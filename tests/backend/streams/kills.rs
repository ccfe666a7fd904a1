//! Two instances on one database, killed one after the other under publishing and streaming load
//! (ARC-001; spec 002, section 4).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use prost::Message;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tonic::Status;
use tonic::transport::Channel;
use xmtp_protocol::client::PublishServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::{ClientEnvelope, EnvelopeMeta, PublishRequest};
use xmtp_protocol::{Topic, TopicKind};
use xmtp_test_support::payloads::{self, group_message};
use xmtp_test_support::{Random, TestDatabase};

use super::client::{Client, UNLIMITED};
use super::reader::Reader;
use crate::harness::{meta_id, try_connect, within};
use crate::judge::{Row, Verdict, broken, stored};
use crate::leaks::{no_sessions, sessions_rest};
use crate::process::Process;

const CYCLES: usize = 100;
const PUBLISHERS: u64 = 8;
const CLIENTS: u64 = 4;
const GROUPS: u8 = 6;
/// `database.max_connections` of an instance.
const CONNECTIONS: i64 = 8;
/// A client that was refused asks again after this.
const PAUSE: Duration = Duration::from_millis(2);

/// Where the instances are, for everybody.
struct Instances {
    state: Mutex<State>,
    killed: Notify,
}

struct State {
    /// `None` while one is down.
    addresses: [Option<SocketAddr>; 2],
    /// How often each has been started or killed.
    changes: [u64; 2],
    next_kill: Option<Kill>,
    over: bool,
}

/// An instance that dies with an acknowledgement.
struct Kill {
    instance: usize,
    process: Pid,
    /// Acknowledgements before that one.
    spared: u64,
}

impl Instances {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.state().over
    }

    /// One that is up, and how often it has changed.
    fn pick(&self, random: &mut Random) -> (usize, SocketAddr, u64) {
        let state = self.state();
        let first = random.index(2);
        [first, 1 - first]
            .into_iter()
            .find_map(|it| Some((it, state.addresses[it]?, state.changes[it])))
            .expect("one of the two is always up")
    }

    /// An instance fails nobody while it lives.
    fn must_have_changed(&self, instance: usize, changes: u64, failure: &Status) {
        assert_ne!(
            self.state().changes[instance],
            changes,
            "a living instance failed: {failure:?}"
        );
    }

    /// Hears of an acknowledgement, and kills the instance at once if this is the one: whatever it promised
    /// before it was sure is lost then.
    fn acknowledged(&self, instance: usize) {
        let mut state = self.state();
        let Some(next) = &mut state.next_kill else {
            return;
        };
        if next.instance != instance {
            return;
        }
        if next.spared > 0 {
            next.spared -= 1;
            return;
        }
        kill(next.process, Signal::SIGKILL).expect("the program can be killed");
        state.next_kill = None;
        state.addresses[instance] = None;
        state.changes[instance] += 1;
        self.killed.notify_one();
    }

    fn kill_after(&self, spared: u64, instance: usize, process: &Process) {
        let process = Pid::from_raw(process.pid().try_into().expect("a process id"));
        self.state().next_kill = Some(Kill {
            instance,
            process,
            spared,
        });
    }

    fn is_up(&self, instance: usize, process: &Process) {
        let mut state = self.state();
        state.addresses[instance] = Some(process.address);
        state.changes[instance] += 1;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arc_001_a_hundred_kills_of_two_instances_lose_repeat_and_reorder_nothing() {
    let database = TestDatabase::create().await;
    let mut servers = [serve(&database).await, serve(&database).await];
    let instances = Arc::new(Instances {
        state: Mutex::new(State {
            addresses: servers.each_ref().map(|server| Some(server.address)),
            changes: [0; 2],
            next_kill: None,
            over: false,
        }),
        killed: Notify::new(),
    });
    let mut publishers = JoinSet::new();
    for number in 0..PUBLISHERS {
        publishers.spawn(publish(Arc::clone(&instances), number));
    }
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(follow(Arc::clone(&instances), number));
    }
    let mut random = Random::new(0);
    for _ in 0..CYCLES {
        let victim = random.index(2);
        instances.kill_after(4 + random.below(24), victim, &servers[victim]);
        tokio::select! {
            () = within(instances.killed.notified()) => {}
            Some(ended) = publishers.join_next() => panic!("a publisher ended: {:?}", ended.err()),
            Some(ended) = clients.join_next() => panic!("a client ended: {:?}", ended.err()),
        }
        servers[victim].ended().await;
        // The other one has the load to itself for a while.
        sleep(Duration::from_millis(random.below(50))).await;
        servers[victim] = serve(&database).await;
        instances.is_up(victim, &servers[victim]);
    }
    instances.state().over = true;

    let (mut acknowledged, mut interrupted) = (Vec::new(), 0);
    for (of_one, lost_calls) in publishers.join_all().await {
        acknowledged.extend(of_one);
        interrupted += lost_calls;
    }
    let stored = stored(&mut database.connect().await, &topics()).await;
    let rows: usize = stored.values().map(Vec::len).sum();
    let (mut verdict, mut deliveries, mut resumptions) = (Verdict::default(), 0, 0);
    for mut client in clients.join_all().await {
        let (_, address, _) = instances.pick(&mut random);
        let mut reader = Reader::try_open_at(address).await.expect("admitted");
        let finished = client.finish(&mut reader, &stored).await;
        finished.expect("the stream is healthy");
        verdict += client.verdict(&stored);
        deliveries += client.deliveries();
        resumptions += client.resumptions;
    }
    let broken = broken(&acknowledged, &stored);
    report(&format!(
        "{CYCLES} kills: {} rows acknowledged, {interrupted} calls interrupted, {rows} rows stored, \
         {deliveries} deliveries, {resumptions} streams resumed; {broken} acknowledgements broken, \
         {} rows lost, {} duplicated, {} reordered, {} invented",
        acknowledged.len(),
        verdict.lost,
        verdict.duplicated,
        verdict.reordered,
        verdict.invented,
    ));
    assert_eq!(broken, 0, "acknowledged, and not stored once");
    assert_eq!(rows, acknowledged.len(), "stored, and never acknowledged");
    assert_eq!(verdict, Verdict::default());
    assert!(interrupted > CYCLES && resumptions > CYCLES);

    sessions_rest(&database, 2, CONNECTIONS).await;
    for server in servers {
        server.kill().await;
    }
    no_sessions(&database).await;
}

#[expect(clippy::print_stdout, reason = "shown with --nocapture")]
fn report(line: &str) {
    println!("{line}");
}

async fn serve(database: &TestDatabase) -> Process {
    // A slow machine is no failure of an instance: who waits for a lock of the killed one has time.
    let settings = format!(
        "{UNLIMITED}\nstreams.poll_interval_ms = 10\ndatabase.max_connections = {CONNECTIONS}\n\
         database.max_statement_timeout_ms = 30000\npublishing.max_publish_duration_ms = 40000"
    );
    Process::serve(database, &settings).await
}

fn topics() -> Vec<Topic> {
    (0..GROUPS).map(group).collect()
}

fn group(number: u8) -> Topic {
    payloads::topic(TopicKind::GroupMessage, number)
}

/// Publishes one request after the other, each until it is acknowledged, wherever that is. Answers what was
/// acknowledged, and how many calls failed.
async fn publish(instances: Arc<Instances>, publisher: u64) -> (Vec<(Topic, Row)>, usize) {
    let mut random = Random::new(1000 + publisher);
    let mut connections: [Option<(u64, Channel)>; 2] = [None, None];
    let (mut acknowledged, mut interrupted) = (Vec::new(), 0);
    for number in 0.. {
        if instances.is_over() {
            break;
        }
        let (topics, envelopes): (Vec<Topic>, Vec<ClientEnvelope>) = (0..=random.below(2))
            .map(|part| {
                let number_of_group = u8::try_from(random.below(GROUPS.into())).expect("few");
                let text = format!("{publisher} {number} {part}");
                (group(number_of_group), group_message(number_of_group, text))
            })
            .unzip();
        let metas = loop {
            let (instance, address, changes) = instances.pick(&mut random);
            let connection = &mut connections[instance];
            match send(connection, (address, changes), &envelopes).await {
                Ok(metas) => {
                    instances.acknowledged(instance);
                    break metas;
                }
                Err(failure) => {
                    instances.must_have_changed(instance, changes, &failure);
                    *connection = None;
                    interrupted += 1;
                    sleep(PAUSE).await;
                }
            }
        };
        for ((topic, envelope), meta) in topics.into_iter().zip(envelopes).zip(metas) {
            acknowledged.push((topic, (meta_id(&meta), envelope.encode_to_vec())));
        }
    }
    (acknowledged, interrupted)
}

/// Publishes on the connection, a new one where the instance is another.
async fn send(
    connection: &mut Option<(u64, Channel)>,
    (address, changes): (SocketAddr, u64),
    envelopes: &[ClientEnvelope],
) -> Result<Vec<EnvelopeMeta>, Status> {
    let channel = match connection {
        Some((of, channel)) if *of == changes => channel.clone(),
        _ => {
            let channel = try_connect(address).await?;
            *connection = Some((changes, channel.clone()));
            channel
        }
    };
    let request = PublishRequest {
        envelopes: envelopes.to_vec(),
    };
    let answer = within(PublishServiceClient::new(channel).publish(request)).await?;
    Ok(answer.into_inner().envelope_metas)
}

/// Streams from one instance or the other until it is over, each time from where the client is.
async fn follow(instances: Arc<Instances>, number: u64) -> Client {
    let mut client = Client::new(&topics());
    let mut random = Random::new(2000 + number);
    while !instances.is_over() {
        let (instance, address, changes) = instances.pick(&mut random);
        let streamed = match Reader::try_open_at(address).await {
            Ok(mut reader) => {
                // Now and then for long: until the instance is killed.
                let mut ended = Ok(());
                for _ in 0..=random.below(20) {
                    let going = || !instances.is_over();
                    ended = client.follow(&mut reader, &mut random, going).await;
                    if ended.is_err() || instances.is_over() {
                        break;
                    }
                }
                ended
            }
            Err(refused) => Err(refused),
        };
        client.resumptions += 1;
        if let Err(failure) = streamed {
            instances.must_have_changed(instance, changes, &failure);
            sleep(PAUSE).await;
        }
    }
    client
}
