//! Delivery: a stored envelope on its way out.
//!
//! An embedded message is on the wire what a `bytes` field is: a tag, a length, and its encoding.
//! The stored canonical encoding is therefore copied into the message that delivers it, and no
//! payload is encoded again on the way out.

use bytes::BytesMut;

use crate::MessageHash;
use crate::wire::{nested_len, put_bytes, put_nested, put_varint, varint_len};

/// The most bytes that delivering one envelope adds to its canonical encoding, in the frame or
/// response that holds nothing else (OPS-021).
///
/// An envelope of `max_envelope_bytes` fits wherever this much more fits.
pub const MAX_DELIVERY_OVERHEAD_BYTES: usize = 256;

/// An envelope as a row has it.
#[derive(Clone, Copy)]
pub struct StoredEnvelope<'a> {
    /// Position, at most 9223372036854775807.
    pub sequence_id: u64,
    /// Store time in Unix nanoseconds.
    pub server_ns: u64,
    /// Time from which deletion is allowed, in Unix nanoseconds; 0 is never.
    pub expiry_ns: u64,
    /// SHA-256 of `payload`.
    pub hash: &'a [u8; MessageHash::LEN],
    /// The bytes of the topic.
    pub topic: &'a [u8],
    /// A group message that is an MLS commit or proposal.
    pub is_commit_or_proposal: bool,
    /// The canonical encoding of the `ClientEnvelope`.
    pub payload: &'a [u8],
}

impl StoredEnvelope<'_> {
    /// Bytes that [`Self::put_element`] writes.
    pub fn element_len(&self) -> usize {
        nested_len(self.encoded_len(&MetaLengths::of(self)))
    }

    /// Writes the `ServerEnvelope` as an element of `envelopes`, the field that has the same number in
    /// every response and frame which delivers.
    ///
    /// The bytes are those that encoding the generated message would yield (API-211, API-212).
    pub fn put_element(&self, out: &mut BytesMut) {
        let meta = MetaLengths::of(self);
        let len = self.encoded_len(&meta);
        put_nested(ENVELOPES, len, out);
        let begin = out.len();
        put_nested(server_envelope::META, meta.total, out);
        put_meta(self, &meta, out);
        put_bytes(server_envelope::ENVELOPE, self.payload, out);
        debug_assert_eq!(
            out.len() - begin,
            len,
            "the length was computed from the same parts"
        );
    }

    fn encoded_len(&self, meta: &MetaLengths) -> usize {
        nested_len(meta.total) + nested_len(self.payload.len())
    }
}

/// Number of the field `envelopes` in `QueryResponse` and in both messages `Messages`.
const ENVELOPES: u32 = 1;

/// Field numbers of `ServerEnvelope`.
mod server_envelope {
    pub(super) const META: u32 = 1;
    pub(super) const ENVELOPE: u32 = 2;
}

/// Field numbers of `EnvelopeMeta`.
mod envelope_meta {
    pub(super) const CURSOR: u32 = 1;
    pub(super) const SERVER_NS: u32 = 2;
    pub(super) const MESSAGE_HASH: u32 = 3;
    pub(super) const TOPIC: u32 = 4;
    pub(super) const EXPIRY_NS: u32 = 5;
    pub(super) const IS_COMMIT_OR_PROPOSAL: u32 = 6;
}

/// The number of the only field that `Cursor`, `MessageHash` and `Topic` have.
const ONLY_FIELD: u32 = 1;

/// The encoded lengths of an `EnvelopeMeta` and of the messages inside it, in bytes.
struct MetaLengths {
    cursor: usize,
    hash: usize,
    topic: usize,
    total: usize,
}

impl MetaLengths {
    fn of(stored: &StoredEnvelope<'_>) -> Self {
        let cursor = varint_len(stored.sequence_id);
        // A member of a oneof is written even when it is empty, an implicit field is not.
        let hash = nested_len(stored.hash.len());
        let topic = if stored.topic.is_empty() {
            0
        } else {
            nested_len(stored.topic.len())
        };
        let total = nested_len(cursor)
            + varint_len(stored.server_ns)
            + nested_len(hash)
            + nested_len(topic)
            + varint_len(stored.expiry_ns)
            + varint_len(stored.is_commit_or_proposal.into());
        Self {
            cursor,
            hash,
            topic,
            total,
        }
    }
}

fn put_meta(stored: &StoredEnvelope<'_>, lengths: &MetaLengths, out: &mut BytesMut) {
    put_nested(envelope_meta::CURSOR, lengths.cursor, out);
    put_varint(ONLY_FIELD, stored.sequence_id, out);
    put_varint(envelope_meta::SERVER_NS, stored.server_ns, out);
    put_nested(envelope_meta::MESSAGE_HASH, lengths.hash, out);
    put_bytes(ONLY_FIELD, stored.hash, out);
    put_nested(envelope_meta::TOPIC, lengths.topic, out);
    if lengths.topic > 0 {
        put_bytes(ONLY_FIELD, stored.topic, out);
    }
    put_varint(envelope_meta::EXPIRY_NS, stored.expiry_ns, out);
    put_varint(
        envelope_meta::IS_COMMIT_OR_PROPOSAL,
        stored.is_commit_or_proposal.into(),
        out,
    );
}
