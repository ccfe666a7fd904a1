//! Bounds on sizes and counts: at the limit, and one past it (section 10 of the API contract).

use bytes::Bytes;
use prost::Message;
use tonic::Code;
use xmtp_fixtures::signers::{ContractWallet, Installation};
use xmtp_fixtures::{IdentityUpdateBuilder, envelope, inbox_id_of};
use xmtp_protocol::client::{PublishServiceClient, QueryServiceClient};
use xmtp_protocol::proto::xmtp::backend::v1::publish_error::Reason;
use xmtp_protocol::proto::xmtp::backend::v1::{
    ClientEnvelope, PublishRequest, PublishResponse, QueryRequest,
};
use xmtp_protocol::{ParsedEnvelope, TopicKind};
use xmtp_test_support::payloads::{group_message, identity_update, topic, welcome};

use super::{PATH, at, encoded, failed, malformed, refusal, request, sized, stored};
use crate::harness::{Backend, meta_id, publish_error, query, sequence_id};
use crate::raw::{self, frame};
use crate::storage;

#[tokio::test]
async fn api_282_an_envelope_may_have_its_limit_and_no_byte_more() {
    let backend = Backend::with("limits.max_envelope_bytes = 1000").await;
    backend.publish([sized(1, 1000)]).await;
    let refused = backend
        .try_publish([group_message(1, "a"), sized(2, 1001)])
        .await;
    assert_eq!(refusal(refused), at(Some(1), Reason::TooLarge));
    stored(&backend, 1, 1).await;
}

#[tokio::test]
async fn api_282_a_request_may_have_its_limit_on_the_wire_and_no_byte_more() {
    let backend =
        Backend::with("limits.max_envelope_bytes = 1000\nlimits.max_request_bytes = 2000").await;
    let past = encoded([sized(1, 1000), sized(2, 995)]);
    assert_eq!(past.len(), 2001);
    for answer in [
        raw::native(backend.address, PATH, frame(&past), &[]).await,
        raw::web(backend.address, PATH, frame(&past), &[]).await,
    ] {
        assert_eq!(answer.code(), Code::OutOfRange);
        assert!(answer.status().details().is_empty());
    }
    // The length alone decides: nothing is decoded.
    let garbage = raw::native(backend.address, PATH, frame(&[0xff; 2001]), &[]).await;
    assert_eq!(garbage.code(), Code::OutOfRange);
    failed(
        backend.try_publish([sized(1, 1000), sized(2, 995)]).await,
        Code::OutOfRange,
    );
    stored(&backend, 0, 0).await;

    let at_limit = [sized(1, 1000), sized(2, 994)];
    assert_eq!(request(at_limit.clone()).encoded_len(), 2000);
    backend.publish(at_limit).await;
    stored(&backend, 2, 2).await;
}

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    prost::encoding::encode_varint(content.len() as u64, &mut bytes);
    bytes.extend(content);
    bytes
}

/// A welcome of `length` bytes whose enum takes five bytes; written again it takes ten.
fn growing(installation: u8, length: usize) -> Bytes {
    let build = |padding: usize| {
        let inline = [
            field(1, &[installation; 32]),
            field(2, &vec![b'.'; padding]),
            vec![4 << 3, 0xff, 0xff, 0xff, 0xff, 0x0f],
        ];
        Bytes::from(field(2, &field(1, &inline.concat())))
    };
    (0..length)
        .map(build)
        .find(|bytes| bytes.len() == length)
        .expect("the length can be had")
}

async fn publish_raw(backend: &Backend, envelopes: &[Bytes]) -> raw::Answer {
    let body: Vec<u8> = envelopes
        .iter()
        .flat_map(|envelope| field(1, envelope))
        .collect();
    raw::native(backend.address, PATH, frame(&body), &[]).await
}

