//! The schema of this binary, and how far a database is from it.

use sqlx::PgConnection;
use sqlx::migrate::{Migrate, MigrateError, Migrator};

use crate::StoreError;

/// The embedded migrations (ARC-005).
pub static MIGRATOR: Migrator = sqlx::migrate!("../../migrations");

/// Where sqlx writes down what it has applied.
const MIGRATIONS_TABLE: &str = "_sqlx_migrations";

/// What the migrations make: the tables, and the sequence.
pub(crate) const RELATIONS: [&str; 8] = [
    "envelopes",
    "topic_watermark",
    "identifier_association",
    "allocation_boundary",
    "push_recipient",
    "push_subscription",
    "push_cursor",
    SEQUENCE,
];

/// Hands out the ids.
pub(crate) const SEQUENCE: &str = "envelope_sequence";

/// How a database's schema compares with this binary's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaState {
    /// Nothing is there yet.
    Empty,
    /// Some migrations are still to be applied.
    Older,
    /// It is this binary's.
    Current,
    /// It cannot be served.
    Unusable {
        /// Version of the migration at fault.
        version: i64,
        /// What is wrong with it.
        problem: SchemaProblem,
    },
}

/// Why a migrated database is not one for this binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaProblem {
    /// A newer binary has migrated the database.
    #[error("is not known to this binary")]
    Newer,
    /// The migration was edited since it was applied.
    #[error("differs from the one in this binary")]
    Edited,
    /// The migration was interrupted.
    #[error("is only partly applied")]
    Partial,
}

/// Compares what was applied with what this binary has, as the migrator itself does.
pub(crate) async fn schema_state(connection: &mut PgConnection) -> Result<SchemaState, StoreError> {
    let migrated = sqlx::query_scalar!(
        r#"SELECT to_regclass($1) IS NOT NULL AS "migrated!""#,
        MIGRATIONS_TABLE
    )
    .fetch_one(&mut *connection)
    .await?;
    if !migrated {
        return Ok(SchemaState::Empty);
    }
    let unreadable = |error| match error {
        MigrateError::Execute(error) => error.into(),
        _ => StoreError::invariant("applied migrations cannot be read"),
    };
    let unusable = |version, problem| SchemaState::Unusable { version, problem };
    if let Some(version) = connection
        .dirty_version(MIGRATIONS_TABLE)
        .await
        .map_err(unreadable)?
    {
        return Ok(unusable(version, SchemaProblem::Partial));
    }
    let applied = connection
        .list_applied_migrations(MIGRATIONS_TABLE)
        .await
        .map_err(unreadable)?;
    for migration in &applied {
        let mut known = MIGRATOR.iter();
        match known.find(|known| known.version == migration.version) {
            None => return Ok(unusable(migration.version, SchemaProblem::Newer)),
            Some(known) if known.checksum != migration.checksum => {
                return Ok(unusable(migration.version, SchemaProblem::Edited));
            }
            Some(_) => {}
        }
    }
    Ok(if applied.len() < MIGRATOR.iter().count() {
        SchemaState::Older
    } else {
        SchemaState::Current
    })
}

/// Tables, and the sequence, that are not there although a migration has made them.
pub(crate) async fn missing(connection: &mut PgConnection) -> Result<Vec<String>, StoreError> {
    let missing = sqlx::query_scalar!(
        r#"SELECT name AS "name!" FROM unnest($1::text[]) AS name WHERE to_regclass(name) IS NULL"#,
        &RELATIONS as &[&str]
    )
    .fetch_all(connection)
    .await?;
    Ok(missing)
}
