//! What a test puts in the way of a backend in its database.

use prost::Message;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use xmtp_protocol::Topic;
use xmtp_protocol::proto::xmtp::backend::v1::ClientEnvelope;
use xmtp_test_support::{TestDatabase, eventually};

use crate::storage::topic_key;

/// The shared allocation barrier, as every publisher holds it (ARC-039).
const SHARED_BARRIER: &str = "SELECT pg_advisory_xact_lock_shared(2020439152, 2)";

/// A table that nobody can read: `topic_watermark` stops head reads, `envelopes` stops history reads and the
/// tailer, `allocation_boundary` the tailer's recovery, `_sqlx_migrations` a start.
pub(crate) struct LockedTable {
    connection: PgConnection,
    /// Outside the transaction, which would see the sessions of its first look for ever.
    witness: PgConnection,
    table: &'static str,
}

impl LockedTable {
    pub(crate) async fn new(database: &TestDatabase, table: &'static str) -> Self {
        let mut connection = database.connect().await;
        let lock = format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE");
        run(&mut connection, &lock).await;
        Self {
            connection,
            witness: database.connect().await,
            table,
        }
    }

    /// Waits until a request of the backend waits for the table, `requests` of them in all.
    pub(crate) async fn blocks(&mut self, requests: i64) {
        let table = self.table;
        eventually("the read is blocked", async || {
            let waiting: i64 = sqlx::query(
                "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
                 WHERE NOT granted AND relation = $1::regclass AND application_name = 'xmtp-backend'",
            )
            .bind(table)
            .fetch_one(&mut self.witness)
            .await
            .expect("locks can be read")
            .get(0);
            (waiting >= requests).then_some(())
        })
        .await;
    }

    pub(crate) async fn unlock(mut self) {
        run(&mut self.connection, "ROLLBACK").await;
    }
}

/// A publisher between its allocation and its commit.
pub(crate) struct HeldId {
    connection: PgConnection,
    pub(crate) id: i64,
}

impl HeldId {
    pub(crate) async fn new(database: &TestDatabase) -> Self {
        let mut connection = database.connect().await;
        run(&mut connection, &format!("BEGIN; {SHARED_BARRIER}")).await;
        let id = allocate(&mut connection).await;
        Self { connection, id }
    }

    /// One that holds the lock of its topic too: other publishers to it have to wait.
    pub(crate) async fn on_topic(database: &TestDatabase, topic: &Topic) -> Self {
        let mut connection = database.connect().await;
        let locks = format!(
            "BEGIN; SELECT pg_advisory_xact_lock({}); {SHARED_BARRIER}",
            topic_key(topic)
        );
        run(&mut connection, &locks).await;
        let id = allocate(&mut connection).await;
        Self { connection, id }
    }

    /// Stores an envelope under the id.
    pub(crate) async fn commit(mut self, topic: &Topic, envelope: &ClientEnvelope) {
        sqlx::query(
            "WITH head AS (
                 INSERT INTO topic_watermark VALUES ($2, $1)
                 ON CONFLICT (topic) DO UPDATE SET last_sequence_id = excluded.last_sequence_id
             )
             INSERT INTO envelopes
             VALUES ($1, $2, 1, NULL, sha256($3), false, false, NULL, $3)",
        )
        .bind(self.id)
        .bind(topic.as_bytes())
        .bind(envelope.encode_to_vec())
        .execute(&mut self.connection)
        .await
        .expect("a row is stored");
        run(&mut self.connection, "COMMIT").await;
    }

    pub(crate) async fn roll_back(mut self) {
        run(&mut self.connection, "ROLLBACK").await;
    }
}

/// The barrier in the hands of a publisher that takes its time: the boundary stays where it is.
pub(crate) struct HeldBarrier(PgConnection);

impl HeldBarrier {
    pub(crate) async fn new(database: &TestDatabase) -> Self {
        let mut connection = database.connect().await;
        run(&mut connection, &format!("BEGIN; {SHARED_BARRIER}")).await;
        Self(connection)
    }

    pub(crate) async fn release(mut self) {
        run(&mut self.0, "ROLLBACK").await;
    }
}

/// Allocates an id for nobody.
pub(crate) async fn abort_allocation(database: &TestDatabase) {
    allocate(&mut database.connect().await).await;
}

/// The closed boundary.
pub(crate) async fn boundary(database: &TestDatabase) -> i64 {
    sqlx::query("SELECT closed_sequence_id FROM allocation_boundary")
        .fetch_one(&mut database.connect().await)
        .await
        .expect("the boundary can be read")
        .get(0)
}

async fn allocate(connection: &mut PgConnection) -> i64 {
    sqlx::query("SELECT nextval('envelope_sequence')")
        .fetch_one(connection)
        .await
        .expect("an id is allocated")
        .get(0)
}

async fn run(connection: &mut PgConnection, statements: &str) {
    connection.ping().await.expect("the connection lives");
    sqlx::raw_sql(AssertSqlSafe(statements.to_owned()))
        .execute(connection)
        .await
        .expect("the statements run");
}