#[tokio::test]
async fn an_envelope_is_measured_as_it_is_written_again() {
    let backend = Backend::with("limits.max_envelope_bytes = 1000").await;
    let envelope = growing(1, 996);
    let decoded = ClientEnvelope::decode(envelope.clone()).expect("decodes");
    assert_eq!(decoded.encoded_len(), 1001, "it grows by five bytes");

    let refused = publish_raw(&backend, &[growing(1, 100), envelope]).await;
    assert_eq!(
        refusal::<()>(Err(refused.status())),
        at(Some(1), Reason::TooLarge)
    );
    stored(&backend, 0, 0).await;
    assert_eq!(
        publish_raw(&backend, &[growing(1, 995)]).await.code(),
        Code::Ok
    );
}

#[tokio::test]
async fn a_request_is_measured_as_it_is_written_again() {
    let backend =
        Backend::with("limits.max_envelope_bytes = 1000\nlimits.max_request_bytes = 2000").await;
    let refused = publish_raw(&backend, &[growing(1, 990), growing(2, 995)]).await;
    assert_eq!(
        refusal::<()>(Err(refused.status())),
        at(None, Reason::TooLarge)
    );
    // It beats an envelope that is malformed as well.
    let malformed = Bytes::new();
    let refused = publish_raw(&backend, &[malformed, growing(1, 990), growing(2, 993)]).await;
    assert_eq!(
        refusal::<()>(Err(refused.status())),
        at(None, Reason::TooLarge)
    );
    stored(&backend, 0, 0).await;
    let accepted = publish_raw(&backend, &[growing(1, 990), growing(2, 994)]).await;
    assert_eq!(accepted.code(), Code::Ok);
}

#[tokio::test]
async fn api_131_distinct_topics_are_bounded_and_repeats_are_not() {
    let backend = Backend::with("limits.max_publish_topics = 2").await;
    let refused = backend
        .try_publish([
            group_message(1, "a"),
            welcome(1, "b"),
            group_message(2, "c"),
        ])
        .await;
    assert_eq!(refusal(refused), at(None, Reason::TooLarge));
    stored(&backend, 0, 0).await;
    backend
        .publish([
            group_message(1, "a"),
            welcome(1, "b"),
            group_message(1, "c"),
            welcome(1, "b"),
        ])
        .await;
    stored(&backend, 3, 2).await;
}

#[tokio::test]
async fn api_223_a_bound_on_the_request_beats_an_earlier_refusal() {
    let backend = Backend::with("limits.max_publish_topics = 2").await;
    let refused = backend
        .try_publish([
            malformed(),
            identity_update(1, 1),
            identity_update(1, 2),
            group_message(1, "a"),
            group_message(2, "b"),
        ])
        .await;
    assert_eq!(refusal(refused), at(None, Reason::TooLarge));
    // What is malformed has no topic to count.
    let refused = backend
        .try_publish([malformed(), group_message(1, "a"), group_message(2, "b")])
        .await;
    assert_eq!(refusal(refused), at(Some(0), Reason::MalformedPayload));
    stored(&backend, 0, 0).await;
}

/// An update that a contract wallet has signed in `slots` slots, one or two.
fn wallet_signed(address: u8, slots: usize) -> ClientEnvelope {
    let wallet = ContractWallet::new(1, address);
    let installation = Installation::new("of a contract wallet");
    let update = IdentityUpdateBuilder::new(&inbox_id_of(&wallet, 0)).create(&wallet, 0);
    envelope(match slots {
        1 => update.sign(),
        _ => update.add(&wallet, &installation).sign(),
    })
}

#[tokio::test]
async fn api_131_contract_wallet_signatures_of_an_update_are_bounded() {
    let backend = Backend::with("limits.max_scw_signatures = 1").await;
    let refused = backend
        .try_publish([group_message(1, "a"), wallet_signed(2, 2)])
        .await;
    assert_eq!(refusal(refused), at(Some(1), Reason::TooLarge));
    stored(&backend, 0, 0).await;
    // API-231: at the bound it is judged, for which no chain is configured.
    let unjudged = backend.try_publish([wallet_signed(1, 1)]).await;
    failed(unjudged, Code::Unavailable);
    stored(&backend, 0, 0).await;

    // The bound is the request's, so it binds a copy of what is stored too.
    let stored = ParsedEnvelope::parse(wallet_signed(2, 2)).expect("it parses");
    storage::store(&backend.database, &stored.topic, &stored.payload).await;
    let refused = backend.try_publish([wallet_signed(2, 2)]).await;
    assert_eq!(refusal(refused), at(Some(0), Reason::TooLarge));
}

