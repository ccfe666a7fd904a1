//! What streams read while they catch up: topic heads, and bounded ranges of rows.

use xmtp_protocol::{SequenceId, Topic};

use crate::pool::Lease;
use crate::record::{ShortBytes, metadata_row, payload, sequence_id};
use crate::{Reads, StoreError, StoredEnvelope};

/// The rows that a topic still owes: above `after`, up to and including `through`.
#[derive(Clone, Copy)]
pub struct CatchUpRange {
    /// The topic.
    pub topic: Topic,
    /// Exclusive lower bound.
    pub after: SequenceId,
    /// Inclusive upper bound.
    pub through: SequenceId,
}

/// A row of a [`CatchUpPage`].
pub struct CatchUpRow {
    /// Position of its range in the request.
    pub range: usize,
    /// The row.
    pub envelope: StoredEnvelope,
}

/// Rows of one fetch turn, by range and then by sequence id: of each range a prefix.
pub struct CatchUpPage {
    /// The rows.
    pub rows: Vec<CatchUpRow>,
    /// Whether the byte bound left rows behind. Ranges after the last row then were not reached.
    pub cut: bool,
}

impl Reads {
    /// Reads the watermark of each of `topics`, in their order; zero for a topic without rows
    /// (ARC-076).
    ///
    /// # Errors
    /// [`StoreError`] of any kind.
    pub async fn heads(&self, topics: &[Topic]) -> Result<Vec<SequenceId>, StoreError> {
        let mut lease = self.pool.acquire().await?;
        let heads = heads(&mut lease, topics).await?;
        lease.release();
        Ok(heads)
    }

    /// Reads at most `rows_per_range` rows of each range and about `max_bytes` of payload and
    /// `row_overhead` in all, in one snapshot: ids and sizes first, payloads of the chosen rows after
    /// (ARC-086, ARC-087). The first row always fits.
    ///
    /// # Errors
    /// [`StoreError`] of any kind.
    pub async fn catch_up(
        &self,
        ranges: &[CatchUpRange],
        rows_per_range: i64,
        max_bytes: i64,
        row_overhead: i32,
    ) -> Result<CatchUpPage, StoreError> {
        let topics: Vec<&[u8]> = ranges.iter().map(|range| range.topic.as_bytes()).collect();
        let after: Vec<i64> = ranges.iter().map(|range| range.after.into()).collect();
        let through: Vec<i64> = ranges.iter().map(|range| range.through.into()).collect();
        let mut lease = self.pool.acquire().await?;
        let answers = lease.answers();
        // A row keeps its place for as long as this one statement looks: no second descent of an index.
        let read = sqlx::query!(
            r#"WITH candidate AS MATERIALIZED (
                   SELECT wanted.position, row.sequence_id, row.place,
                          sum(row.bytes) OVER so_far AS bytes, count(*) OVER so_far AS number
                   FROM unnest($1::bytea[], $2::bigint[], $3::bigint[]) WITH ORDINALITY
                        AS wanted (topic, after, through, position)
                   CROSS JOIN LATERAL (
                       SELECT sequence_id, ctid AS place, octet_length(payload) + $6::integer AS bytes
                       FROM envelopes
                       WHERE topic = wanted.topic
                         AND sequence_id > wanted.after AND sequence_id <= wanted.through
                       ORDER BY sequence_id LIMIT $4::bigint
                   ) AS row
                   WINDOW so_far AS (ORDER BY wanted.position, row.sequence_id ROWS UNBOUNDED PRECEDING)
               )
               SELECT candidate.position AS "position!", (SELECT count(*) FROM candidate) AS "candidates!",
                      stored.sequence_id AS "sequence_id!", stored.topic AS "topic!: ShortBytes",
                      stored.message_hash AS "message_hash!: ShortBytes", stored.server_ns AS "server_ns!",
                      stored.expiry_ns, stored.is_commit_or_proposal AS "is_commit_or_proposal!",
                      stored.payload AS "payload!"
               FROM candidate
               CROSS JOIN LATERAL (
                   SELECT * FROM envelopes WHERE ctid = candidate.place LIMIT 1
               ) AS stored
               WHERE candidate.bytes <= $5::bigint OR candidate.number = 1
               ORDER BY candidate.position, candidate.sequence_id"#,
            &topics as &[&[u8]],
            &after,
            &through,
            rows_per_range,
            max_bytes,
            row_overhead,
        )
        .fetch_all(&mut *lease);
        let rows = answers.wait(read).await?;
        lease.release();
        let cut = rows
            .first()
            .is_some_and(|row| row.candidates > count(rows.len()));
        let rows = rows
            .into_iter()
            .map(|row| {
                let metadata = metadata_row!(row);
                let range = usize::try_from(row.position - 1)
                    .map_err(|_| StoreError::invariant("row belongs to no range"))?;
                let envelope = StoredEnvelope {
                    metadata: metadata.try_into()?,
                    payload: payload(row.payload)?,
                };
                Ok(CatchUpRow { range, envelope })
            })
            .collect::<Result<_, StoreError>>()?;
        Ok(CatchUpPage { rows, cut })
    }
}

/// A length as PostgreSQL counts.
pub(crate) fn count(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

pub(crate) async fn heads(
    lease: &mut Lease,
    topics: &[Topic],
) -> Result<Vec<SequenceId>, StoreError> {
    let topics: Vec<&[u8]> = topics.iter().map(Topic::as_bytes).collect();
    let answers = lease.answers();
    // One array: a row for each of 100,000 topics is dearer than its number.
    let read = sqlx::query_scalar!(
        r#"SELECT ARRAY(
               SELECT coalesce((SELECT last_sequence_id FROM topic_watermark WHERE topic = wanted.topic), 0)
               FROM unnest($1::bytea[]) WITH ORDINALITY AS wanted (topic, position)
               ORDER BY wanted.position
           ) AS "heads!""#,
        &topics as &[&[u8]],
    )
    .fetch_one(&mut **lease);
    answers
        .wait(read)
        .await?
        .into_iter()
        .map(sequence_id)
        .collect()
}
