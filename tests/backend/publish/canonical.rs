//! One value, one encoding, one row, however it came (API-211).

use std::collections::HashSet;

use bytes::Bytes;
use prost::Message;
use sha2::{Digest, Sha256};
use tonic::Code;
use xmtp_protocol::TopicKind;
use xmtp_protocol::proto::xmtp::backend::v1::client_envelope::Payload;
use xmtp_protocol::proto::xmtp::backend::v1::message_hash::Hash;
use xmtp_protocol::proto::xmtp::backend::v1::{ClientEnvelope, EnvelopeMeta, PublishResponse};
use xmtp_test_support::payloads::{group_message, topic};

use super::{PATH, stored};
use crate::harness::Backend;
use crate::raw::{self, frame};

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    prost::encoding::encode_varint(u64::from(number) << 3 | 2, &mut bytes);
    prost::encoding::encode_varint(content.len() as u64, &mut bytes);
    bytes.extend(content);
    bytes
}

/// Publishes one `ClientEnvelope` as it is encoded here.
async fn publish(backend: &Backend, envelope: &[u8]) -> EnvelopeMeta {
    let body = frame(&field(1, envelope));
    let answer = raw::native(backend.address, PATH, body, &[]).await;
    assert_eq!(answer.code(), Code::Ok);
    let mut response =
        PublishResponse::decode(answer.messages[0].clone()).expect("an answer decodes");
    response.envelope_metas.remove(0)
}

/// The MLS message inside a test envelope.
fn mls_data(text: &str) -> Bytes {
    match group_message(1, text).payload {
        Some(Payload::GroupMessage(message)) => message.data,
        _ => unreachable!("it is a group message"),
    }
}

pub(super) fn hash(meta: &EnvelopeMeta) -> [u8; 32] {
    match meta.message_hash.as_ref().and_then(|it| it.hash.as_ref()) {
        Some(Hash::Sha256(hash)) => hash[..].try_into().expect("32 bytes"),
        None => panic!("metadata has a hash"),
    }
}

#[tokio::test]
async fn api_211_reordered_unknown_and_repeated_fields_make_one_row() {
    let backend = Backend::start().await;
    let data = field(1, &mls_data("one"));
    let hmac = field(2, &[7; 32]);
    let push = vec![3 << 3, 1];
    let unknown = field(99, b"from a later version");
    let canonical = field(1, &[&data[..], &hmac, &push].concat());

    let parts: [&[&[u8]]; 6] = [
        &[&data, &hmac, &push],
        // reordered
        &[&push, &hmac, &data],
        // unknown
        &[&data, &unknown, &hmac, &push],
        // the last of a repeated singular field counts
        &[
            &field(1, b"not this"),
            &data,
            &field(2, b"nor this"),
            &hmac,
            &push,
        ],
        // a flag that takes more bytes than it has to
        &[&data, &hmac, &[3 << 3, 0x81, 0x00]],
        // a flag that is set twice
        &[&data, &hmac, &[3 << 3, 0], &push],
    ];
    let mut encodings: Vec<Vec<u8>> = parts
        .iter()
        .map(|parts| field(1, &parts.concat()))
        .collect();
    // unknown beside the payload, and a payload in two parts, which merge
    encodings.push([&unknown[..], &canonical].concat());
    encodings.push([field(1, &data), field(1, &[&hmac[..], &push].concat())].concat());
    let distinct: HashSet<&Vec<u8>> = encodings.iter().collect();
    assert_eq!(distinct.len(), 8);

    let mut answers = Vec::new();
    for encoding in &encodings {
        answers.push(publish(&backend, encoding).await);
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert_eq!(
        hash(&answers[0]),
        <[u8; 32]>::from(Sha256::digest(&canonical))
    );
    stored(&backend, 1, 1).await;

    let rows = backend.read(&topic(TopicKind::GroupMessage, 1)).await;
    let envelope = rows[0].envelope.as_ref().expect("a row has its envelope");
    assert_eq!(envelope.encode_to_vec(), canonical);
}

#[tokio::test]
async fn api_211_the_last_payload_of_several_is_the_one() {
    let backend = Backend::start().await;
    let last = group_message(1, "last").encode_to_vec();
    let welcome = xmtp_test_support::payloads::welcome(1, "first").encode_to_vec();
    let meta = publish(&backend, &[welcome, last.clone()].concat()).await;
    assert_eq!(hash(&meta), <[u8; 32]>::from(Sha256::digest(&last)));
    stored(&backend, 1, 1).await;
}

#[tokio::test]
async fn arc_092_bytes_behind_the_mls_message_are_kept_and_change_the_hash() {
    let backend = Backend::start().await;
    let trailing = |tail: &[u8]| {
        let mut envelope = group_message(1, "one");
        if let Some(Payload::GroupMessage(message)) = &mut envelope.payload {
            message.data = [&message.data[..], tail].concat().into();
        }
        envelope
    };
    let envelopes: [ClientEnvelope; 3] = [trailing(b""), trailing(b"tail"), trailing(b"other")];
    let metas = backend.publish(envelopes.clone()).await;
    let hashes: HashSet<[u8; 32]> = metas.iter().map(hash).collect();
    assert_eq!(hashes.len(), 3);
    let rows = backend.read(&topic(TopicKind::GroupMessage, 1)).await;
    let read: Vec<ClientEnvelope> = rows.into_iter().filter_map(|row| row.envelope).collect();
    assert_eq!(read, envelopes);
}