#[tokio::test]
async fn api_222_a_lowered_limit_binds_duplicates() {
    let backend = Backend::start().await;
    let long = sized(1, 1001);
    backend
        .publish([long.clone(), group_message(2, "b"), group_message(3, "c")])
        .await;
    let (_low, channel) = backend
        .another("limits.max_envelope_bytes = 1000\nlimits.max_publish_topics = 1")
        .await;
    let mut low = PublishServiceClient::new(channel);
    assert_eq!(
        refusal(low.publish(request([long])).await),
        at(Some(0), Reason::TooLarge)
    );
    let copies = request([group_message(2, "b"), group_message(3, "c")]);
    assert_eq!(
        refusal(low.publish(copies).await),
        at(None, Reason::TooLarge)
    );
    stored(&backend, 3, 3).await;
}

#[tokio::test]
async fn api_283_an_answer_that_is_too_long_fails_although_everything_is_stored() {
    let backend =
        Backend::with("limits.max_envelope_bytes = 1000\nlimits.max_response_bytes = 2000").await;
    let envelopes: Vec<ClientEnvelope> =
        (0..40u8).map(|number| group_message(1, [number])).collect();
    failed(
        backend.try_publish(envelopes.clone()).await,
        Code::OutOfRange,
    );
    let web = raw::web(
        backend.address,
        PATH,
        frame(&encoded(envelopes.clone())),
        &[],
    )
    .await;
    assert_eq!(web.code(), Code::OutOfRange);
    stored(&backend, 40, 1).await;

    // API-290: what was stored can be read, and sent again it is the same.
    let (_wide, channel) = backend.another("").await;
    let answer = PublishServiceClient::new(channel)
        .publish(request(envelopes.clone()))
        .await
        .expect("fits elsewhere")
        .into_inner();
    let (_reader, channel) = backend.another("").await;
    let mut reader = QueryServiceClient::new(channel);
    let group = topic(TopicKind::GroupMessage, 1);
    let page = QueryRequest {
        queries: vec![query(&group, 0)],
        limit: 0,
    };
    let rows = reader.query(page).await.expect("read").into_inner();
    assert_eq!(
        rows.envelopes.iter().map(sequence_id).collect::<Vec<_>>(),
        answer
            .envelope_metas
            .iter()
            .map(meta_id)
            .collect::<Vec<_>>()
    );
    stored(&backend, 40, 1).await;

    // As many as fit: at the limit the answer is sent.
    let fits = (1..=40)
        .take_while(|count| {
            let answer = PublishResponse {
                envelope_metas: answer.envelope_metas[..*count].to_vec(),
            };
            answer.encoded_len() <= 2000
        })
        .last()
        .expect("one fits");
    backend.publish(envelopes[..fits].to_vec()).await;
    failed(
        backend.try_publish(envelopes[..=fits].to_vec()).await,
        Code::OutOfRange,
    );
}

#[tokio::test]
async fn api_223_only_a_refusal_has_a_detail() {
    let backend =
        Backend::with("limits.max_request_bytes = 2000\nlimits.max_envelope_bytes = 1000").await;
    let status = backend
        .try_publish([malformed()])
        .await
        .expect_err("refused");
    assert!(publish_error(&status).is_some());
    let long = PublishRequest {
        envelopes: vec![sized(1, 900); 3],
    };
    let status = backend
        .publisher()
        .publish(long)
        .await
        .expect_err("too long");
    assert!(publish_error(&status).is_none());
}
