//! The same envelope again: one row, one answer (section 5.2 of the API contract).

use futures::future::join_all;
use tonic::transport::Channel;
use xmtp_protocol::TopicKind;
use xmtp_protocol::client::PublishServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::{ClientEnvelope, EnvelopeMeta};
use xmtp_test_support::payloads::{
    commit_log_entry, group_message, identity_update, key_package, topic, welcome,
};

use super::{request, stored};
use crate::harness::{Backend, meta_id};
use crate::storage::{Stranger, publishes_wait};

async fn publish(channel: Channel, envelopes: Vec<ClientEnvelope>) -> Vec<EnvelopeMeta> {
    PublishServiceClient::new(channel)
        .publish(request(envelopes))
        .await
        .expect("a duplicate is no error")
        .into_inner()
        .envelope_metas
}

#[tokio::test]
async fn api_221_new_stored_and_repeated_envelopes_answer_in_their_positions() {
    let backend = Backend::start().await;
    let first = backend
        .publish([group_message(1, "b"), welcome(1, "d")])
        .await;
    let (b, d) = (&first[0], &first[1]);
    let metas = backend
        .publish([
            group_message(1, "a"),
            group_message(1, "b"),
            group_message(2, "c"),
            group_message(1, "a"),
            welcome(1, "d"),
            group_message(2, "c"),
            group_message(1, "e"),
        ])
        .await;
    assert_eq!(metas.len(), 7);
    assert_eq!([&metas[1], &metas[4]], [b, d]);
    assert_eq!([&metas[0], &metas[2]], [&metas[3], &metas[5]]);
    let new: Vec<u64> = [0, 2, 6].map(|at| meta_id(&metas[at])).into();
    assert!(new.is_sorted_by(|a, b| a < b) && new[0] > meta_id(d));
    stored(&backend, 5, 3).await;
}

#[tokio::test]
async fn api_222_every_kind_is_stored_once() {
    let backend = Backend::start().await;
    let envelopes = [
        group_message(1, "a"),
        welcome(1, "a"),
        identity_update(1, 1),
        key_package(),
        commit_log_entry(1, 1),
    ];
    let first = backend.publish(envelopes.clone()).await;
    assert_eq!(backend.publish(envelopes).await, first);
    stored(&backend, 5, 5).await;
}

#[tokio::test]
async fn s17_a_resend_through_another_instance_answers_what_was_stored() {
    let backend = Backend::start().await;
    let (_other, there) = backend.another("").await;
    let envelopes = vec![
        group_message(1, "a"),
        identity_update(1, 1),
        group_message(1, "a"),
        welcome(1, "b"),
    ];
    let first = backend.publish(envelopes.clone()).await;
    assert_eq!(publish(there.clone(), envelopes).await, first);
    stored(&backend, 3, 3).await;
}

#[tokio::test]
async fn api_222_one_request_to_two_instances_at_once_is_stored_once() {
    let backend = Backend::start().await;
    let (_other, there) = backend.another("").await;
    let here = backend.connect().await;
    for round in 1..=25 {
        let envelopes = vec![
            group_message(1, format!("a {round}")),
            welcome(1, format!("b {round}")),
            identity_update(1, round),
            group_message(1, format!("a {round}")),
        ];
        // The others look each other up in the opposite order.
        let reversed: Vec<ClientEnvelope> = envelopes.iter().rev().cloned().collect();
        let answers = join_all([
            publish(here.clone(), envelopes.clone()),
            publish(there.clone(), envelopes.clone()),
            publish(there.clone(), reversed),
        ])
        .await;
        assert_eq!(answers[0], answers[1]);
        let reversed: Vec<&EnvelopeMeta> = answers[2].iter().rev().collect();
        assert!(answers[0].iter().eq(reversed));
    }
    stored(&backend, 75, 3).await;
}

#[tokio::test]
async fn arc_036_a_copy_that_commits_during_the_wait_for_locks_is_found() {
    let backend = Backend::start().await;
    let (_other, there) = backend.another("").await;
    let here = backend.connect().await;
    let group = topic(TopicKind::GroupMessage, 1);
    let stranger = Stranger::on_topic(&backend.database, &group).await;
    let race = [here, there].map(|channel| {
        tokio::spawn(publish(
            channel,
            vec![group_message(1, "same"), group_message(1, "same")],
        ))
    });
    // Both have looked for duplicates and found none.
    publishes_wait(&backend.database, 2).await;
    stranger.commit().await;
    let answers = join_all(race).await;
    let [one, other] = &answers[..] else {
        panic!("two answers")
    };
    assert_eq!(
        one.as_ref().expect("answered"),
        other.as_ref().expect("answered")
    );
    stored(&backend, 1, 1).await;
}

#[tokio::test]
async fn api_222_an_identity_update_that_wins_the_race_makes_the_other_a_copy() {
    let backend = Backend::start().await;
    let stranger = Stranger::on_identity(&backend.database).await;
    let (here, there) = (backend.connect().await, backend.connect().await);
    let race =
        [here, there].map(|channel| tokio::spawn(publish(channel, vec![identity_update(1, 1)])));
    publishes_wait(&backend.database, 2).await;
    stranger.commit().await;
    // The loser's history has moved, by its own copy: no reason to abort.
    let answers = join_all(race).await;
    assert_eq!(
        answers[0].as_ref().expect("answered"),
        answers[1].as_ref().expect("answered")
    );
    stored(&backend, 1, 1).await;
}

#[tokio::test]
async fn api_288_a_new_retention_changes_nothing_that_is_stored() {
    let backend = Backend::with("retention.group_message_seconds = 100").await;
    let first = backend.publish([group_message(1, "a")]).await;
    assert_eq!(first[0].expiry_ns - first[0].server_ns, 100_000_000_000);
    let (_other, there) = backend.another("retention.group_message_seconds = 5").await;
    assert_eq!(publish(there, vec![group_message(1, "a")]).await, first);
}
