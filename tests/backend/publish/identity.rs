//! Identity updates: one at a time, up to a length, against a history that stands still.

use prost::Message;
use tonic::Code;
use xmtp_protocol::TopicKind;
use xmtp_protocol::proto::xmtp::backend::v1::ClientEnvelope;
use xmtp_protocol::proto::xmtp::backend::v1::publish_error::Reason;
use xmtp_test_support::payloads::{group_message, identity_update, topic};

use super::{at, failed, malformed, refusal, request, stored};
use crate::harness::Backend;
use crate::storage::{Stranger, no_publish_locks, publishes_wait};

#[tokio::test]
async fn api_233_two_updates_of_one_inbox_are_refused_even_when_one_is_stored() {
    let backend = Backend::start().await;
    let both = || [identity_update(1, 1), identity_update(1, 2)];
    assert_eq!(
        refusal(backend.try_publish(both()).await),
        at(Some(1), Reason::InvalidIdentityUpdate)
    );
    backend.publish([identity_update(1, 1)]).await;
    assert_eq!(
        refusal(backend.try_publish(both()).await),
        at(Some(1), Reason::InvalidIdentityUpdate)
    );
    let [one, other] = both();
    assert_eq!(
        refusal(backend.try_publish([other, one]).await),
        at(Some(1), Reason::InvalidIdentityUpdate)
    );
    stored(&backend, 1, 1).await;
    // Copies are one update; another inbox is another history.
    backend
        .publish([
            identity_update(1, 2),
            identity_update(1, 2),
            identity_update(2, 1),
        ])
        .await;
    stored(&backend, 3, 2).await;
}

#[tokio::test]
async fn api_234_a_full_history_takes_copies_and_nothing_new() {
    let backend = Backend::with("limits.max_identity_entries = 2").await;
    let first = backend.publish([identity_update(1, 1)]).await;
    backend.publish([identity_update(1, 2)]).await;
    assert_eq!(
        refusal(
            backend
                .try_publish([group_message(1, "a"), identity_update(1, 3)])
                .await
        ),
        at(Some(1), Reason::InvalidIdentityUpdate)
    );
    stored(&backend, 2, 1).await;
    assert_eq!(backend.publish([identity_update(1, 1)]).await, first);
    // Other inboxes have room.
    backend.publish([identity_update(2, 1)]).await;
}

#[tokio::test]
async fn api_223_parsing_and_validation_share_the_lowest_position() {
    let backend = Backend::with("limits.max_identity_entries = 1").await;
    backend.publish([identity_update(1, 1)]).await;
    let full = || identity_update(1, 2);
    let other = || group_message(1, "a");
    for (envelopes, refused) in [
        (
            [other(), full(), malformed()],
            at(Some(1), Reason::InvalidIdentityUpdate),
        ),
        (
            [malformed(), other(), full()],
            at(Some(0), Reason::MalformedPayload),
        ),
    ] {
        assert_eq!(refusal(backend.try_publish(envelopes).await), refused);
    }
    stored(&backend, 1, 1).await;
}

/// Publishes `envelopes`; the history of inbox 1 moves between their validation and their locks.
async fn overtaken(backend: &Backend, envelopes: Vec<ClientEnvelope>) -> Result<(), tonic::Status> {
    backend.publish([identity_update(1, 1)]).await;
    let mut stranger = Stranger::on_identity(&backend.database).await;
    let mut publisher = backend.publisher();
    let late = tokio::spawn(async move { publisher.publish(request(envelopes)).await });
    publishes_wait(&backend.database, 1).await;
    let inbox = topic(TopicKind::IdentityUpdate, 1);
    let other = identity_update(1, 3).encode_to_vec();
    stranger.insert(&inbox, &other).await;
    stranger.commit().await;
    late.await.expect("no panic").map(drop)
}

#[tokio::test]
async fn api_232_a_history_that_moves_aborts_the_publish() {
    let backend = Backend::start().await;
    let late = overtaken(&backend, vec![group_message(1, "a"), identity_update(1, 2)]).await;
    failed(late, Code::Aborted);
    stored(&backend, 2, 1).await;
    no_publish_locks(&backend.database).await;
    // Validated again, it is stored.
    backend.publish([identity_update(1, 2)]).await;
}

#[tokio::test]
async fn api_232_a_history_that_moves_beats_an_envelope_that_is_refused() {
    let backend = Backend::with("limits.max_identity_entries = 5").await;
    let late = overtaken(&backend, vec![malformed(), identity_update(1, 2)]).await;
    failed(late, Code::Aborted);
    stored(&backend, 2, 1).await;
}

#[tokio::test]
async fn api_232_only_the_history_of_its_own_inbox_counts() {
    let backend = Backend::start().await;
    let late = overtaken(&backend, vec![identity_update(2, 1)]).await;
    late.expect("another inbox has not moved");
    stored(&backend, 3, 2).await;
}
