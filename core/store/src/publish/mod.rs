//! The publish transaction (spec 002, section 4).
//!
//! A publish takes five round trips, in this order:
//!
//! 1. [`PublishConnection::find_duplicates`], with no transaction;
//! 2. [`PublishConnection::begin`]: `BEGIN` and every lock, in one message;
//! 3. [`PublishTransaction::find_duplicates`]: the recheck, a fresh statement after the locks (ARC-036);
//! 4. the insert with its watermarks, and
//! 5. the commit, both in [`PublishTransaction::commit`].
//!
//! A request with identity updates adds its history read, the comparison of heads, and the projection of
//! identifiers, which goes between insert and commit.
//!
//! A future of this module that is dropped once its transaction has begun closes its connection: neither a lock
//! nor an open transaction stays behind (ARC-051).

mod locks;

use std::collections::HashMap;

use xmtp_protocol::{SequenceId, Topic};

pub(crate) use locks::GlobalLock;
pub use locks::PublishLocks;

use crate::associations;
use crate::pool::Lease;
use crate::record::{MetadataRow, ShortBytes, metadata_row, sequence_id};
use crate::{EnvelopeKey, Metadata, NewEnvelope, Primary, StoreError};

/// Stored envelopes of the keys that were asked for.
pub type Duplicates = HashMap<EnvelopeKey, Metadata>;

/// The whole log of one inbox, from one snapshot (API-232, ARC-064).
#[derive(Clone, Default)]
pub struct History {
    /// Stored payloads, ascending by sequence id.
    pub payloads: Vec<bytes::Bytes>,
    /// Greatest sequence id of the snapshot; zero for an empty log.
    pub head: SequenceId,
}

impl Primary {
    /// Takes a pooled connection for one publish.
    ///
    /// # Errors
    /// [`StoreError`], [`ErrorKind::PoolTimeout`](crate::ErrorKind::PoolTimeout) when none is free in time.
    pub async fn publish(&self) -> Result<PublishConnection, StoreError> {
        Ok(PublishConnection {
            lease: self.pool.acquire().await?,
        })
    }

    /// Reads every stored envelope of `topic`.
    ///
    /// # Errors
    /// [`StoreError`] of any kind.
    pub async fn history(&self, topic: &Topic) -> Result<History, StoreError> {
        let mut lease = self.pool.acquire().await?;
        let answers = lease.answers();
        let read = sqlx::query!(
            "SELECT sequence_id, payload FROM envelopes WHERE topic = $1 ORDER BY sequence_id",
            topic.as_bytes()
        )
        .fetch_all(&mut *lease);
        let rows = answers.wait_or_close(read).await?;
        lease.release();
        let head = rows
            .last()
            .map_or(Ok(SequenceId::START), |row| sequence_id(row.sequence_id))?;
        Ok(History {
            payloads: rows.into_iter().map(|row| row.payload.into()).collect(),
            head,
        })
    }
}

/// A connection that has not begun its transaction yet.
pub struct PublishConnection {
    lease: Lease,
}

impl PublishConnection {
    /// Reads the stored envelopes among `keys`.
    ///
    /// # Errors
    /// [`StoreError`] of any kind.
    pub async fn find_duplicates(
        &mut self,
        keys: &[EnvelopeKey],
    ) -> Result<Duplicates, StoreError> {
        find_duplicates(&mut self.lease, keys).await
    }

    /// Begins the transaction and takes all of its locks.
    ///
    /// # Errors
    /// [`StoreError`]; the connection is closed.
    pub async fn begin(mut self, locks: &PublishLocks) -> Result<PublishTransaction, StoreError> {
        self.lease.begin(locks.begin_statement()).await?;
        Ok(PublishTransaction { lease: self.lease })
    }

    /// Gives the connection back unused.
    pub fn release(self) {
        self.lease.release();
    }
}

/// An open publish transaction that holds its locks. Dropped unfinished, it is rolled back.
pub struct PublishTransaction {
    lease: Lease,
}

impl PublishTransaction {
    /// Reads the stored envelopes among `keys`, again, now that nobody can add one.
    ///
    /// # Errors
    /// [`StoreError`] of any kind.
    pub async fn find_duplicates(
        &mut self,
        keys: &[EnvelopeKey],
    ) -> Result<Duplicates, StoreError> {
        find_duplicates(&mut self.lease, keys).await
    }

    /// Reads the watermarks of `topics`, in their order; zero for a topic without rows.
    ///
    /// # Errors
    /// [`StoreError`] of any kind.
    pub async fn heads(&mut self, topics: &[Topic]) -> Result<Vec<SequenceId>, StoreError> {
        crate::catch_up::heads(&mut self.lease, topics).await
    }

    /// Stores `envelopes` in their order and commits. Keys must be distinct and not stored yet.
    ///
    /// # Errors
    /// [`StoreError`]. After [`ErrorKind::Invariant`](crate::ErrorKind::Invariant) nothing is stored;
    /// after any other kind the outcome is unknown.
    pub async fn commit(mut self, envelopes: &[&NewEnvelope]) -> Result<Vec<Metadata>, StoreError> {
        let stored = insert(&mut self.lease, envelopes).await?;
        associations::project(&mut self.lease, envelopes, &stored).await?;
        self.lease.commit().await?;
        Ok(stored)
    }

    /// Gives up the locks and the connection; stores nothing. A connection that cannot even do that is
    /// closed, which rolls back as well.
    pub async fn rollback(self) {
        let _ = self.lease.rollback().await;
    }
}

