//! Which inbox an external identifier belongs to: the projection of identity updates (ARC-022).

use xmtp_protocol::identity::IdentifierKey;

use crate::pool::Lease;
use crate::{Metadata, NewEnvelope, Reads, StoreError};

/// Bytes of an inbox id.
const INBOX_ID_LEN: usize = 32;

/// The id of an inbox.
pub type InboxId = [u8; INBOX_ID_LEN];

impl Reads {
    /// Finds, for each of `identifiers` and in their order, the inbox that was associated last and not
    /// revoked (ARC-065). Identifiers may repeat.
    ///
    /// # Errors
    /// [`StoreError`] of any kind.
    pub async fn inbox_ids(
        &self,
        identifiers: &[IdentifierKey],
    ) -> Result<Vec<Option<InboxId>>, StoreError> {
        let texts: Vec<&str> = identifiers.iter().map(IdentifierKey::text).collect();
        let kinds: Vec<i16> = identifiers.iter().map(|key| key.kind() as i16).collect();
        let mut lease = self.pool.acquire().await?;
        let answers = lease.answers();
        // One row for all: rows of their own would cost more than what is looked up.
        let read = sqlx::query_scalar!(
            r#"SELECT ARRAY(
                   SELECT (
                       SELECT inbox_id FROM identifier_association AS held
                       WHERE held.identifier = wanted.identifier
                         AND held.identifier_kind = wanted.identifier_kind
                         AND held.revocation_sequence_id IS NULL
                       ORDER BY association_sequence_id DESC LIMIT 1
                   )
                   FROM unnest($1::text[], $2::smallint[]) WITH ORDINALITY
                        AS wanted (identifier, identifier_kind, position)
                   ORDER BY wanted.position
               ) AS "inbox_ids!: Vec<Option<Vec<u8>>>""#,
            &texts as &[&str],
            &kinds,
        )
        .fetch_one(&mut *lease);
        let found = answers.wait(read).await?;
        lease.release();
        if found.len() != identifiers.len() {
            return Err(StoreError::invariant("identifiers were not all answered"));
        }
        found
            .into_iter()
            .map(|id| id.map(InboxId::try_from).transpose())
            .collect::<Result<_, _>>()
            .map_err(|_| StoreError::invariant("stored inbox id is not 32 bytes"))
    }
}

/// Carries what `envelopes` change into the projection. `stored` are their rows, in the same order.
///
/// The one statement runs only where something changes, so that no other publish pays for it. A row
/// remembers the last change of its identifier in its inbox, and gives way to later ones only. A
/// revocation of what is not there leaves a row too, so that no earlier association comes after it.
pub(crate) async fn project(
    lease: &mut Lease,
    envelopes: &[&NewEnvelope],
    stored: &[Metadata],
) -> Result<(), StoreError> {
    let (mut identifiers, mut kinds, mut inboxes) = (Vec::new(), Vec::new(), Vec::new());
    let (mut sequence_ids, mut revocations) = (Vec::<i64>::new(), Vec::new());
    for (envelope, row) in envelopes.iter().zip(stored) {
        let changes = &envelope.associations;
        let associated = changes.associated.iter().map(|key| (key, false));
        let revoked = changes.revoked.iter().map(|key| (key, true));
        for (key, is_revocation) in associated.chain(revoked) {
            identifiers.push(key.text());
            kinds.push(key.kind() as i16);
            inboxes.push(row.topic.identifier());
            sequence_ids.push(row.sequence_id.into());
            revocations.push(is_revocation);
        }
    }
    if identifiers.is_empty() {
        return Ok(());
    }
    let answers = lease.answers();
    let upsert = sqlx::query!(
        "INSERT INTO identifier_association AS held
             (identifier, identifier_kind, inbox_id, association_sequence_id, revocation_sequence_id)
         SELECT identifier, identifier_kind, inbox_id, sequence_id,
                CASE WHEN is_revocation THEN sequence_id END
         FROM unnest($1::text[], $2::smallint[], $3::bytea[], $4::bigint[], $5::boolean[])
              AS change (identifier, identifier_kind, inbox_id, sequence_id, is_revocation)
         ON CONFLICT (identifier, identifier_kind, inbox_id) DO UPDATE SET
             association_sequence_id = CASE WHEN excluded.revocation_sequence_id IS NULL
                 THEN excluded.association_sequence_id ELSE held.association_sequence_id END,
             revocation_sequence_id = excluded.revocation_sequence_id
         WHERE greatest(held.association_sequence_id, held.revocation_sequence_id)
               < excluded.association_sequence_id",
        &identifiers as &[&str],
        &kinds,
        &inboxes as &[&[u8]],
        &sequence_ids,
        &revocations,
    )
    .execute(&mut **lease);
    answers.wait(upsert).await?;
    Ok(())
}
