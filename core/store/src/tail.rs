//! The tailer's view of new rows: one connection, one snapshot a poll.

use std::fmt::{Debug, Formatter};
use std::ops::RangeInclusive;
use std::time::Duration;

use sqlx::{Connection, PgConnection};
use xmtp_protocol::SequenceId;

use crate::answers::answered;
use crate::catch_up::count;
use crate::record::{MetadataRow, ShortBytes, payload, sequence_id};
use crate::standby::Following;
use crate::{Reads, StoreError, StoredEnvelope};

/// Sequence ids that were passed over and may still commit.
pub type GapRange = RangeInclusive<i64>;

/// A row of a [`TailPage`].
pub struct TailRow {
    /// The row.
    pub envelope: StoredEnvelope,
    /// Whether it filled a gap below the forward position.
    pub from_gap: bool,
}

/// What one poll saw, in one snapshot (ARC-037).
pub struct TailPage {
    /// The closed boundary (ARC-038).
    pub closed: SequenceId,
    /// Visible rows in the gaps and above the forward position, ascending by sequence id: a prefix of
    /// them, and therefore of every topic.
    pub rows: Vec<TailRow>,
    /// Whether a bound may have left visible rows behind: always when it did, and when the row bound was
    /// just reached.
    pub cut: bool,
}

/// The dedicated read connection of a tailer (ARC-070). Dropping it closes it.
pub struct Tail {
    connection: PgConnection,
    /// Bound of every statement.
    statement_timeout: Duration,
    /// `None` where it reads the primary.
    following: Option<Following>,
}

impl Debug for Tail {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tail").finish_non_exhaustive()
    }
}

impl Reads {
    /// Opens the tailer's own connection to this database. As long as it lives, everybody who reads from a
    /// replica reads from the server that it leads to.
    ///
    /// # Errors
    /// [`StoreError`] of any kind.
    pub async fn tail(&self) -> Result<Tail, StoreError> {
        let options = self.settings.tail_options()?;
        let connecting = PgConnection::connect_with(&options);
        let mut connection = answered(self.settings.statement_timeout, connecting).await?;
        let following = match &self.standby {
            Some(standby) => Some(Following::begin(standby, &mut connection).await?),
            None => None,
        };
        Ok(Tail {
            connection,
            statement_timeout: self.settings.statement_timeout,
            following,
        })
    }
}

impl Tail {
    /// Reads the boundary as this database shows it (ARC-041).
    ///
    /// # Errors
    /// [`StoreError`] of any kind.
    pub async fn closed(&mut self) -> Result<SequenceId, StoreError> {
        let read = sqlx::query_scalar!("SELECT closed_sequence_id FROM allocation_boundary")
            .fetch_one(&mut self.connection);
        let closed = answered(self.statement_timeout, read).await?;
        self.confirm().await?;
        sequence_id(closed)
    }

    /// Says, after a read, that it may be used: a standby that has been promoted never becomes one again.
    async fn confirm(&mut self) -> Result<(), StoreError> {
        match &self.following {
            Some(following) => following.confirm(&mut self.connection).await,
            None => Ok(()),
        }
    }

    /// Reads rows in `gaps` (disjoint, all at or below `after`) and above `after`: at most `max_rows`,
    /// and rows only while the payloads before them stay below `max_bytes`.
    ///
    /// # Errors
    /// [`StoreError`] of any kind.
    pub async fn poll(
        &mut self,
        after: SequenceId,
        gaps: &[GapRange],
        max_rows: i64,
        max_bytes: i64,
    ) -> Result<TailPage, StoreError> {
        let starts: Vec<i64> = gaps.iter().map(|gap| *gap.start()).collect();
        let ends: Vec<i64> = gaps.iter().map(|gap| *gap.end()).collect();
        let read = sqlx::query!(
            r#"WITH candidate AS MATERIALIZED (
                   SELECT sequence_id, from_gap, bytes FROM (
                       SELECT row.sequence_id, true AS from_gap, row.bytes
                       FROM unnest($2::bigint[], $3::bigint[]) AS gap (first, last)
                       CROSS JOIN LATERAL (
                           SELECT sequence_id, octet_length(payload)::bigint AS bytes FROM envelopes
                           WHERE sequence_id BETWEEN gap.first AND gap.last
                           ORDER BY sequence_id LIMIT $4::bigint
                       ) AS row
                       UNION ALL
                       (SELECT sequence_id, false, octet_length(payload)::bigint FROM envelopes
                        WHERE sequence_id > $1 ORDER BY sequence_id LIMIT $4::bigint)
                   ) AS visible
                   ORDER BY sequence_id LIMIT $4::bigint
               ), measured AS (
                   SELECT sequence_id, from_gap,
                          sum(bytes) OVER (ORDER BY sequence_id) - bytes AS bytes_before
                   FROM candidate
               )
               SELECT boundary.closed_sequence_id, (SELECT count(*) FROM candidate) AS "candidates!",
                      stored.from_gap AS "from_gap?", stored.sequence_id AS "sequence_id?",
                      stored.topic AS "topic?: ShortBytes", stored.message_hash AS "message_hash?: ShortBytes",
                      stored.server_ns AS "server_ns?", stored.expiry_ns AS "expiry_ns?",
                      stored.is_commit_or_proposal AS "is_commit_or_proposal?",
                      stored.payload AS "payload?"
               FROM allocation_boundary AS boundary
               LEFT JOIN LATERAL (
                   SELECT measured.from_gap, envelope.*
                   FROM measured
                   CROSS JOIN LATERAL (
                       SELECT * FROM envelopes WHERE sequence_id = measured.sequence_id LIMIT 1
                   ) AS envelope
                   WHERE measured.bytes_before < $5::bigint
               ) AS stored ON true
               ORDER BY stored.sequence_id"#,
            i64::from(after),
            &starts,
            &ends,
            max_rows,
            max_bytes,
        )
        .fetch_all(&mut self.connection);
        let rows = answered(self.statement_timeout, read).await?;
        self.confirm().await?;
        let Some(first) = rows.first() else {
            return Err(StoreError::invariant("allocation boundary row is missing"));
        };
        let closed = sequence_id(first.closed_sequence_id)?;
        let candidates = first.candidates;
        let rows = rows
            .into_iter()
            .filter_map(|row| {
                let metadata = MetadataRow {
                    sequence_id: row.sequence_id?,
                    topic: row.topic?,
                    message_hash: row.message_hash?,
                    server_ns: row.server_ns?,
                    expiry_ns: row.expiry_ns,
                    is_commit_or_proposal: row.is_commit_or_proposal?,
                };
                Some((metadata, row.payload?, row.from_gap?))
            })
            .map(|(metadata, stored, from_gap)| {
                let envelope = StoredEnvelope {
                    metadata: metadata.try_into()?,
                    payload: payload(stored)?,
                };
                Ok(TailRow { envelope, from_gap })
            })
            .collect::<Result<Vec<_>, StoreError>>()?;
        let cut = candidates == max_rows || candidates > count(rows.len());
        Ok(TailPage { closed, rows, cut })
    }
}
