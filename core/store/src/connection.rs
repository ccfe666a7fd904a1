//! Databases: how they are reached, and the bounds that they enforce for us.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;

use crate::StoreError;
use crate::pool::Pool;
use crate::standby::Standby;

/// How often a server process looks whether its client is still there. A publish that is cancelled
/// while it waits for a lock gives up its place in that queue after at most this long (ARC-051).
const CLIENT_CONNECTION_CHECK: Duration = Duration::from_millis(500);

/// `application_name` of pooled connections.
const POOL_APPLICATION: &str = "xmtp-backend";
/// `application_name` of the tailer's connection.
const TAIL_APPLICATION: &str = "xmtp-backend-tailer";

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

    /// The same bounds for another database.
    pub(crate) fn at(&self, url: SecretString) -> Self {
        Self {
            url,
            ..self.clone()
        }
    }

    pub(crate) fn pool(&self, standby: Option<Arc<Standby>>) -> Result<Pool, StoreError> {
        Ok(Pool::new(
            self.options(POOL_APPLICATION)?,
            self.max_connections,
            self.statement_timeout,
            standby,
        ))
    }
}

/// The one writable database. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Primary {
    pub(crate) pool: Pool,
    pub(crate) settings: Settings,
}

impl Primary {
    /// Opens the pool; fails when no connection can be made.
    ///
    /// # Errors
    /// [`StoreError`] of any kind.
    pub async fn connect(settings: Settings) -> Result<Self, StoreError> {
        let pool = settings.pool(None)?;
        pool.acquire().await?.release();
        Ok(Self { pool, settings })
    }

    /// The reads that may lag, answered by this same database.
    pub fn reads(&self) -> Reads {
        Reads {
            pool: self.pool.clone(),
            settings: self.settings.clone(),
            standby: None,
        }
    }

    /// Closes every connection: those in use when their work ends. New work is refused.
    pub fn close(&self) {
        self.pool.close();
    }
}

/// A database that answers the reads that may lag (OPS-009). Cheap to clone.
#[derive(Clone, Debug)]
pub struct Reads {
    pub(crate) pool: Pool,
    pub(crate) settings: Settings,
    /// `None` where they come from the primary.
    pub(crate) standby: Option<Arc<Standby>>,
}

impl Reads {
    /// Whether they come from the primary, so that they show a commit as soon as it is answered.
    pub const fn are_of_primary(&self) -> bool {
        self.standby.is_none()
    }

    /// Closes every connection: those in use when their work ends. New work is refused.
    pub fn close(&self) {
        self.pool.close();
    }
}

#[cfg(test)]
mod tests {
    use xmtp_test_support::TestDatabase;

    use super::*;

    #[tokio::test]
    async fn arc_051_every_session_knows_its_bounds() {
        let database = TestDatabase::create().await;
        let pool = Settings {
            url: database.url().into(),
            max_connections: 1,
            statement_timeout: Duration::from_secs(20),
            transaction_timeout: Duration::from_secs(30),
        }
        .pool(None)
        .unwrap();
        let bounds: Vec<String> = sqlx::query_scalar(
            "SELECT current_setting(name) FROM unnest(ARRAY['statement_timeout',
                 'transaction_timeout', 'client_connection_check_interval', 'application_name'])
                 AS name",
        )
        .fetch_all(&mut *pool.acquire().await.unwrap())
        .await
        .unwrap();
        assert_eq!(bounds, ["20s", "30s", "500ms", POOL_APPLICATION]);
    }
}
