//! Bringing a database to the schema of this binary, and refusing one that cannot be served.

use sqlx::PgConnection;
use sqlx::migrate::MigrateError;

use crate::schema::{MIGRATOR, SchemaProblem, missing};
use crate::{Primary, StoreError};

/// Why a database cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum StartupCheckError {
    /// The database could not be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// PostgreSQL is too old (ARC-007).
    #[error("PostgreSQL 17 or later is required, the server's version number is {0}")]
    ServerVersion(i32),
    /// The database is a standby or read-only.
    #[error("the database does not accept writes")]
    ReadOnly,
    /// The database was migrated by a newer binary, or its migration was edited since.
    #[error("migration {version} of the database {problem}")]
    Schema {
        /// Version of the migration at fault.
        version: i64,
        /// What is wrong with it.
        problem: SchemaProblem,
    },
    /// What a migration has made is gone.
    #[error("missing in the migrated database: {}", .0.join(", "))]
    Incomplete(Vec<String>),
    /// A migration failed and was rolled back.
    #[error("migration {version} failed: {source}")]
    Migration {
        /// Version of the migration at fault.
        version: i64,
        /// What the database said.
        source: StoreError,
    },
    /// The id sequence is behind the stored rows or the boundary, as after a restore (S38). Serving
    /// would hand out ids that clients have already passed.
    #[error(
        "envelope_sequence is behind the stored envelopes or the closed boundary; raise it before starting"
    )]
    SequenceBehind,
}

impl Primary {
    /// Checks the server, applies the embedded migrations under an advisory lock, and checks that all is
    /// there that they make and that ids will only grow. Nothing is left behind by a failure: each migration is a transaction.
    ///
    /// # Errors
    /// [`StartupCheckError`], naming what has to be mended.
    pub async fn prepare(&self) -> Result<(), StartupCheckError> {
        let mut connection = self.pool.acquire().await?;
        let server = sqlx::query!(
            r#"SELECT current_setting('server_version_num')::integer AS "version!",
                      pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean AS "read_only!""#
        )
        .fetch_one(&mut *connection)
        .await
        .map_err(StoreError::from)?;
        if server.version < 170_000 {
            return Err(StartupCheckError::ServerVersion(server.version));
        }
        if server.read_only {
            return Err(StartupCheckError::ReadOnly);
        }
        migrate(&mut connection).await?;
        let missing = missing(&mut connection).await?;
        if !missing.is_empty() {
            return Err(StartupCheckError::Incomplete(missing));
        }
        check_sequence(&mut connection).await?;
        connection.release();
        Ok(())
    }

    /// The primary's clock, Unix nanoseconds (OPS-020).
    ///
    /// # Errors
    /// [`StoreError`] of any kind.
    pub async fn clock_ns(&self) -> Result<i64, StoreError> {
        let mut connection = self.pool.acquire().await?;
        let now_ns = sqlx::query_scalar!(
            r#"SELECT (extract(epoch FROM CURRENT_TIMESTAMP) * 1000000000)::bigint AS "now_ns!""#
        )
        .fetch_one(&mut *connection)
        .await?;
        connection.release();
        Ok(now_ns)
    }
}

/// Runs the migrations, one instance at a time. The lock belongs to the session: a failure closes the
/// connection and so gives it up.
async fn migrate(connection: &mut PgConnection) -> Result<(), StartupCheckError> {
    // Another instance may be migrating a large database: wait for it as long as it takes.
    let unbounded = "SET statement_timeout = 0; SET transaction_timeout = 0";
    sqlx::raw_sql(unbounded)
        .execute(&mut *connection)
        .await
        .map_err(StoreError::from)?;
    MIGRATOR
        .run(&mut *connection)
        .await
        .map_err(migration_error)?;
    let bounded = "RESET statement_timeout; RESET transaction_timeout";
    sqlx::raw_sql(bounded)
        .execute(connection)
        .await
        .map_err(StoreError::from)?;
    Ok(())
}

fn migration_error(error: MigrateError) -> StartupCheckError {
    let schema = |version, problem| StartupCheckError::Schema { version, problem };
    match error {
        MigrateError::VersionMissing(version) => schema(version, SchemaProblem::Newer),
        MigrateError::VersionMismatch(version) => schema(version, SchemaProblem::Edited),
        MigrateError::Dirty(version) => schema(version, SchemaProblem::Partial),
        MigrateError::ExecuteMigration(source, version) => StartupCheckError::Migration {
            version,
            source: source.into(),
        },
        MigrateError::Execute(source) => StoreError::from(source).into(),
        _ => StoreError::invariant("migrations cannot be run").into(),
    }
}

async fn check_sequence(connection: &mut PgConnection) -> Result<(), StartupCheckError> {
    let row = sqlx::query!(
        r#"SELECT (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM envelope_sequence) AS "allocated!",
                  greatest((SELECT max(sequence_id) FROM envelopes),
                           (SELECT closed_sequence_id FROM allocation_boundary),
                           0) AS "used!""#
    )
    .fetch_one(connection)
    .await
    .map_err(StoreError::from)?;
    if row.allocated < row.used {
        Err(StartupCheckError::SequenceBehind)
    } else {
        Ok(())
    }
}
