//! Rows as the rest of the backend sees them.

use std::fmt;

use bytes::{Bytes, BytesMut};
use prost::Message;
use smallvec::SmallVec;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgTypeInfo, PgValueRef};
use sqlx::{Decode, Postgres, Type};
use xmtp_protocol::identity::AssociationChanges;
use xmtp_protocol::proto::xmtp::backend::v1::ClientEnvelope;
use xmtp_protocol::{MessageHash, SequenceId, Topic};

use crate::StoreError;

/// The idempotency key of an envelope (API-222).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EnvelopeKey {
    /// Topic derived from the payload.
    pub topic: Topic,
    /// SHA-256 of the canonical payload.
    pub message_hash: MessageHash,
}

/// Everything the server says about a stored envelope (API-212).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// Position in the one global order.
    pub sequence_id: SequenceId,
    /// Topic derived from the payload.
    pub topic: Topic,
    /// SHA-256 of the stored payload.
    pub message_hash: MessageHash,
    /// Start of the storing transaction on the primary, Unix nanoseconds.
    pub server_ns: u64,
    /// First nanosecond at which deletion is allowed; `None` is never.
    pub expiry_ns: Option<u64>,
    /// A group message that is an MLS commit or proposal.
    pub is_commit_or_proposal: bool,
}

impl Metadata {
    /// The idempotency key of the row.
    pub const fn key(&self) -> EnvelopeKey {
        EnvelopeKey {
            topic: self.topic,
            message_hash: self.message_hash,
        }
    }
}

/// A stored envelope with its payload.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredEnvelope {
    /// What the server says about it.
    pub metadata: Metadata,
    /// Canonical encoding of the client envelope, as stored.
    pub payload: Bytes,
}

impl StoredEnvelope {
    /// The rows as clients get them, elements of a response's `envelopes`, in one allocation. No payload is
    /// encoded again.
    pub fn encode<'a, I>(rows: I) -> Bytes
    where
        I: IntoIterator<Item = &'a Self, IntoIter: Clone>,
    {
        let rows = rows.into_iter().map(Self::parts);
        let mut out = BytesMut::with_capacity(rows.clone().map(|row| row.element_len()).sum());
        for row in rows {
            row.put_element(&mut out);
        }
        out.freeze()
    }

    fn parts(&self) -> xmtp_protocol::StoredEnvelope<'_> {
        let metadata = &self.metadata;
        xmtp_protocol::StoredEnvelope {
            sequence_id: metadata.sequence_id.into(),
            server_ns: metadata.server_ns,
            expiry_ns: metadata.expiry_ns.unwrap_or(0),
            hash: metadata.message_hash.as_bytes(),
            topic: metadata.topic.as_bytes(),
            is_commit_or_proposal: metadata.is_commit_or_proposal,
            payload: &self.payload,
        }
    }
}

/// An envelope to store.
#[derive(Clone)]
pub struct NewEnvelope {
    /// Topic and hash.
    pub key: EnvelopeKey,
    /// Canonical encoding of the client envelope.
    pub payload: Bytes,
    /// A group message that is an MLS commit or proposal.
    pub is_commit_or_proposal: bool,
    /// Whether subscribers may be pushed this row (PUSH-030, PUSH-031).
    pub push_eligible: bool,
    /// Sender tag for push suppression.
    pub sender_hmac: Option<[u8; 32]>,
    /// Seconds from `server_ns` to the expiry; `None` is never.
    pub retention_seconds: Option<i64>,
    /// What an identity update changes in the projection of identifiers; empty for every other kind.
    pub associations: AssociationChanges,
}

/// A topic or a hash as it stands in a row, without an allocation of its own.
pub(crate) struct ShortBytes(SmallVec<[u8; 40]>);

impl fmt::Debug for ShortBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShortBytes")
    }
}

impl Type<Postgres> for ShortBytes {
    fn type_info() -> PgTypeInfo {
        <&[u8] as Type<Postgres>>::type_info()
    }
}

impl<'r> Decode<'r, Postgres> for ShortBytes {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        Ok(Self(SmallVec::from_slice(<&[u8]>::decode(value)?)))
    }
}

/// The metadata columns of a row, as the driver returns them.
pub(crate) struct MetadataRow {
    pub(crate) sequence_id: i64,
    pub(crate) topic: ShortBytes,
    pub(crate) message_hash: ShortBytes,
    pub(crate) server_ns: i64,
    pub(crate) expiry_ns: Option<i64>,
    pub(crate) is_commit_or_proposal: bool,
}

impl TryFrom<MetadataRow> for Metadata {
    type Error = StoreError;

    fn try_from(row: MetadataRow) -> Result<Self, StoreError> {
        const NEGATIVE: StoreError = StoreError::invariant("stored timestamp is negative");
        Ok(Self {
            sequence_id: sequence_id(row.sequence_id)?,
            topic: Topic::parse(&row.topic.0)
                .map_err(|_| StoreError::invariant("stored topic is malformed"))?,
            message_hash: <[u8; MessageHash::LEN]>::try_from(&*row.message_hash.0)
                .map_err(|_| StoreError::invariant("stored hash is not 32 bytes"))?
                .into(),
            server_ns: row.server_ns.try_into().map_err(|_| NEGATIVE)?,
            expiry_ns: row
                .expiry_ns
                .map(u64::try_from)
                .transpose()
                .map_err(|_| NEGATIVE)?,
            is_commit_or_proposal: row.is_commit_or_proposal,
        })
    }
}

/// The metadata of a checked query's row, whose type has no name.
macro_rules! metadata_row {
    ($row:ident) => {
        $crate::record::MetadataRow {
            sequence_id: $row.sequence_id,
            topic: $row.topic,
            message_hash: $row.message_hash,
            server_ns: $row.server_ns,
            expiry_ns: $row.expiry_ns,
            is_commit_or_proposal: $row.is_commit_or_proposal,
        }
    };
}

pub(crate) use metadata_row;

/// Reads a stored payload, which has to be a client envelope: what no client could decode is not sent as if
/// it were sound (contract of the API, 5.6). Decoding shares the bytes, and only its verdict is kept.
pub(crate) fn payload(stored: Vec<u8>) -> Result<Bytes, StoreError> {
    let payload = Bytes::from(stored);
    ClientEnvelope::decode(payload.clone())
        .map_err(|_| StoreError::invariant("stored envelope is invalid"))?;
    Ok(payload)
}

/// Reads a stored sequence id.
pub(crate) fn sequence_id(stored: i64) -> Result<SequenceId, StoreError> {
    SequenceId::try_from(stored)
        .map_err(|_| StoreError::invariant("stored sequence id is negative"))
}
