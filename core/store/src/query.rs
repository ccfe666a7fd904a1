//! `Query`: pages of topics above their cursors.

use futures::TryStreamExt;
use xmtp_protocol::{SequenceId, Topic};

use crate::record::{ShortBytes, metadata_row, payload};
use crate::{Primary, StoreError, StoredEnvelope};

/// A topic and the position that a reader has reached on it.
#[derive(Clone, Copy)]
pub struct TopicPosition {
    /// The topic.
    pub topic: Topic,
    /// Exclusive lower bound.
    pub after: SequenceId,
}

/// One page of a query.
pub enum Page {
    /// Rows ascending by sequence id, and whether the limit cut more of them, from one snapshot.
    Rows {
        /// The rows.
        envelopes: Vec<StoredEnvelope>,
        /// Whether more rows were eligible than the limit let through.
        has_more: bool,
    },
    /// The payloads alone are longer than the reader can take (API-283). The rows read so far are gone.
    TooLarge,
}

impl Primary {
    /// Reads the lowest `limit` rows of all `positions` together (API-240, ARC-061). Each topic may
    /// stand in `positions` once. Reading stops when payloads exceed `max_payload_bytes`.
    ///
    /// Candidates come from the `(topic, sequence_id)` index alone, at most `limit + 1` of each topic;
    /// payloads load for the rows of the page only.
    ///
    /// # Errors
    /// [`StoreError`] of any kind.
    pub async fn query(
        &self,
        positions: &[TopicPosition],
        limit: i64,
        max_payload_bytes: usize,
    ) -> Result<Page, StoreError> {
        let topics: Vec<&[u8]> = positions
            .iter()
            .map(|position| position.topic.as_bytes())
            .collect();
        let cursors: Vec<i64> = positions
            .iter()
            .map(|position| position.after.into())
            .collect();
        let mut lease = self.pool.acquire().await?;
        let answers = lease.answers();
        let mut rows = sqlx::query!(
            r#"WITH candidate AS MATERIALIZED (
                   SELECT row.sequence_id
                   FROM unnest($1::bytea[], $2::bigint[]) AS wanted (topic, after)
                   CROSS JOIN LATERAL (
                       SELECT sequence_id FROM envelopes
                       WHERE topic = wanted.topic AND sequence_id > wanted.after
                       ORDER BY sequence_id LIMIT $3::bigint + 1
                   ) AS row
                   ORDER BY row.sequence_id LIMIT $3::bigint + 1
               )
               SELECT stored.sequence_id AS "sequence_id!", stored.topic AS "topic!: ShortBytes",
                      stored.message_hash AS "message_hash!: ShortBytes", stored.server_ns AS "server_ns!",
                      stored.expiry_ns, stored.is_commit_or_proposal AS "is_commit_or_proposal!",
                      stored.payload AS "payload!",
                      (SELECT count(*) FROM candidate) > $3 AS "has_more!"
               FROM (SELECT sequence_id FROM candidate ORDER BY sequence_id LIMIT $3) AS page
               CROSS JOIN LATERAL (
                   SELECT * FROM envelopes WHERE sequence_id = page.sequence_id LIMIT 1
               ) AS stored
               ORDER BY stored.sequence_id"#,
            &topics as &[&[u8]],
            &cursors,
            limit,
        )
        .fetch(&mut *lease);
        let mut envelopes = Vec::new();
        let mut more = false;
        let mut bytes = 0;
        while let Some(row) = answers.wait_or_close(rows.try_next()).await? {
            bytes += row.payload.len();
            if bytes > max_payload_bytes {
                // The lease is dropped, not released: what the server still has to send goes with it.
                return Ok(Page::TooLarge);
            }
            more = row.has_more;
            let metadata = metadata_row!(row);
            envelopes.push(StoredEnvelope {
                metadata: metadata.try_into()?,
                payload: payload(row.payload)?,
            });
        }
        drop(rows);
        lease.release();
        Ok(Page::Rows {
            envelopes,
            has_more: more,
        })
    }
}
