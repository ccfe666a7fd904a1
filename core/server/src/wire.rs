//! Responses that carry stored envelopes, on the wire exactly the messages of the same names.
//!
//! An embedded message is on the wire what a `bytes` field is: so an envelope leaves as the bytes that
//! are stored, and is not encoded again.

use bytes::{Buf, BufMut, Bytes};
use prost::encoding::{DecodeContext, WireType, message, skip_field};
use prost::{DecodeError, Message};
use xmtp_protocol::proto::xmtp::backend::v1::{Continuation, Cursor, EnvelopeMeta, Topic};
use xmtp_store::Metadata;

/// `QueryResponse`.
#[derive(Default)]
pub(crate) struct QueryResponse {
    /// Elements of the field of this name.
    pub(crate) envelopes: Bytes,
    /// Paging state.
    pub(crate) continuation: Continuation,
}

impl QueryResponse {
    /// Number of the field `continuation`.
    const CONTINUATION: u32 = 2;
}

impl Message for QueryResponse {
    fn encode_raw(&self, out: &mut impl BufMut) {
        out.put_slice(&self.envelopes);
        message::encode(Self::CONTINUATION, &self.continuation, out);
    }

    fn encoded_len(&self) -> usize {
        self.envelopes.len() + message::encoded_len(Self::CONTINUATION, &self.continuation)
    }

    /// Servers read no responses.
    fn merge_field(
        &mut self,
        field: u32,
        wire_type: WireType,
        input: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        skip_field(wire_type, field, input, context)
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

/// `QueryNewestResponse`.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct QueryNewestResponse {
    /// One for each topic that has an envelope.
    #[prost(message, repeated, tag = "1")]
    pub(crate) results: Vec<NewestResult>,
}

/// `QueryNewestResponse.Result`.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct NewestResult {
    /// Which topic this answers.
    #[prost(message, optional, tag = "1")]
    pub(crate) topic: Option<Topic>,
    /// Metadata of its newest row.
    #[prost(message, optional, tag = "2")]
    pub(crate) meta: Option<EnvelopeMeta>,
    /// Stored `ClientEnvelope`.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(crate) envelope: Option<Bytes>,
}

macro_rules! debug_by_name {
    ($($name:ident),+) => {$(
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    )+};
}

debug_by_name!(QueryResponse, QueryNewestResponse, NewestResult);

/// Metadata as clients see it (API-212).
pub(crate) fn envelope_meta(metadata: &Metadata) -> EnvelopeMeta {
    EnvelopeMeta {
        cursor: Some(Cursor::from(metadata.sequence_id)),
        server_ns: metadata.server_ns,
        message_hash: Some(metadata.message_hash.into()),
        topic: Some(Topic {
            topic: Bytes::copy_from_slice(metadata.topic.as_bytes()),
        }),
        expiry_ns: metadata.expiry_ns.unwrap_or(0),
        is_commit_or_proposal: metadata.is_commit_or_proposal,
    }
}
