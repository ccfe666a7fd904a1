//! One physical standby (ARC-060): that it is one, of this primary, and the same one for everybody.
//!
//! A standby that was promoted keeps its sessions, and one that was replaced keeps its address. So each
//! connection says which server it leads to, when it opens and for as long as it is used.

use std::fmt::{Debug, Formatter};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::PgConnection;

use crate::StoreError;
use crate::answers::answered;

const REPLACED: StoreError = StoreError::unusable("the replica was replaced");

/// What a physical standby has in common with its primary.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Origin {
    /// `system_identifier` of the cluster.
    system: i64,
    /// Object id of the database.
    database: i64,
    /// Object id of `envelopes`; `None` as long as it is not there.
    envelopes: Option<i64>,
}

/// One start of one server, told by its time: no other one answers with the same microsecond.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Incarnation(i64);

/// The standby that some [`Reads`](crate::Reads) come from.
pub(crate) struct Standby {
    origin: Origin,
    statement_timeout: Duration,
    followed: Mutex<Option<Followed>>,
}

/// The server that the tailer reads. Rows that it hands out and heads that others read belong together only
/// where they come from one server (ARC-076).
#[derive(Clone, Copy)]
struct Followed {
    server: Incarnation,
    /// The address leads to another server by now.
    is_replaced: bool,
}

impl Standby {
    /// A standby of the primary that `connection` leads to.
    ///
    /// # Errors
    /// [`StoreError`] of any kind.
    pub(crate) async fn of(
        connection: &mut PgConnection,
        statement_timeout: Duration,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            origin: origin(connection).await?,
            statement_timeout,
            followed: Mutex::default(),
        })
    }

    /// Says which server a new connection leads to.
    ///
    /// # Errors
    /// It is no standby of the primary; or [`StoreError`] of any kind.
    async fn recognise(&self, connection: &mut PgConnection) -> Result<Incarnation, StoreError> {
        let server = self.server(connection).await?;
        let found = answered(self.statement_timeout, origin(connection)).await?;
        let Origin {
            system,
            database,
            envelopes,
        } = self.origin;
        if (found.system, found.database) != (system, database)
            || found
                .envelopes
                .is_some_and(|found| Some(found) != envelopes)
        {
            return Err(StoreError::unusable(
                "the server is not a standby of the primary, or its database is another one",
            ));
        }
        Ok(server)
    }

    /// Says which standby a connection leads to.
    ///
    /// # Errors
    /// It is none, or none any more; or [`StoreError`] of any kind.
    async fn server(&self, connection: &mut PgConnection) -> Result<Incarnation, StoreError> {
        let read = sqlx::query!(
            r#"SELECT pg_is_in_recovery() AS "is_standby!",
                      (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint AS "started!""#
        )
        .fetch_one(connection);
        let server = answered(self.statement_timeout, read).await?;
        if server.is_standby {
            Ok(Incarnation(server.started))
        } else {
            Err(StoreError::unusable("the server is not a standby"))
        }
    }

    /// Looks again at a connection that led to `server`.
    ///
    /// # Errors
    /// It has been promoted or replaced; or [`StoreError`] of any kind.
    pub(crate) async fn confirm(
        &self,
        connection: &mut PgConnection,
        server: Incarnation,
    ) -> Result<(), StoreError> {
        if self.server(connection).await? == server {
            Ok(())
        } else {
            Err(REPLACED)
        }
    }

    /// Looks at a connection of a pool. One that leads elsewhere than the tailer's is refused, and the
    /// tailer is told that it was left behind.
    ///
    /// # Errors
    /// It must not be read from; or [`StoreError`] of any kind.
    pub(crate) async fn admit(
        &self,
        connection: &mut PgConnection,
    ) -> Result<Incarnation, StoreError> {
        let server = self.recognise(connection).await?;
        match &mut *self.followed() {
            Some(followed) if followed.server != server => {
                followed.is_replaced = true;
                Err(REPLACED)
            }
            _ => Ok(server),
        }
    }

    /// Whether the tailer reads another server than this.
    pub(crate) fn is_left(&self, server: Incarnation) -> bool {
        self.followed()
            .is_some_and(|followed| followed.server != server)
    }

    fn followed(&self) -> MutexGuard<'_, Option<Followed>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Debug for Standby {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Standby").finish_non_exhaustive()
    }
}

/// The tailer's hold on its standby: as long as this lives, nobody reads from another one.
pub(crate) struct Following {
    standby: Arc<Standby>,
    server: Incarnation,
}

impl Following {
    /// Follows the server that `connection` leads to.
    ///
    /// # Errors
    /// It must not be read from; or [`StoreError`] of any kind.
    pub(crate) async fn begin(
        standby: &Arc<Standby>,
        connection: &mut PgConnection,
    ) -> Result<Self, StoreError> {
        let server = standby.recognise(connection).await?;
        *standby.followed() = Some(Followed {
            server,
            is_replaced: false,
        });
        Ok(Self {
            standby: Arc::clone(standby),
            server,
        })
    }

    /// Says that what has been read until now came from a standby, and from the one that everybody reads.
    ///
    /// # Errors
    /// It has been promoted or replaced; or [`StoreError`] of any kind.
    pub(crate) async fn confirm(&self, connection: &mut PgConnection) -> Result<(), StoreError> {
        self.standby.confirm(connection, self.server).await?;
        let followed = *self.standby.followed();
        match followed {
            Some(followed) if followed.is_replaced => Err(REPLACED),
            _ => Ok(()),
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let mut followed = self.standby.followed();
        if followed.is_some_and(|followed| followed.server == self.server) {
            *followed = None;
        }
    }
}

async fn origin(connection: &mut PgConnection) -> Result<Origin, sqlx::Error> {
    let row = sqlx::query!(
        r#"SELECT (SELECT system_identifier FROM pg_control_system()) AS "system!",
                  (SELECT oid::bigint FROM pg_database WHERE datname = current_database()) AS "database!",
                  to_regclass('envelopes')::oid::bigint AS envelopes"#
    )
    .fetch_one(connection)
    .await?;
    Ok(Origin {
        system: row.system,
        database: row.database,
        envelopes: row.envelopes,
    })
}
