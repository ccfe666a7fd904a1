//! Connections: what every session is told, and how one returns to its pool.

use std::ops::{Deref, DerefMut};
use std::str::FromStr;
use std::time::Duration;

use metrics::counter;
use secrecy::{ExposeSecret, SecretString};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{PgConnection, PgPool, Postgres, Row, pool::PoolConnection};

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
        Ok(Self(Some(pool.acquire().await?)))
    }

    /// Gives the connection back to its pool.
    pub(crate) fn release(mut self) {
        drop(self.0.take());
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
