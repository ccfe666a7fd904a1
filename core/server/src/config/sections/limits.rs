use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::scalar::{Count, Int};

/// Largest request or response: 25 MiB (CONF-008).
const MAX_MESSAGE_BYTES: u64 = 25 << 20;

/// Most that one envelope can need beside itself in a response or a delivery frame, in bytes: 207
/// of metadata for a topic of 128 bytes, four headers of nested fields of 11 each, and the gRPC
/// prefix of 5 (ARC-079).
pub(in crate::config) const ENVELOPE_OVERHEAD: u64 = 256;

/// Largest envelope that a delivery frame of 2 MiB can hold. The budgets for what a stream fetches
/// and queues are wider (OPS-021).
const MAX_ENVELOPE_BYTES: u64 = (2 << 20) - ENVELOPE_OVERHEAD;

/// The public limits (API-130, API-131). Clients read them and split their requests to fit; a
/// request above one is refused. Counts are published in 32 bits, exactly (CONF-069).
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Topics of one Query.
    pub max_query_topics: Count<1000>,
    /// Envelopes that a Query returns where it sets no limit (ARC-061).
    pub default_query_limit: Count<100>,
    /// Largest limit that a Query may set. At least `default_query_limit` (ARC-061, ARC-100).
    pub max_query_limit: Count<1000>,
    /// Topics of one request for the newest envelopes' metadata.
    pub max_newest_metadata_topics: Count<1000>,
    /// Topics of one request for the newest envelopes in full (API-140). Better not above
    /// `max_newest_metadata_topics`: a full read costs more.
    pub max_newest_full_topics: Count<100>,
    /// Distinct topics of one publish, which holds a lock for each (ARC-031).
    pub max_publish_topics: Count<1000>,
    /// Encoded bytes of one envelope. With its framing it must fit one request, one response and
    /// one delivery frame (ARC-079, OPS-021).
    pub max_envelope_bytes: Int<1, MAX_ENVELOPE_BYTES, 1_048_576>,
    /// Encoded bytes of one request (API-031).
    pub max_request_bytes: Int<1, MAX_MESSAGE_BYTES, 26_214_400>,
    /// Encoded bytes of one response (API-134, ARC-066).
    pub max_response_bytes: Int<1, MAX_MESSAGE_BYTES, 26_214_400>,
    /// Topics that one Update frame adds. At most `max_stream_topics` (ARC-100).
    pub max_update_adds: Count<100_000>,
    /// Topics that one Update frame removes.
    pub max_update_removes: Count<100_000>,
    /// Topics registered on one stream (ARC-074).
    pub max_stream_topics: Count<100_000>,
    /// Topics of one static subscription (API-110).
    pub max_static_topics: Count<10_000>,
    /// Identifiers of one inbox lookup (API-141).
    pub max_lookup_identifiers: Count<250>,
    /// Smart-contract-wallet signatures of one verification or identity update.
    pub max_scw_signatures: Count<100>,
    /// Identity updates of one inbox; judged when one is written (API-148).
    pub max_identity_entries: Count<256>,
    /// Concurrent HTTP/2 streams of one connection (API-132). Not published.
    pub max_http2_streams: Count<100>,
    /// Update frames per second that a stream may send over time (API-107, ARC-085).
    pub max_update_frames_per_second: Count<10>,
    /// Update frames that a stream may send at once (API-107, ARC-085).
    pub max_update_burst: Count<100>,
    /// Pings per second that a client may send on a stream over time (API-107, ARC-085).
    pub max_ping_frames_per_second: Count<10>,
    /// Pings that a client may send on a stream at once (API-107, ARC-085).
    pub max_ping_burst: Count<100>,
}
