//! A backend with a real primary and a real streaming standby (ARC-060).

mod address;
mod faults;
mod late;
mod long_fork;
mod prefix;
mod reads;
mod recovery;
mod start;

use std::sync::Arc;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, PgConnection};
use tonic::transport::Channel;
use tonic::{Code, Status};
use xmtp_protocol::Topic;
use xmtp_protocol::client::QueryServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::QueryNewestRequest;
use xmtp_test_support::{PostgresServer, TestDatabase, eventually};

use crate::harness::{Backend, meta_id, wire};
use crate::streams::Reader;
use address::Address;

/// What only a fault is to end, however slow the machine.
const PATIENT: &str =
    "database.max_statement_timeout_ms = 60000\npublishing.max_publish_duration_ms = 70000";

/// `application_name` of the tailer's connection.
const TAILER: &str = "xmtp-backend-tailer";

/// A database on a primary, and a standby of it at an address that can be led elsewhere.
struct Pair {
    standby: PostgresServer,
    address: Address,
    primary: Arc<PostgresServer>,
}

impl Pair {
    /// One whose standby has `database`, which is on `primary`.
    async fn of(primary: Arc<PostgresServer>, database: &TestDatabase) -> Self {
        let standby = primary.standby().await;
        let pair = Self {
            address: Address::of(standby.address()).await,
            standby,
            primary,
        };
        pair.caught_up(database).await;
        pair
    }

    /// A database on the primary that tests share, and its standby.
    async fn new() -> (Self, TestDatabase) {
        let primary = PostgresServer::shared_primary().await;
        let database = TestDatabase::create_on(primary.options()).await;
        let pair = Self::of(Arc::clone(&primary), &database).await;
        (pair, database)
    }

    /// A backend that serves from both.
    async fn serve(settings: &str) -> (Self, Backend) {
        let (pair, database) = Self::new().await;
        let settings = format!("{}\n{settings}", pair.setting(&database));
        let backend = Backend::with_replica(database, &settings).await;
        (pair, backend)
    }

    /// `database.replica_url`, by the address.
    fn setting(&self, database: &TestDatabase) -> String {
        let options = self.standby.options().port(self.address.port());
        setting(&options.database(&name(database)))
    }

    /// A connection to the standby's copy of a database.
    async fn connect(&self, database: &TestDatabase) -> PgConnection {
        self.standby.connect(&name(database)).await
    }

    async fn caught_up(&self, database: &TestDatabase) {
        caught_up(&self.standby, database).await;
    }

    async fn pause(&self) {
        pause(&self.standby).await;
    }

    async fn resume(&self) {
        resume(&self.standby).await;
    }
}

/// What a test's database is called.
fn name(database: &TestDatabase) -> String {
    let options = database.options();
    options.get_database().expect("it has a name").to_owned()
}

/// `database.replica_url` for `options`.
fn setting(options: &PgConnectOptions) -> String {
    let url = options.to_url_lossy();
    format!("database.replica_url = {:?}", url.as_str())
}

/// Waits until a standby shows everything that the primary has written until now.
async fn caught_up(standby: &PostgresServer, database: &TestDatabase) {
    let written: String = sqlx::query_scalar("SELECT pg_current_wal_insert_lsn()::text")
        .fetch_one(&mut database.connect().await)
        .await
        .expect("the primary has a position");
    let mut connection = standby.connect("postgres").await;
    // A commit has what is before it flushed, and so sent.
    database
        .execute("SELECT pg_logical_emit_message(true, 'commit', '')")
        .await;
    eventually("the standby has caught up", async || {
        let shown = sqlx::query_scalar("SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn");
        let shown: bool = shown.bind(&written).fetch_one(&mut connection).await.ok()?;
        shown.then_some(())
    })
    .await;
}

/// Holds a standby at what it shows now.
async fn pause(standby: &PostgresServer) {
    let mut connection = standby.connect("postgres").await;
    let paused = connection.execute("SELECT pg_wal_replay_pause()").await;
    paused.expect("replay can be paused");
    eventually("replay is paused", async || {
        let state = sqlx::query_scalar("SELECT pg_get_wal_replay_pause_state()");
        let state: String = state.fetch_one(&mut connection).await.ok()?;
        (state == "paused").then_some(())
    })
    .await;
}

async fn resume(standby: &PostgresServer) {
    standby.execute(&["SELECT pg_wal_replay_resume()"]).await;
}

/// Ends the sessions of `application` on a server. Answers how many there were.
async fn end_sessions(server: &PostgresServer, application: &str) -> usize {
    let ended = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{application}'"
    );
    let ended = sqlx::query(AssertSqlSafe(ended));
    let mut connection = server.connect("postgres").await;
    let ended = ended.fetch_all(&mut connection).await;
    ended.expect("sessions can be ended").len()
}

/// The id of a topic's head as `QueryNewest` tells it, 0 for none.
async fn newest(backend: &Backend, topic: &Topic) -> Result<u64, Status> {
    newest_of(backend.queries(), topic).await
}

async fn newest_of(mut client: QueryServiceClient<Channel>, topic: &Topic) -> Result<u64, Status> {
    let request = QueryNewestRequest {
        topics: vec![wire(topic)],
        include_full_envelope: false,
    };
    let answer = client.query_newest(request).await?.into_inner();
    let head = answer.results.first().and_then(|it| it.meta.as_ref());
    Ok(head.map_or(0, meta_id))
}

/// Waits until the replica shows a topic's head.
async fn shows(backend: &Backend, topic: &Topic, id: u64) {
    eventually("the replica shows it", async || {
        (newest(backend, topic).await.ok()? == id).then_some(())
    })
    .await;
}

/// Waits until a call fails as one whose database is not there.
async fn unavailable<T>(call: impl AsyncFn() -> Result<T, Status>) {
    eventually("the call is refused", async || {
        let status = call().await.err()?;
        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
        Some(())
    })
    .await;
}

fn assert_recovering(status: &Status) {
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(status.message(), "stream recovery in progress");
}

async fn opening(backend: &Backend) -> Result<(), Status> {
    Reader::try_open(backend).await.map(drop)
}
