//! Connections: what every session is told, and how one returns to its pool.

use std::ops::{Deref, DerefMut};
use std::str::FromStr;
use std::time::Duration;

use metrics::counter;
use secrecy::{ExposeSecret, SecretString};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, PgConnection, PgPool, Postgres, Row, pool::PoolConnection};

use crate::StoreError;

/// How often a server process looks whether its client is still there. A publish that is cancelled
/// while it waits for a lock gives up its place in that queue after at most this long (ARC-051).
const CLIENT_CONNECTION_CHECK: Duration = Duration::from_millis(500);

/// `application_name` of pooled connections.
const POOL_APPLICATION: &str = "xmtp-backend";
/// `application_name` of the tailer's connection.
const TAIL_APPLICATION: &str = "xmtp-backend-tailer";

/// Counts open transactions rolled back when a connection returned to its pool (ARC-060).
const RELEASED_OPEN_TRANSACTIONS: &str = "xmtp_db_released_open_transactions_total";

/// How to reach a database, and the bounds that it enforces for us.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `postgres://` or `postgresql://` address.
    pub url: SecretString,
    /// Connections in the request pool, at least 1.
    pub max_connections: u32,
    /// Bound of every statement (`statement_timeout`), and of the wait for a pooled connection.
    pub statement_timeout: Duration,
    /// Bound of every transaction (`transaction_timeout`): from the first lock of a publish to its
    /// commit (ARC-051).
    pub transaction_timeout: Duration,
}

impl Settings {
    /// Session options. PostgreSQL itself ends work that its client forgot.
    fn options(&self, application_name: &str) -> Result<PgConnectOptions, StoreError> {
        let milliseconds = |duration: Duration| duration.as_millis().to_string();
        Ok(PgConnectOptions::from_str(self.url.expose_secret())?
            // Statements hold lock keys, which derive from topics (OPS-014).
            .disable_statement_logging()
            .application_name(application_name)
            .options([
                ("statement_timeout", milliseconds(self.statement_timeout)),
                (
                    "transaction_timeout",
                    milliseconds(self.transaction_timeout),
                ),
                (
                    "client_connection_check_interval",
                    milliseconds(CLIENT_CONNECTION_CHECK),
                ),
            ]))
    }

    /// A connection outside every pool, for the tailer.
    pub(crate) fn tail_options(&self) -> Result<PgConnectOptions, StoreError> {
        self.options(TAIL_APPLICATION)
    }

    async fn pool(&self) -> Result<PgPool, StoreError> {
        Ok(PgPoolOptions::new()
            .max_connections(self.max_connections)
            .acquire_timeout(self.statement_timeout)
            // A dead connection shows in its next statement; a round trip before each is too dear.
            .test_before_acquire(false)
            .after_release(|connection, _| Box::pin(leave_no_transaction(connection)))
            .connect_with(self.options(POOL_APPLICATION)?)
            .await?)
    }
}

/// Rolls back what a dropped future left open. The driver's own count cannot be trusted here: it
/// misses a `BEGIN` whose answer nobody read. A transaction that already failed makes the question
/// itself fail, which discards the connection.
async fn leave_no_transaction(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    // One simple-protocol message, so that outside a transaction the two are the same instant.
    let answer = sqlx::raw_sql("SELECT transaction_timestamp() < statement_timestamp()")
        .fetch_one(&mut *connection)
        .await?;
    let open: bool = answer.try_get(0)?;
    if open {
        counter!(RELEASED_OPEN_TRANSACTIONS).increment(1);
        sqlx::raw_sql("ROLLBACK").execute(connection).await?;
    }
    Ok(true)
}

/// The one writable database. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Primary {
    pub(crate) pool: PgPool,
    settings: Settings,
}

impl Primary {
    /// Opens the pool; fails when no connection can be made.
    ///
    /// # Errors
    /// [`StoreError`] of any kind.
    pub async fn connect(settings: Settings) -> Result<Self, StoreError> {
        Ok(Self {
            pool: settings.pool().await?,
            settings,
        })
    }

    /// The reads that may lag, answered by this same database.
    pub fn reads(&self) -> Reads {
        Reads {
            pool: self.pool.clone(),
            settings: self.settings.clone(),
        }
    }

    /// Closes every connection; waits for those in use.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// A database that answers the reads that may lag (OPS-009). Cheap to clone.
#[derive(Clone, Debug)]
pub struct Reads {
    pub(crate) pool: PgPool,
    pub(crate) settings: Settings,
}

/// A pooled connection that is closed, not reused, unless its holder says that it is clean.
///
/// A cancelled future is dropped at any await point: the connection may then be inside a transaction
/// or waiting for a lock. Closing it makes PostgreSQL roll back without a further statement of ours.
pub(crate) struct Lease(Option<PoolConnection<Postgres>>);

impl Lease {
    pub(crate) async fn acquire(pool: &PgPool) -> Result<Self, StoreError> {
        Ok(pool.acquire().await?.into())
    }