async fn find_duplicates(
    lease: &mut Lease,
    keys: &[EnvelopeKey],
) -> Result<Duplicates, StoreError> {
    let topics: Vec<&[u8]> = keys.iter().map(|key| key.topic.as_bytes()).collect();
    let hashes: Vec<&[u8]> = keys
        .iter()
        .map(|key| &key.message_hash.as_bytes()[..])
        .collect();
    let answers = lease.answers();
    let read = sqlx::query_as!(
        MetadataRow,
        r#"SELECT stored.sequence_id AS "sequence_id!", stored.topic AS "topic!: ShortBytes",
                  stored.message_hash AS "message_hash!: ShortBytes", stored.server_ns AS "server_ns!",
                  stored.expiry_ns, stored.is_commit_or_proposal AS "is_commit_or_proposal!"
           FROM unnest($1::bytea[], $2::bytea[]) AS wanted (topic, message_hash)
           CROSS JOIN LATERAL (
               SELECT sequence_id, topic, message_hash, server_ns, expiry_ns, is_commit_or_proposal
               FROM envelopes
               WHERE topic = wanted.topic AND message_hash = wanted.message_hash
               LIMIT 1
           ) AS stored"#,
        &topics as &[&[u8]],
        &hashes as &[&[u8]],
    )
    .fetch_all(&mut **lease);
    let rows = answers.wait(read).await?;
    rows.into_iter()
        .map(|row| Metadata::try_from(row).map(|metadata| (metadata.key(), metadata)))
        .collect()
}

/// One statement: the rows, ids in the order of `envelopes`, and the watermark of each topic.
async fn insert(
    lease: &mut Lease,
    envelopes: &[&NewEnvelope],
) -> Result<Vec<Metadata>, StoreError> {
    let topics: Vec<&[u8]> = envelopes
        .iter()
        .map(|new| new.key.topic.as_bytes())
        .collect();
    let hashes: Vec<&[u8]> = envelopes
        .iter()
        .map(|new| &new.key.message_hash.as_bytes()[..])
        .collect();
    let commits: Vec<bool> = envelopes
        .iter()
        .map(|new| new.is_commit_or_proposal)
        .collect();
    let eligible: Vec<bool> = envelopes.iter().map(|new| new.push_eligible).collect();
    let hmacs: Vec<Option<&[u8]>> = envelopes
        .iter()
        .map(|new| new.sender_hmac.as_ref().map(|hmac| &hmac[..]))
        .collect();
    let retentions: Vec<Option<i64>> = envelopes.iter().map(|new| new.retention_seconds).collect();
    let payloads: Vec<&[u8]> = envelopes.iter().map(|new| &new.payload[..]).collect();
    let answers = lease.answers();
    let insert = sqlx::query!(
        r#"WITH inserted AS (
               INSERT INTO envelopes (sequence_id, topic, server_ns, expiry_ns, message_hash,
                                      is_commit_or_proposal, push_eligible, sender_hmac, payload)
               SELECT nextval('envelope_sequence'), topic,
                      (extract(epoch FROM CURRENT_TIMESTAMP) * 1000000000)::bigint,
                      (extract(epoch FROM CURRENT_TIMESTAMP) * 1000000000)::bigint
                          + retention_seconds * 1000000000,
                      message_hash, is_commit_or_proposal, push_eligible, sender_hmac, payload
               FROM unnest($1::bytea[], $2::bytea[], $3::boolean[], $4::boolean[], $5::bytea[],
                           $6::bigint[], $7::bytea[])
                    AS new (topic, message_hash, is_commit_or_proposal, push_eligible, sender_hmac,
                            retention_seconds, payload)
               RETURNING sequence_id, topic, message_hash, server_ns, expiry_ns, is_commit_or_proposal
           ), head AS (
               SELECT topic, max(sequence_id) AS sequence_id FROM inserted GROUP BY topic
           ), advanced AS (
               INSERT INTO topic_watermark AS watermark (topic, last_sequence_id)
               SELECT topic, sequence_id FROM head
               ON CONFLICT (topic) DO UPDATE SET last_sequence_id = excluded.last_sequence_id
               WHERE watermark.last_sequence_id < excluded.last_sequence_id
               RETURNING 1
           )
           SELECT sequence_id, topic AS "topic: ShortBytes", message_hash AS "message_hash: ShortBytes",
                  server_ns, expiry_ns, is_commit_or_proposal,
                  (SELECT count(*) FROM head) = (SELECT count(*) FROM advanced) AS "advanced!"
           FROM inserted ORDER BY sequence_id"#,
        &topics as &[&[u8]],
        &hashes as &[&[u8]],
        &commits,
        &eligible,
        &hmacs as &[Option<&[u8]>],
        &retentions as &[Option<i64>],
        &payloads as &[&[u8]],
    )
    .fetch_all(&mut **lease);
    let rows = answers.wait(insert).await?;
    // ARC-034: a watermark that is not behind its new rows means that ids were not allocated in order.
    if rows.iter().any(|row| !row.advanced) {
        return Err(StoreError::invariant("topic watermark would not advance"));
    }
    let stored = rows
        .into_iter()
        .map(|row| metadata_row!(row).try_into())
        .collect::<Result<Vec<Metadata>, _>>()?;
    // ARC-030: ids follow the order of the request. SQL promises no order of evaluation, so look.
    if !stored
        .iter()
        .map(Metadata::key)
        .eq(envelopes.iter().map(|new| new.key))
    {
        return Err(StoreError::invariant(
            "sequence ids were not allocated in request order",
        ));
    }
    Ok(stored)
}
