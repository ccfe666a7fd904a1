//! The steps of a publish after parsing, in their order (section 5.1 of the API contract): where two of them
//! would decide, the earlier one does.

use prost::Message;
use tonic::{Code, Status};
use xmtp_fixtures::signers::{ContractWallet, Installation};
use xmtp_fixtures::{
    IdentityUpdateBuilder, KeyPackageBuilder, envelope, inbox_id_of, registration,
};
use xmtp_protocol::proto::xmtp::backend::v1::publish_error::Reason;
use xmtp_protocol::proto::xmtp::backend::v1::{ClientEnvelope, EnvelopeMeta};
use xmtp_protocol::{ParsedEnvelope, Topic, TopicKind};
use xmtp_test_support::payloads::{group_message, identity_update, owner, topic};

use super::{at, failed, malformed, refusal, request, stored};
use crate::harness::{Backend, meta_id};
use crate::storage::{self, Stranger, publishes_wait};

fn fill() -> ClientEnvelope {
    group_message(1, "fill")
}

/// An update of an inbox of its own, with a signature of another text.
fn wrongly_signed() -> ClientEnvelope {
    let (owner, phone) = (owner(90), Installation::new("phone"));
    let update = IdentityUpdateBuilder::new(&inbox_id_of(&owner, 0))
        .create(&owner, 0)
        .add(&owner, &phone)
        .sign_text("another text");
    envelope(update)
}

/// An update that nothing here can judge.
fn unjudged() -> ClientEnvelope {
    let wallet = ContractWallet::new(1, 91);
    let phone = Installation::new("phone");
    envelope(registration(&wallet, 0, &phone))
}

fn expired() -> ClientEnvelope {
    let installation = Installation::new("expired");
    let mut package = KeyPackageBuilder::new(&installation, "inbox");
    (package.not_before, package.not_after) = (1, 2);
    envelope(package.build())
}

fn topic_of(envelope: &ClientEnvelope) -> Topic {
    let parsed = ParsedEnvelope::parse(envelope.clone());
    parsed.expect("it parses").topic
}

#[tokio::test]
async fn api_223_the_lowest_position_decides_between_parsing_and_validation() {
    let backend = Backend::start().await;
    for (envelopes, refused) in [
        (
            vec![fill(), wrongly_signed(), fill(), malformed()],
            at(Some(1), Reason::InvalidSignature),
        ),
        (
            vec![fill(), malformed(), wrongly_signed()],
            at(Some(1), Reason::MalformedPayload),
        ),
        (
            vec![expired(), wrongly_signed()],
            at(Some(0), Reason::InvalidKeyPackage),
        ),
        (
            vec![wrongly_signed(), expired()],
            at(Some(0), Reason::InvalidSignature),
        ),
        (
            vec![identity_update(1, 2), wrongly_signed()],
            at(Some(0), Reason::InvalidIdentityUpdate),
        ),
        // API-231: a fault of a chain is an answer like another.
        (
            vec![malformed(), unjudged()],
            at(Some(0), Reason::MalformedPayload),
        ),
        (
            vec![expired(), unjudged()],
            at(Some(0), Reason::InvalidKeyPackage),
        ),
    ] {
        assert_eq!(refusal(backend.try_publish(envelopes).await), refused);
    }
    for envelopes in [
        vec![fill(), unjudged(), malformed()],
        vec![unjudged(), expired()],
    ] {
        failed(backend.try_publish(envelopes).await, Code::Unavailable);
    }
    stored(&backend, 0, 0).await;
}

