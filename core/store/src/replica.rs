//! The physical standby whose database answers what may lag (OPS-009), and how it is.

use std::sync::Arc;

use secrecy::SecretString;

use crate::schema::schema_state;
use crate::standby::Standby;
use crate::{Primary, Reads, SchemaState, StoreError};

/// How a standby is, for operators.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaCondition {
    /// Whether it receives from its primary at this moment.
    pub receiving: bool,
    /// Whether somebody has paused its replay.
    pub replay_paused: bool,
    /// Write-ahead log that the primary has written and this has not replayed, bytes.
    pub behind_bytes: i64,
    /// Whether clean-up on the primary spares what is read here (`hot_standby_feedback`).
    pub feedback: bool,
    /// How long replay waits for a read that is in its way, milliseconds; -1 for ever
    /// (`max_standby_streaming_delay`).
    pub max_delay_ms: i64,
}

impl Primary {
    /// Opens a pool of the physical standby at `url`, with the bounds of this one's. Fails when no connection
    /// can be made, and when the server is no standby of this primary.
    ///
    /// # Errors
    /// [`StoreError`] of any kind.
    pub async fn replica(&self, url: SecretString) -> Result<Reads, StoreError> {
        let settings = self.settings.at(url);
        let mut lease = self.pool.acquire().await?;
        let standby = Arc::new(Standby::of(&mut lease, settings.statement_timeout).await?);
        lease.release();
        let pool = settings.pool(Some(Arc::clone(&standby)))?;
        pool.acquire().await?.release();
        Ok(Reads {
            pool,
            settings,
            standby: Some(standby),
        })
    }

    /// Says how a standby of this primary is.
    ///
    /// # Errors
    /// [`StoreError`] of any kind.
    pub async fn replica_condition(&self, replica: &Reads) -> Result<ReplicaCondition, StoreError> {
        let mut lease = replica.pool.acquire().await?;
        let row = sqlx::query!(
            r#"SELECT EXISTS (SELECT FROM pg_stat_get_wal_receiver() WHERE pid IS NOT NULL) AS "receiving!",
                      pg_is_wal_replay_paused() AS "replay_paused!",
                      pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')::bigint AS "replayed!",
                      current_setting('hot_standby_feedback')::boolean AS "feedback!",
                      (SELECT setting::bigint FROM pg_settings WHERE name = 'max_standby_streaming_delay')
                          AS "max_delay_ms!""#
        )
        .fetch_one(&mut *lease)
        .await?;
        lease.release();
        let mut lease = self.pool.acquire().await?;
        let written = sqlx::query_scalar!(
            r#"SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint AS "written!""#
        )
        .fetch_one(&mut *lease)
        .await?;
        lease.release();
        Ok(ReplicaCondition {
            receiving: row.receiving,
            replay_paused: row.replay_paused,
            behind_bytes: (written - row.replayed).max(0),
            feedback: row.feedback,
            max_delay_ms: row.max_delay_ms,
        })
    }
}

impl Reads {
    /// How far the schema is that this database shows. Each look takes a connection of its own: whoever waits for the
    /// schema is to find the server that the address leads to by now.
    ///
    /// # Errors
    /// [`StoreError`] of any kind.
    pub async fn schema(&self) -> Result<SchemaState, StoreError> {
        let mut lease = self.pool.acquire().await?;
        // Not released, and so closed.
        schema_state(&mut lease).await
    }
}
