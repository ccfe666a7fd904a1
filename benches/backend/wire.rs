//! What goes over the wire between the backend and PostgreSQL: a proxy that keeps every round trip.
//!
//! A round trip is what one `ReadyForQuery` ends: the server has then answered everything and waits.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf, Bytes, BytesMut};
use sqlx::ConnectOptions;
use sqlx::postgres::PgSslMode;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use xmtp_test_support::TestDatabase;

/// One publish, as the statements of its round trips.
#[derive(Clone, Default)]
pub(crate) struct Publish {
    /// Up to the commit, after which the client has its answer.
    pub(crate) before_answer: Vec<String>,
    /// On the same connection, until the next request.
    pub(crate) after_answer: Vec<String>,
}

/// What ends the transaction.
const COMMIT: &str = "COMMIT";
/// What every publish does, and nothing else.
const INSERT: &str = "INSERT INTO envelopes";

/// A message that the backend sent, and that asks for a `ReadyForQuery`.
#[derive(Clone)]
struct RoundTrip {
    statement: String,
    /// Executes a prepared statement.
    executes: bool,
    /// Prepares the statement, as each connection does once.
    prepares: bool,
}

/// Round trips by connection, in their order.
type Log = Arc<Mutex<HashMap<usize, Vec<RoundTrip>>>>;

/// A running proxy.
pub(crate) struct Recorder {
    /// The database, through the proxy.
    pub(crate) url: String,
    log: Log,
}

impl Recorder {
    pub(crate) async fn start(database: &TestDatabase) -> Self {
        let options = database.options();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound port has an address");
        let server = (options.get_host().to_owned(), options.get_port());
        let log = Log::default();
        let kept = log.clone();
        tokio::spawn(async move {
            for number in 0.. {
                let (client, _) = listener.accept().await.expect("connections are accepted");
                let server = TcpStream::connect(&server)
                    .await
                    .expect("the server is there");
                for stream in [&client, &server] {
                    stream.set_nodelay(true).expect("TCP_NODELAY can be set");
                }
                tokio::spawn(relay(client, server, number, kept.clone()));
            }
        });
        let options = options
            .host("127.0.0.1")
            .port(address.port())
            .ssl_mode(PgSslMode::Disable);
        Self {
            url: options.to_url_lossy().into(),
            log,
        }
    }

    /// Forgets what was seen so far.
    pub(crate) fn clear(&self) {
        lock(&self.log).clear();
    }

    /// Every prepared statement that was executed, in no order.
    pub(crate) fn executed(&self) -> Vec<String> {
        let log = lock(&self.log);
        let trips = log.values().flatten().filter(|trip| trip.executes);
        trips.map(|trip| trip.statement.clone()).collect()
    }

    /// Every publish that was seen as a whole, on a connection that had its statements prepared.
    pub(crate) fn publishes(&self) -> Vec<Publish> {
        lock(&self.log)
            .values()
            .flat_map(|trips| split(trips))
            .collect()
    }
}

/// Cuts one connection's round trips after each commit, and after what follows it with no prepared
/// statement: a request begins with one.
fn split(trips: &[RoundTrip]) -> Vec<Publish> {
    let mut publishes = Vec::new();
    let mut publish = Publish::default();
    let mut prepares = false;
    // What comes first may belong to a request before.
    let mut answered = true;
    for trip in trips {
        if answered && !trip.executes {
            publish.after_answer.push(trip.statement.clone());
            continue;
        }
        if answered {
            let whole = std::mem::take(&mut publish);
            if !std::mem::take(&mut prepares) {
                publishes.push(whole);
            }
        }
        answered = trip.statement == COMMIT;
        prepares |= trip.prepares;
        publish.before_answer.push(trip.statement.clone());
    }
    publishes.retain(|publish| publish.before_answer.iter().any(|it| it.contains(INSERT)));
    publishes
}

fn lock(log: &Log) -> MutexGuard<'_, HashMap<usize, Vec<RoundTrip>>> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Messages that wait for their `ReadyForQuery`.
type Waiting = Arc<Mutex<VecDeque<RoundTrip>>>;

async fn relay(client: TcpStream, server: TcpStream, number: usize, log: Log) {
    let waiting = Waiting::default();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut requests = Requests::default();
    let sent = waiting.clone();
    let up = copy(from_client, to_server, false, move |kind, body| {
        if let Some(trip) = requests.read(kind, body) {
            sent.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push_back(trip);
        }
    });
    let down = copy(from_server, to_client, true, move |kind, _| {
        if kind == b'Z' {
            let trip = waiting
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_front();
            // The first one of a connection answers its start.
            if let Some(trip) = trip {
                lock(&log).entry(number).or_default().push(trip);
            }
        }
    });
    tokio::join!(up, down);
}

/// What one connection asks for.
#[derive(Default)]
struct Requests {
    prepared: HashMap<Bytes, String>,
    /// Of the message that the next `Sync` ends.
    current: String,
    prepares: bool,
}

impl Requests {
    /// Takes one message; the round trip that it begins, if it does.
    fn read(&mut self, kind: u8, mut body: Bytes) -> Option<RoundTrip> {
        match kind {
            b'Q' => Some(RoundTrip {
                statement: text(&mut body),
                executes: false,
                prepares: false,
            }),
            b'P' => {
                let name = field(&mut body);
                self.current = text(&mut body);
                self.prepared.insert(name, self.current.clone());
                self.prepares = true;
                None
            }
            b'B' => {
                let _portal = field(&mut body);
                self.current = self
                    .prepared
                    .get(&field(&mut body))
                    .cloned()
                    .unwrap_or_default();
                None
            }
            b'S' => Some(RoundTrip {
                executes: !self.current.is_empty(),
                statement: std::mem::take(&mut self.current),
                prepares: std::mem::take(&mut self.prepares),
            }),
            _ => None,
        }
    }
}

/// A field that a zero byte ends.
fn field(body: &mut Bytes) -> Bytes {
    let end = body
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(body.len());
    let field = body.split_to(end);
    body.advance(usize::from(!body.is_empty()));
    field
}

fn text(body: &mut Bytes) -> String {
    String::from_utf8_lossy(&field(body)).into_owned()
}

/// Passes bytes on until either end is gone, and shows every whole message before it is passed on. A
/// client's first message has no kind.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut started: bool,
    mut see: impl FnMut(u8, Bytes),
) {
    let mut buffer = BytesMut::new();
    let mut read = 0;
    while let Ok(1..) = from.read_buf(&mut buffer).await {
        let passed = Bytes::copy_from_slice(&buffer[read..]);
        loop {
            let kind_len = usize::from(started);
            let Some(length) = buffer.get(kind_len..kind_len + 4) else {
                break;
            };
            let length: [u8; 4] = length.try_into().unwrap_or_default();
            let length = kind_len + u32::from_be_bytes(length) as usize;
            if buffer.len() < length {
                break;
            }
            let mut message = buffer.split_to(length).freeze();
            if started {
                let kind = message[0];
                message.advance(5);
                see(kind, message);
            }
            started = true;
        }
        read = buffer.len();
        if to.write_all(&passed).await.is_err() {
            break;
        }
    }
    // The other direction ends with its own reader.
    let _ = to.shutdown().await;
}