#[tokio::test]
async fn api_222_what_is_stored_is_not_judged_again() {
    let backend = Backend::start().await;
    // None of them would be let in today.
    let copies = [wrongly_signed(), unjudged(), expired()];
    let mut ids = Vec::new();
    for copy in &copies {
        let id = storage::store(&backend.database, &topic_of(copy), &copy.encode_to_vec()).await;
        ids.push(id.cast_unsigned());
    }
    let metas = backend.publish(copies.clone()).await;
    assert_eq!(metas.iter().map(meta_id).collect::<Vec<_>>(), ids);
    // Beside what is new, too.
    let metas = backend
        .publish([&copies[..], &[identity_update(1, 1)]].concat())
        .await;
    assert_eq!(metas[..3].iter().map(meta_id).collect::<Vec<_>>(), ids);
}

#[tokio::test]
async fn api_222_a_request_of_duplicates_takes_no_lock() {
    let backend = Backend::start().await;
    let copies = [identity_update(1, 1), fill()];
    let first = backend.publish(copies.clone()).await;
    let stranger = Stranger::on_identity(&backend.database).await;
    assert_eq!(backend.publish(copies.clone()).await, first);
    // A refusal of parsing stands, and waits for no lock either.
    let refused = backend
        .try_publish([&copies[..], &[malformed()]].concat())
        .await;
    assert_eq!(refusal(refused), at(Some(2), Reason::MalformedPayload));
    stranger.commit().await;
    stored(&backend, 2, 2).await;
}

/// Publishes `envelopes`; `rows` are stored between their validation and their locks.
async fn overtaken(
    backend: &Backend,
    envelopes: Vec<ClientEnvelope>,
    rows: &[(Topic, ClientEnvelope)],
) -> Result<Vec<EnvelopeMeta>, Status> {
    let mut stranger = Stranger::on_identity(&backend.database).await;
    let mut publisher = backend.publisher();
    let late = tokio::spawn(async move { publisher.publish(request(envelopes)).await });
    publishes_wait(&backend.database, 1).await;
    for (topic, envelope) in rows {
        stranger.insert(topic, &envelope.encode_to_vec()).await;
    }
    stranger.commit().await;
    let answer = late.await.expect("no panic")?;
    Ok(answer.into_inner().envelope_metas)
}

#[tokio::test]
async fn api_036_a_copy_that_commits_meanwhile_succeeds_whatever_validation_said() {
    let backend = Backend::start().await;
    for refused in [wrongly_signed(), unjudged()] {
        let row = (topic_of(&refused), refused.clone());
        let metas = overtaken(&backend, vec![refused], &[row]).await;
        assert_eq!(metas.expect("a copy is no error").len(), 1);
    }
    assert_eq!(backend.count("envelopes").await, 2);

    // What is left after that decides: here, an update that is no copy.
    let (copy, other) = (identity_update(1, 1), wrongly_signed());
    let row = (topic(TopicKind::IdentityUpdate, 1), copy.clone());
    let new = identity_update(2, 2);
    let refused = overtaken(&backend, vec![copy, other, new], &[row]).await;
    assert_eq!(refusal(refused), at(Some(2), Reason::InvalidIdentityUpdate));
    assert_eq!(backend.count("envelopes").await, 3);
}

#[tokio::test]
async fn api_232_a_history_that_moves_beats_every_refusal() {
    let backend = Backend::start().await;
    let wrong_topic = topic_of(&wrongly_signed());
    let mut rows = 0;
    for (number, envelopes) in [
        // The refused one stands before, behind, and in the very place of what moved.
        (1, vec![wrongly_signed(), identity_update(1, 1)]),
        (2, vec![identity_update(2, 1), malformed()]),
        (3, vec![unjudged(), identity_update(3, 1), expired()]),
    ] {
        let moved = topic(TopicKind::IdentityUpdate, number);
        let row = (moved, identity_update(number, 7));
        failed(overtaken(&backend, envelopes, &[row]).await, Code::Aborted);
        rows += 1;
        assert_eq!(backend.count("envelopes").await, rows);
    }
    let row = (wrong_topic, identity_update(90, 7));
    failed(
        overtaken(&backend, vec![wrongly_signed()], &[row]).await,
        Code::Aborted,
    );
    assert_eq!(backend.count("identifier_association").await, 0);
}