    /// Gives the connection back to its pool.
    pub(crate) fn release(mut self) {
        drop(self.0.take());
    }
}

impl From<PoolConnection<Postgres>> for Lease {
    fn from(connection: PoolConnection<Postgres>) -> Self {
        Self(Some(connection))
    }
}

impl Deref for Lease {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.0
            .as_deref()
            .expect("a lease holds its connection until it is consumed")
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.0
            .as_deref_mut()
            .expect("a lease holds its connection until it is consumed")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
    use sqlx::Connection;
    use xmtp_test_support::{TestDatabase, eventually};

    use super::*;

    /// A pool of one, so that whoever comes next gets the connection that was let go.
    async fn pool_of_one(database: &TestDatabase) -> PgPool {
        Settings {
            url: database.url().into(),
            max_connections: 1,
            statement_timeout: Duration::from_secs(20),
            transaction_timeout: Duration::from_secs(30),
        }
        .pool()
        .await
        .unwrap()
    }

    /// The server process behind the pooled connection, and whether it is inside a transaction.
    async fn session(pool: &PgPool) -> (i32, bool) {
        let mut connection = pool.acquire().await.unwrap();
        let row = sqlx::raw_sql(
            "SELECT pg_backend_pid(), transaction_timestamp() < statement_timestamp()",
        )
        .fetch_one(&mut *connection)
        .await
        .unwrap();
        (row.get(0), row.get(1))
    }

    fn rolled_back(snapshotter: &Snapshotter) -> u64 {
        snapshotter
            .snapshot()
            .into_vec()
            .into_iter()
            .filter(|(key, ..)| key.key().name() == RELEASED_OPEN_TRANSACTIONS)
            .map(|(.., value)| match value {
                DebugValue::Counter(count) => count,
                _ => panic!("it is a counter"),
            })
            .sum()
    }

    // The recorder is this thread's, and the runtime runs every task on it.
    #[tokio::test]
    async fn arc_060_a_begin_dropped_unanswered_is_rolled_back_and_counted_on_release() {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        let _recording = metrics::set_default_local_recorder(&recorder);
        let database = TestDatabase::create().await;
        let pool = pool_of_one(&database).await;
        let (process, _) = session(&pool).await;
        let mut connection = pool.acquire().await.unwrap();
        {
            // Slow, so that it cannot be answered within the one poll.
            let begin = sqlx::raw_sql("BEGIN; SELECT pg_sleep(0.1)");
            let mut unanswered = std::pin::pin!(begin.execute(&mut *connection));
            let polled = unanswered
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending());
        }
        drop(connection);
        assert_eq!(session(&pool).await, (process, false));
        assert_eq!(rolled_back(&snapshotter), 1);
    }

    #[tokio::test]
    async fn arc_060_a_clean_connection_is_released_uncounted() {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        let _recording = metrics::set_default_local_recorder(&recorder);
        let database = TestDatabase::create().await;
        let pool = pool_of_one(&database).await;
        let (process, _) = session(&pool).await;
        for _ in 0..20 {
            let mut connection = pool.acquire().await.unwrap();
            let transaction = connection.begin().await.unwrap();
            transaction.commit().await.unwrap();
        }
        assert_eq!(session(&pool).await, (process, false));
        assert_eq!(rolled_back(&snapshotter), 0);
    }

    #[tokio::test]
    async fn arc_060_a_connection_with_an_aborted_transaction_is_discarded() {
        let database = TestDatabase::create().await;
        let pool = pool_of_one(&database).await;
        let (process, _) = session(&pool).await;
        let mut connection = pool.acquire().await.unwrap();
        let aborted = sqlx::raw_sql("BEGIN; SELECT 1 / 0")
            .execute(&mut *connection)
            .await;
        assert!(aborted.is_err());
        drop(connection);
        let (next, open) = session(&pool).await;
        assert!(next != process && !open);
        let mut witness = database.connect().await;
        eventually("the aborted session is gone", async || {
            sqlx::query_scalar::<_, bool>(
                "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)",
            )
            .bind(process)
            .fetch_one(&mut witness)
            .await
            .unwrap()
            .then_some(())
        })
        .await;
    }

    #[tokio::test]
    async fn arc_051_every_session_knows_its_bounds() {
        let database = TestDatabase::create().await;
        let pool = pool_of_one(&database).await;
        let bounds: Vec<String> = sqlx::query_scalar(
            "SELECT current_setting(name) FROM unnest(ARRAY['statement_timeout',
                 'transaction_timeout', 'client_connection_check_interval', 'application_name'])
                 AS name",
        )
        .fetch_all(&pool)
        .await
        .unwrap();
        assert_eq!(bounds, ["20s", "30s", "500ms", POOL_APPLICATION]);
    }
}
