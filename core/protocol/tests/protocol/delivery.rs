//! Deliveries assembled from stored parts, against the encoding of the generated messages.

use bytes::{Bytes, BytesMut};
use prost::Message;
use xmtp_protocol::{
    MAX_DELIVERY_OVERHEAD_BYTES, StoredEnvelope, Topic as ParsedTopic,
    proto::xmtp::backend::v1::{
        ClientEnvelope, Continuation, Cursor, EnvelopeMeta, MessageHash, QueryNewestResponse,
        QueryResponse, ServerEnvelope, SubscribeResponse, SubscribeStaticResponse, Topic,
        message_hash, query_newest_response, subscribe_response, subscribe_static_response,
    },
};

use crate::data::{group_message, recorded_envelopes};

fn meta_of(stored: &StoredEnvelope<'_>) -> EnvelopeMeta {
    EnvelopeMeta {
        cursor: Some(Cursor {
            sequence_id: stored.sequence_id,
        }),
        server_ns: stored.server_ns,
        message_hash: Some(MessageHash {
            hash: Some(message_hash::Hash::Sha256(Bytes::copy_from_slice(
                stored.hash,
            ))),
        }),
        topic: Some(Topic {
            topic: Bytes::copy_from_slice(stored.topic),
        }),
        expiry_ns: stored.expiry_ns,
        is_commit_or_proposal: stored.is_commit_or_proposal,
    }
}

/// A message that holds the envelope and nothing else.
fn generated(stored: &StoredEnvelope<'_>) -> Vec<u8> {
    let envelope = ClientEnvelope::decode(stored.payload).expect("stored bytes decode");
    let messages = subscribe_response::Messages {
        envelopes: vec![ServerEnvelope {
            meta: Some(meta_of(stored)),
            envelope: Some(envelope),
        }],
    };
    messages.encode_to_vec()
}

fn element(stored: &StoredEnvelope<'_>) -> BytesMut {
    let mut element = BytesMut::new();
    stored.put_element(&mut element);
    assert_eq!(element.len(), stored.element_len());
    element
}

#[test]
fn api_211_a_delivery_is_the_encoding_of_the_generated_message() {
    for (sequence_id, recorded) in (1..).zip(recorded_envelopes()) {
        let stored = StoredEnvelope {
            sequence_id,
            server_ns: 1_795_962_050_500_396_000,
            expiry_ns: if recorded.is_commit_or_proposal {
                0
            } else {
                1_803_738_050_500_396_000
            },
            hash: &recorded.hash,
            topic: &recorded.topic,
            is_commit_or_proposal: recorded.is_commit_or_proposal,
            payload: &recorded.envelope,
        };
        assert_eq!(element(&stored), generated(&stored), "{}", recorded.source);
    }
}

#[test]
fn api_212_every_mixture_of_zero_and_extreme_metadata_encodes_alike() {
    let topics = [&[][..], &[1; 17], &[2; 33], &[3; 128]];
    let payload = group_message(vec![9; 300]).encode_to_vec();
    for sequence_id in [0, 1, 127, 128, i64::MAX as u64, u64::MAX] {
        for ns in [0, 1, i64::MAX as u64, u64::MAX] {
            for topic in topics {
                for payload in [&payload[..], &[]] {
                    for is_commit_or_proposal in [false, true] {
                        let stored = StoredEnvelope {
                            sequence_id,
                            server_ns: ns,
                            expiry_ns: u64::MAX - ns,
                            hash: &[0; 32],
                            topic,
                            is_commit_or_proposal,
                            payload,
                        };
                        assert_eq!(element(&stored), generated(&stored));
                    }
                }
            }
        }
    }
}

/// The longest metadata, around an envelope whose length prefixes are as long as any that the
/// largest permitted message has.
fn worst_case(topic: &[u8]) -> (usize, EnvelopeMeta, ClientEnvelope) {
    let envelope = group_message(vec![0; 25 << 20]);
    let meta = meta_of(&StoredEnvelope {
        sequence_id: u64::MAX,
        server_ns: u64::MAX,
        expiry_ns: u64::MAX,
        hash: &[0xff; 32],
        topic,
        is_commit_or_proposal: true,
        payload: &[],
    });
    (envelope.encoded_len(), meta, envelope)
}

#[test]
fn ops_021_the_overhead_covers_the_worst_frame_and_page() {
    // Storage permits topics of 128 bytes (ARC-024).
    let (len, meta, envelope) = worst_case(&[0xff; 128]);
    let envelopes = vec![ServerEnvelope {
        meta: Some(meta),
        envelope: Some(envelope),
    }];

    let messages = subscribe_response::Messages {
        envelopes: envelopes.clone(),
    };
    let frame = SubscribeResponse {
        response: Some(subscribe_response::Response::Messages(messages)),
    };
    let messages = subscribe_static_response::Messages {
        envelopes: envelopes.clone(),
    };
    let static_frame = SubscribeStaticResponse {
        response: Some(subscribe_static_response::Response::Messages(messages)),
    };
    let page = QueryResponse {
        envelopes,
        continuation: Some(Continuation { has_more: true }),
    };

    for total in [
        frame.encoded_len(),
        static_frame.encoded_len(),
        page.encoded_len(),
    ] {
        assert!(
            total - len <= MAX_DELIVERY_OVERHEAD_BYTES,
            "{} bytes over",
            total - len
        );
    }
}

#[test]
fn ops_021_the_overhead_covers_the_worst_newest_result() {
    // Named twice there, the topic is one that a request can name.
    let (len, meta, envelope) = worst_case(&[0xff; ParsedTopic::MAX_LEN]);
    let result = query_newest_response::Result {
        topic: meta.topic.clone(),
        meta: Some(meta),
        envelope: Some(envelope),
    };
    let total = QueryNewestResponse {
        results: vec![result],
    }
    .encoded_len();
    assert!(
        total - len <= MAX_DELIVERY_OVERHEAD_BYTES,
        "{} bytes over",
        total - len
    );
}
