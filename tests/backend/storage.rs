//! What a test does behind the server's back: locks and rows, in SQL.

use sha2::{Digest, Sha256};
use sqlx::{Executor, PgConnection};
use xmtp_protocol::Topic;
use xmtp_test_support::{TestDatabase, eventually};

/// An open transaction of a stranger that holds locks which publishes need. Dropped, it is rolled back.
pub(crate) struct Stranger(PgConnection);

impl Stranger {
    async fn begin(database: &TestDatabase) -> Self {
        let mut connection = database.connect().await;
        connection.execute("BEGIN").await.expect("begun");
        Self(connection)
    }

    /// Keeps every publish to `topic` waiting.
    pub(crate) async fn on_topic(database: &TestDatabase, topic: &Topic) -> Self {
        let mut stranger = Self::begin(database).await;
        sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .bind(topic_key(topic))
            .execute(&mut stranger.0)
            .await
            .expect("locked");
        stranger
    }

    /// Keeps every publish of an identity update waiting.
    pub(crate) async fn on_identity(database: &TestDatabase) -> Self {
        let mut stranger = Self::begin(database).await;
        let lock = "SELECT pg_advisory_xact_lock(x'786d7470'::int, 1)";
        stranger.0.execute(lock).await.expect("locked");
        stranger
    }

    /// Bounds the transaction by the database's own means.
    pub(crate) async fn bounded(mut self, milliseconds: u32) -> Self {
        let bound = format!("SET LOCAL transaction_timeout = {milliseconds}");
        let bound = sqlx::AssertSqlSafe(bound);
        sqlx::query(bound)
            .execute(&mut self.0)
            .await
            .expect("bounded");
        self
    }

    /// Stores any bytes on a topic, visible once this commits. Answers their sequence id.
    pub(crate) async fn insert(&mut self, topic: &Topic, payload: &[u8]) -> i64 {
        insert(&mut self.0, topic, payload).await
    }

    /// Commits, and lets go of the locks.
    pub(crate) async fn commit(mut self) {
        self.0.execute("COMMIT").await.expect("committed");
    }
}

/// The key of the lock that every publish to a topic holds (ARC-031).
pub(crate) fn topic_key(topic: &Topic) -> i64 {
    let digest = Sha256::digest(topic.as_bytes());
    i64::from_be_bytes(digest[..8].try_into().expect("eight bytes"))
}

/// Stores any bytes on a topic. Answers their sequence id.
pub(crate) async fn store(database: &TestDatabase, topic: &Topic, payload: &[u8]) -> i64 {
    let mut stranger = Stranger::begin(database).await;
    let id = stranger.insert(topic, payload).await;
    stranger.commit().await;
    id
}

async fn insert(connection: &mut PgConnection, topic: &Topic, payload: &[u8]) -> i64 {
    // The shared allocation barrier, as every publish takes it, so that streams see the row too.
    let barrier = "SELECT pg_advisory_xact_lock_shared(x'786d7470'::int, 2)";
    connection.execute(barrier).await.expect("locked");
    sqlx::query_scalar(
        "WITH stored AS (
             INSERT INTO envelopes (sequence_id, topic, server_ns, message_hash, is_commit_or_proposal,
                                    push_eligible, payload)
             VALUES (nextval('envelope_sequence'), $1, 1, sha256($2), false, false, $2)
             RETURNING sequence_id
         )
         INSERT INTO topic_watermark AS watermark (topic, last_sequence_id)
         SELECT $1, sequence_id FROM stored
         ON CONFLICT (topic) DO UPDATE SET last_sequence_id = excluded.last_sequence_id
         RETURNING last_sequence_id",
    )
    .bind(topic.as_bytes())
    .bind(payload)
    .fetch_one(connection)
    .await
    .expect("stored")
}

/// Waits until `publishes` of them wait for a lock of a topic or for the identity lock.
pub(crate) async fn publishes_wait(database: &TestDatabase, publishes: i64) {
    wait_for_locks(database, true, publishes).await;
}

/// Waits until nobody holds, or waits for, a lock of a topic or the identity lock.
pub(crate) async fn no_publish_locks(database: &TestDatabase) {
    wait_for_locks(database, false, 0).await;
}

async fn wait_for_locks(database: &TestDatabase, only_waiting: bool, count: i64) {
    let mut connection = database.connect().await;
    eventually("so many locks", async || {
        // The allocation barrier is left out: its taker comes and goes.
        let locks: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_locks
             WHERE locktype = 'advisory' AND NOT (granted AND $1)
               AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
               AND (classid::bigint, objid::bigint, objsubid) <> (x'786d7470'::bigint, 2, 2)",
        )
        .bind(only_waiting)
        .fetch_one(&mut connection)
        .await
        .expect("locks can be counted");
        (locks == count).then_some(())
    })
    .await;
}
