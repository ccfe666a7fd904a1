//! How much a database holds and how far it is, in numbers: what `inspect` prints. Reads only, in one snapshot.

use std::time::Duration;

use sqlx::PgConnection;
use xmtp_protocol::TopicKind;

use crate::{Primary, StoreError};

/// A database in numbers. Nothing in it names a topic, an inbox or a recipient.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// One entry for each kind, in the order of the kind bytes.
    pub kinds: Vec<KindCount>,
    /// How large it is.
    pub size: Size,
    /// How far it is.
    pub position: Position,
    /// What push has still to look at.
    pub push: PushBacklog,
    /// What stands in the way of others.
    pub trouble: Trouble,
}

/// How large a database is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// External identifiers that belong, or once belonged, to an inbox.
    pub identifiers: i64,
    /// Bytes of the whole database.
    pub database_bytes: i64,
    /// Bytes of the envelopes, without their indexes.
    pub envelopes_bytes: i64,
    /// Bytes of the envelopes' indexes.
    pub index_bytes: i64,
}

/// How far a database is.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    /// The last id that the sequence has handed out.
    pub allocated: i64,
    /// The greatest id of a stored envelope; 0 where there is none.
    pub greatest: i64,
    /// The closed boundary.
    pub boundary: i64,
    /// Age of the envelope with the lowest id, in whole seconds.
    pub oldest_age_seconds: Option<i64>,
    /// Age of the envelope with the greatest id, in whole seconds.
    pub newest_age_seconds: Option<i64>,
}

/// Sessions that are in the way of others.
#[derive(Clone, Copy, Debug)]
pub struct Trouble {
    /// Sessions of this database that wait for an advisory lock.
    pub waiting_for_locks: i64,
    /// Transactions of this database that are older than a publish may be.
    pub overlong_transactions: i64,
}

/// How many envelopes and topics of one kind there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindCount {
    /// The kind.
    pub kind: TopicKind,
    /// Stored envelopes.
    pub envelopes: i64,
    /// Topics that have at least one.
    pub topics: i64,
}

/// Registrations, and envelopes between the dispatcher's cursor and the boundary.
#[derive(Clone, Copy, Debug)]
pub struct PushBacklog {
    /// Registered recipients.
    pub recipients: i64,
    /// Their subscriptions.
    pub subscriptions: i64,
    /// Recipients whose own count of topics differs from their subscriptions.
    pub miscounted_recipients: i64,
    /// The dispatcher's cursor.
    pub cursor: i64,
    /// Eligible envelopes above it and at or below the boundary.
    pub waiting: i64,
}

impl Primary {
    /// Counts. A statement that takes longer than the configured bound fails, and nothing is changed either way.
    ///
    /// # Errors
    /// [`StoreError`] of any kind.
    pub async fn inspect(&self, publish_limit: Duration) -> Result<Inspection, StoreError> {
        let mut connection = self.pool.acquire().await?;
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY".to_owned();
        connection.begin(begin).await?;
        let inspection = Inspection {
            kinds: kinds(&mut connection).await?,
            size: size(&mut connection).await?,
            position: position(&mut connection).await?,
            push: push(&mut connection).await?,
            trouble: trouble(&mut connection, publish_limit).await?,
        };
        connection.rollback().await?;
        Ok(inspection)
    }
}

async fn kinds(connection: &mut PgConnection) -> Result<Vec<KindCount>, StoreError> {
    let rows = sqlx::query!(
        r#"SELECT kind AS "kind!", coalesce(envelopes, 0) AS "envelopes!", coalesce(topics, 0) AS "topics!"
           FROM generate_series(0, 4) AS kind
           LEFT JOIN (SELECT get_byte(topic, 0) AS kind, count(*) AS envelopes
                      FROM envelopes GROUP BY 1) AS stored USING (kind)
           LEFT JOIN (SELECT get_byte(topic, 0) AS kind, count(*) AS topics
                      FROM topic_watermark GROUP BY 1) AS known USING (kind)
           ORDER BY kind"#
    )
    .fetch_all(connection)
    .await?;
    let counts = TopicKind::ALL.into_iter().zip(rows);
    Ok(counts
        .map(|(kind, row)| KindCount {
            kind,
            envelopes: row.envelopes,
            topics: row.topics,
        })
        .collect())
}

async fn position(connection: &mut PgConnection) -> Result<Position, StoreError> {
    let position = sqlx::query_as!(
        Position,
        r#"SELECT (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM envelope_sequence) AS "allocated!",
                  coalesce((SELECT max(sequence_id) FROM envelopes), 0) AS "greatest!",
                  (SELECT closed_sequence_id FROM allocation_boundary) AS "boundary!",
                  (SELECT (extract(epoch FROM clock_timestamp()) - server_ns / 1000000000)::bigint
                   FROM envelopes ORDER BY sequence_id LIMIT 1) AS oldest_age_seconds,
                  (SELECT (extract(epoch FROM clock_timestamp()) - server_ns / 1000000000)::bigint
                   FROM envelopes ORDER BY sequence_id DESC LIMIT 1) AS newest_age_seconds"#
    )
    .fetch_one(connection)
    .await?;
    Ok(position)
}

async fn size(connection: &mut PgConnection) -> Result<Size, StoreError> {
    let size = sqlx::query_as!(
        Size,
        r#"SELECT (SELECT count(*) FROM identifier_association) AS "identifiers!",
                  pg_database_size(current_database()) AS "database_bytes!",
                  pg_table_size('envelopes') AS "envelopes_bytes!",
                  pg_indexes_size('envelopes') AS "index_bytes!""#
    )
    .fetch_one(connection)
    .await?;
    Ok(size)
}

async fn push(connection: &mut PgConnection) -> Result<PushBacklog, StoreError> {
    let backlog = sqlx::query_as!(
        PushBacklog,
        r#"SELECT (SELECT count(*) FROM push_recipient) AS "recipients!",
                  (SELECT count(*) FROM push_subscription) AS "subscriptions!",
                  (SELECT count(*) FROM push_recipient AS recipient WHERE topic_count <>
                       (SELECT count(*) FROM push_subscription AS subscription
                        WHERE subscription.recipient_id = recipient.recipient_id)) AS "miscounted_recipients!",
                  sequence_id AS "cursor!",
                  (SELECT count(*) FROM envelopes WHERE push_eligible
                       AND envelopes.sequence_id > push_cursor.sequence_id AND envelopes.sequence_id <=
                           (SELECT closed_sequence_id FROM allocation_boundary)) AS "waiting!"
           FROM push_cursor"#
    )
    .fetch_one(connection)
    .await?;
    Ok(backlog)
}

async fn trouble(
    connection: &mut PgConnection,
    publish_limit: Duration,
) -> Result<Trouble, StoreError> {
    let trouble = sqlx::query_as!(
        Trouble,
        r#"SELECT (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database =
                       (SELECT oid FROM pg_database WHERE datname = current_database())) AS "waiting_for_locks!",
                  (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                       AND xact_start < clock_timestamp() - make_interval(secs => $1)) AS "overlong_transactions!""#,
        publish_limit.as_secs_f64()
    )
    .fetch_one(connection)
    .await?;
    Ok(trouble)
}
