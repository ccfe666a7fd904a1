//! What a database is like before it is served: what `doctor` judges. Reads only.

use std::time::SystemTime;

use sqlx::PgConnection;

use crate::schema::{RELATIONS, SEQUENCE, SchemaState, missing, schema_state};
use crate::{Primary, StoreError};

/// A database, its server, and what this user may do there.
#[derive(Debug)]
pub struct Condition {
    /// `server_version_num`: 170010 is 17.10.
    pub version_number: i32,
    /// Whether it is a standby, or its transactions are read-only.
    pub read_only: bool,
    /// What the server promises of a commit.
    pub durability: Durability,
    /// Whether the write-ahead log is archived (`archive_mode`).
    pub archiving: bool,
    /// The server's clock, Unix nanoseconds.
    pub clock_ns: i64,
    /// This machine's clock at that time.
    pub asked_at: SystemTime,
    /// Connections that the server gives to ordinary users.
    pub connections: i64,
    /// Connections in use, this one included, whoever may see them.
    pub connections_in_use: i64,
    /// Locks that the server can hold at once, all sessions together.
    pub lock_slots: i64,
    /// Whether this user may create tables, as the first migration does.
    pub may_create: bool,
    /// How far the schema is, or why that cannot be read.
    pub schema: Result<SchemaState, StoreError>,
    /// Tables, and the sequence, that are not there; empty where the schema is known and not current.
    pub missing: Vec<String>,
    /// Those that are there and that this user may not read and write; `None` where the schema is known and not
    /// current.
    pub rights_missing: Option<i64>,
    /// What the tables say, or why they cannot be read; `None` unless they are all there and may be read.
    pub data: Option<Result<Data, StoreError>>,
}

/// What a crash of the server leaves of a commit.
#[derive(Clone, Copy, Debug)]
pub struct Durability {
    /// Whether commits reach the disk (`fsync`).
    pub fsync: bool,
    /// Whether a torn page can be mended after a crash (`full_page_writes`).
    pub full_page_writes: bool,
    /// Whether a commit is answered before it is durable (`synchronous_commit = off`).
    pub asynchronous_commit: bool,
}

/// The state that has to agree with itself (S38).
#[derive(Clone, Copy, Debug)]
pub struct Data {
    /// The last id that the sequence has handed out.
    pub allocated: i64,
    /// The greatest id of a stored envelope; 0 where there is none.
    pub greatest: i64,
    /// The closed boundary; `None` where its row is missing.
    pub boundary: Option<i64>,
    /// The last id that the sequence can hand out.
    pub maximum: i64,
    /// Whether ids are handed out one by one, upwards and never twice (ARC-040).
    pub sequence_is_sound: bool,
}

impl Primary {
    /// Reads the database's condition. What keeps a part of it from being read is in its place.
    ///
    /// # Errors
    /// [`StoreError`] of any kind: the server cannot be asked at all.
    pub async fn condition(&self) -> Result<Condition, StoreError> {
        let mut connection = self.pool.acquire().await?;
        let before = SystemTime::now();
        let server = sqlx::query!(
            r#"SELECT current_setting('server_version_num')::integer AS "version_number!",
                      pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean AS "read_only!",
                      current_setting('fsync')::boolean AS "fsync!",
                      current_setting('full_page_writes')::boolean AS "full_page_writes!",
                      current_setting('synchronous_commit') = 'off' AS "asynchronous_commit!",
                      current_setting('archive_mode') <> 'off' AS "archiving!",
                      (extract(epoch FROM clock_timestamp()) * 1000000000)::bigint AS "clock_ns!",
                      current_setting('max_connections')::bigint
                          - current_setting('superuser_reserved_connections')::bigint
                          - current_setting('reserved_connections')::bigint AS "connections!",
                      (SELECT sum(numbackends) FROM pg_stat_database)::bigint AS "connections_in_use!",
                      current_setting('max_locks_per_transaction')::bigint
                          * (current_setting('max_connections')::bigint
                             + current_setting('max_prepared_transactions')::bigint) AS "lock_slots!",
                      coalesce(has_schema_privilege(current_schema(), 'CREATE'), false) AS "may_create!""#
        )
        .fetch_one(&mut *connection)
        .await?;
        let asked_at = before + before.elapsed().unwrap_or_default() / 2;
        let schema = schema_state(&mut connection).await;
        let (missing, rights_missing) = match schema {
            Ok(SchemaState::Current) | Err(_) => {
                let missing = missing(&mut connection).await?;
                (missing, Some(rights_missing(&mut connection).await?))
            }
            Ok(_) => (Vec::new(), None),
        };
        let data = match rights_missing {
            Some(0) if missing.is_empty() => Some(data(&mut connection).await),
            _ => None,
        };
        connection.release();
        Ok(Condition {
            version_number: server.version_number,
            read_only: server.read_only,
            durability: Durability {
                fsync: server.fsync,
                full_page_writes: server.full_page_writes,
                asynchronous_commit: server.asynchronous_commit,
            },
            archiving: server.archiving,
            clock_ns: server.clock_ns,
            asked_at,
            connections: server.connections,
            connections_in_use: server.connections_in_use,
            lock_slots: server.lock_slots,
            may_create: server.may_create,
            schema,
            missing,
            rights_missing,
            data,
        })
    }
}

/// Tables, and the sequence, that are there and that this user may not read and write. Deleting is needed by nothing
/// yet.
async fn rights_missing(connection: &mut PgConnection) -> Result<i64, StoreError> {
    let missing = sqlx::query_scalar!(
        r#"SELECT count(*) AS "missing!"
           FROM unnest($1::text[]) AS name CROSS JOIN LATERAL to_regclass(name) AS relation
           WHERE relation IS NOT NULL
             AND NOT CASE name WHEN $2
                     THEN has_sequence_privilege(relation, 'USAGE') AND has_sequence_privilege(relation, 'SELECT')
                     ELSE has_table_privilege(relation, 'SELECT') AND has_table_privilege(relation, 'INSERT')
                          AND has_table_privilege(relation, 'UPDATE') END"#,
        &RELATIONS as &[&str],
        SEQUENCE,
    )
    .fetch_one(connection)
    .await?;
    Ok(missing)
}

async fn data(connection: &mut PgConnection) -> Result<Data, StoreError> {
    let row = sqlx::query!(
        r#"SELECT (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM envelope_sequence) AS "allocated!",
                  coalesce((SELECT max(sequence_id) FROM envelopes), 0) AS "greatest!",
                  (SELECT closed_sequence_id FROM allocation_boundary) AS boundary,
                  seqmax AS "maximum!",
                  seqcache = 1 AND seqincrement = 1 AND NOT seqcycle AS "sequence_is_sound!"
           FROM pg_sequence WHERE seqrelid = 'envelope_sequence'::regclass"#
    )
    .fetch_one(connection)
    .await?;
    Ok(Data {
        allocated: row.allocated,
        greatest: row.greatest,
        boundary: row.boundary,
        maximum: row.maximum,
        sequence_is_sound: row.sequence_is_sound,
    })
}
