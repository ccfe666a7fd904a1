//! `QueryNewest`: the head of each topic.
//!
//! `LIMIT 1` takes nothing away: it keeps the planner from joining all topics at once, for which it
//! would read a whole table (ARC-020).

use bytes::Bytes;
use futures::TryStreamExt;
use xmtp_protocol::Topic;

use crate::record::{MetadataRow, ShortBytes, metadata_row, payload};
use crate::{Metadata, Reads, StoreError};

/// The newest row of a topic.
#[derive(Clone, PartialEq, Eq)]
pub struct NewestEnvelope {
    /// Complete metadata.
    pub metadata: Metadata,
    /// Stored payload, where it was asked for.
    pub payload: Option<Bytes>,
}

impl Reads {
    /// Reads the metadata of the newest row of each of `topics` that has one, in no order (API-244,
    /// ARC-063). No payload is loaded.
    ///
    /// # Errors
    /// [`StoreError`] of any kind.
    pub async fn newest_metadata(
        &self,
        topics: &[Topic],
    ) -> Result<Vec<NewestEnvelope>, StoreError> {
        let topics: Vec<&[u8]> = topics.iter().map(Topic::as_bytes).collect();
        let mut lease = self.pool.acquire().await?;
        let answers = lease.answers();
        let read = sqlx::query_as!(
            MetadataRow,
            r#"SELECT head.sequence_id AS "sequence_id!", head.topic AS "topic!: ShortBytes",
                      head.message_hash AS "message_hash!: ShortBytes", head.server_ns AS "server_ns!",
                      head.expiry_ns, head.is_commit_or_proposal AS "is_commit_or_proposal!"
               FROM unnest($1::bytea[]) AS wanted (topic)
               CROSS JOIN LATERAL (
                   SELECT sequence_id, envelopes.topic, message_hash, server_ns, expiry_ns,
                          is_commit_or_proposal
                   FROM topic_watermark AS watermark
                   JOIN envelopes ON envelopes.sequence_id = watermark.last_sequence_id
                   WHERE watermark.topic = wanted.topic LIMIT 1
               ) AS head"#,
            &topics as &[&[u8]],
        )
        .fetch_all(&mut *lease);
        let rows = answers.wait(read).await?;
        lease.release();
        rows.into_iter()
            .map(|row| {
                Ok(NewestEnvelope {
                    metadata: row.try_into()?,
                    payload: None,
                })
            })
            .collect()
    }

    /// The same with payloads; `None` when they exceed `max_payload_bytes` together.
    ///
    /// # Errors
    /// [`StoreError`] of any kind.
    pub async fn newest_envelopes(
        &self,
        topics: &[Topic],
        max_payload_bytes: usize,
    ) -> Result<Option<Vec<NewestEnvelope>>, StoreError> {
        let topics: Vec<&[u8]> = topics.iter().map(Topic::as_bytes).collect();
        let mut lease = self.pool.acquire().await?;
        let answers = lease.answers();
        let mut rows = sqlx::query!(
            r#"SELECT head.sequence_id AS "sequence_id!", head.topic AS "topic!: ShortBytes",
                      head.message_hash AS "message_hash!: ShortBytes", head.server_ns AS "server_ns!",
                      head.expiry_ns, head.is_commit_or_proposal AS "is_commit_or_proposal!",
                      head.payload AS "payload!"
               FROM unnest($1::bytea[]) AS wanted (topic)
               CROSS JOIN LATERAL (
                   SELECT envelopes.* FROM topic_watermark AS watermark
                   JOIN envelopes ON envelopes.sequence_id = watermark.last_sequence_id
                   WHERE watermark.topic = wanted.topic LIMIT 1
               ) AS head"#,
            &topics as &[&[u8]],
        )
        .fetch(&mut *lease);
        let mut newest = Vec::new();
        let mut bytes = 0;
        while let Some(row) = answers.wait_or_close(rows.try_next()).await? {
            bytes += row.payload.len();
            if bytes > max_payload_bytes {
                return Ok(None);
            }
            let metadata = metadata_row!(row);
            newest.push(NewestEnvelope {
                metadata: metadata.try_into()?,
                payload: Some(payload(row.payload)?),
            });
        }
        drop(rows);
        lease.release();
        Ok(Some(newest))
    }
}
