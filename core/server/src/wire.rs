//! Responses that carry stored envelopes, on the wire exactly the messages of the same names.
//!
//! An embedded message is on the wire what a `bytes` field is: so an envelope leaves as the bytes that
//! are stored, and is neither decoded nor encoded again.

use bytes::Bytes;
use prost::{Message, Oneof};
use xmtp_protocol::proto::xmtp::backend::v1::{
    Continuation, Cursor, EnvelopeMeta, Ping, Pong, Topic, subscribe_response,
    subscribe_static_response,
};
use xmtp_store::Metadata;

/// `QueryResponse`.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct QueryResponse {
    /// Encoded `ServerEnvelope`s.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(crate) envelopes: Vec<Bytes>,
    /// Paging state.
    #[prost(message, optional, tag = "2")]
    pub(crate) continuation: Option<Continuation>,
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

/// `SubscribeResponse`.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct SubscribeResponse {
    /// The frame.
    #[prost(oneof = "SubscribeFrame", tags = "1, 2, 3, 4, 5")]
    pub(crate) response: Option<SubscribeFrame>,
}

/// The oneof of [`SubscribeResponse`].
#[derive(Clone, PartialEq, Oneof)]
#[prost(skip_debug)]
pub(crate) enum SubscribeFrame {
    /// First frame.
    #[prost(message, tag = "1")]
    Started(subscribe_response::Started),
    /// An update is in force.
    #[prost(message, tag = "2")]
    Applied(subscribe_response::Applied),
    /// Rows.
    #[prost(message, tag = "3")]
    Messages(Messages),
    /// Probe of the server.
    #[prost(message, tag = "4")]
    Ping(Ping),
    /// Answer to a probe of the client.
    #[prost(message, tag = "5")]
    Pong(Pong),
}

/// `SubscribeStaticResponse`.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct SubscribeStaticResponse {
    /// The frame.
    #[prost(oneof = "SubscribeStaticFrame", tags = "1, 2, 3")]
    pub(crate) response: Option<SubscribeStaticFrame>,
}

/// The oneof of [`SubscribeStaticResponse`].
#[derive(Clone, PartialEq, Oneof)]
#[prost(skip_debug)]
pub(crate) enum SubscribeStaticFrame {
    /// First frame.
    #[prost(message, tag = "1")]
    Started(subscribe_static_response::Started),
    /// Rows.
    #[prost(message, tag = "2")]
    Messages(Messages),
    /// Sign of life.
    #[prost(message, tag = "3")]
    Keepalive(subscribe_static_response::Keepalive),
}

/// `SubscribeResponse.Messages` and `SubscribeStaticResponse.Messages`.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct Messages {
    /// Encoded `ServerEnvelope`s.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(crate) envelopes: Vec<Bytes>,
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

debug_by_name!(
    QueryResponse,
    QueryNewestResponse,
    NewestResult,
    SubscribeResponse,
    SubscribeFrame,
    SubscribeStaticResponse,
    SubscribeStaticFrame,
    Messages
);

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
