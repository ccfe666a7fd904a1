//! Identity updates of many clients at once (ARC-032, ARC-111).

use futures::StreamExt;
use futures::future::{join, join_all};
use futures::stream;
use prost::Message;
use tokio::time::{Duration, sleep};
use tonic::transport::Channel;
use tonic::{Code, Status};
use xmtp_fixtures::signers::{Installation, Signer, Wallet};
use xmtp_fixtures::{IdentityUpdateBuilder, envelope, inbox_id_of, registration};
use xmtp_protocol::TopicKind;
use xmtp_protocol::client::PublishServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::publish_error::Reason;
use xmtp_protocol::proto::xmtp::backend::v1::{ClientEnvelope, EnvelopeMeta};
use xmtp_test_support::payloads::{group_message, identity_update, topic};

use super::{at, failed, refusal, request, stored};
use crate::harness::{Backend, meta_id};
use crate::storage::{self, Stranger, publishes_wait};

const ROUNDS: usize = 500;

async fn publish(channel: Channel, envelope: ClientEnvelope) -> Result<EnvelopeMeta, Status> {
    let answer = PublishServiceClient::new(channel)
        .publish(request([envelope]))
        .await?;
    Ok(answer.into_inner().envelope_metas.remove(0))
}

/// Two updates of one inbox of which each undoes what the other needs. In every second round they have
/// a history before them.
async fn rivals(backend: &Backend, round: usize) -> [ClientEnvelope; 2] {
    let owner = Wallet::new(&format!("owner of round {round}"));
    let inbox = inbox_id_of(&owner, 0);
    if round.is_multiple_of(2) {
        return ["phone", "laptop"]
            .map(|name| envelope(registration(&owner, 0, &Installation::new(name))));
    }
    let created = IdentityUpdateBuilder::new(&inbox).create(&owner, 0).sign();
    backend.publish([envelope(created)]).await;
    ["one heir", "another heir"].map(|name| {
        let heir = Wallet::new(name).identifier();
        let update = IdentityUpdateBuilder::new(&inbox);
        envelope(update.change_recovery(&owner, &heir).sign())
    })
}

#[tokio::test]
async fn arc_111_of_two_updates_in_flight_one_is_stored_and_never_both() {
    // That a machine is slow decides no race.
    let patient = "database.max_statement_timeout_ms = 30000\n\
                   publishing.max_publish_duration_ms = 40000";
    let backend = Backend::with(patient).await;
    let (_other, there) = backend.another(patient).await;
    let here = backend.connect().await;
    let rounds = stream::iter(0..ROUNDS).map(async |round| {
        let [one, other] = rivals(&backend, round).await;
        let answers = join(publish(here.clone(), one), publish(there.clone(), other));
        let (one, other) = answers.await;
        let (Ok(_), Err(lost)) = (if one.is_ok() {
            (one, other)
        } else {
            (other, one)
        }) else {
            panic!("round {round}: not exactly one is stored")
        };
        match lost.code() {
            Code::Aborted => failed::<()>(Err(lost), Code::Aborted),
            _ => assert_eq!(
                refusal::<()>(Err(lost)),
                at(Some(0), Reason::InvalidIdentityUpdate)
            ),
        }
    });
    rounds.buffer_unordered(4).collect::<()>().await;
    let rounds = i64::try_from(ROUNDS).expect("few");
    stored(&backend, rounds + rounds / 2, rounds).await;
}

#[tokio::test]
async fn arc_032_an_update_waits_for_those_of_other_inboxes() {
    let backend = Backend::start().await;
    let first = topic(TopicKind::IdentityUpdate, 1);
    let stranger = Stranger::on_topic(&backend.database, &first).await;
    let (here, there) = (backend.connect().await, backend.connect().await);
    let one = tokio::spawn(publish(here, identity_update(1, 1)));
    publishes_wait(&backend.database, 1).await;
    // Its own topic is free.
    let two = tokio::spawn(publish(there, identity_update(2, 1)));
    publishes_wait(&backend.database, 2).await;
    // Other kinds do not wait for it.
    backend.publish([group_message(1, "meanwhile")]).await;
    stranger.commit().await;
    let ids = join_all([one, two]).await.into_iter().map(|answer| {
        let meta = answer.expect("no panic").expect("stored");
        meta_id(&meta)
    });
    assert!(ids.is_sorted());
}

#[tokio::test]
async fn arc_032_updates_of_all_inboxes_appear_in_the_order_of_their_ids() {
    const WRITERS: u8 = 8;
    const EACH: u64 = 12;
    let backend = Backend::start().await;
    let (_other, there) = backend.another("").await;
    let here = backend.connect().await;
    let writing = join_all((0..WRITERS).map(|inbox| {
        let channel = if inbox % 2 == 0 { &here } else { &there };
        async move {
            for number in 1..=EACH {
                let update = identity_update(inbox, number);
                publish(channel.clone(), update).await.expect("stored");
            }
        }
    }));
    let all = usize::from(WRITERS) * usize::try_from(EACH).expect("few");
    let reading = async {
        let mut connection = backend.database.connect().await;
        let mut seen: Vec<i64> = Vec::new();
        while seen.len() < all {
            let ids: Vec<i64> = sqlx::query_scalar(
                "SELECT sequence_id FROM envelopes WHERE get_byte(topic, 0) = 2
                 ORDER BY sequence_id",
            )
            .fetch_all(&mut connection)
            .await
            .expect("rows can be read");
            assert!(ids.starts_with(&seen), "one appeared below a known one");
            seen = ids;
            sleep(Duration::from_millis(1)).await;
        }
    };
    join(writing, reading).await;
    stored(&backend, i64::try_from(all).expect("few"), WRITERS.into()).await;
}

#[tokio::test]
async fn api_234_a_full_log_takes_every_copy_of_what_it_holds() {
    const FULL: u64 = 256;
    let backend = Backend::start().await;
    let inbox = topic(TopicKind::IdentityUpdate, 1);
    let first = backend.publish([identity_update(1, 1)]).await;
    for number in 2..FULL {
        let update = identity_update(1, number).encode_to_vec();
        storage::store(&backend.database, &inbox, &update).await;
    }
    // The last one that there is room for is judged against all the others.
    let last = backend.publish([identity_update(1, FULL)]).await;
    let refused = backend.try_publish([identity_update(1, FULL + 1)]).await;
    assert_eq!(refusal(refused), at(Some(0), Reason::InvalidIdentityUpdate));
    assert_eq!(backend.publish([identity_update(1, 1)]).await, first);
    assert_eq!(backend.publish([identity_update(1, FULL)]).await, last);
    // ARC-064: reads go beyond it.
    let beyond = identity_update(1, FULL + 1).encode_to_vec();
    storage::store(&backend.database, &inbox, &beyond).await;
    assert_eq!(backend.read(&inbox).await.len(), 257);
    assert_eq!(backend.publish([identity_update(1, FULL)]).await, last);
}

#[tokio::test]
async fn api_224_a_client_that_did_not_hear_of_its_commit_sends_again() {
    let backend =
        Backend::with("limits.max_envelope_bytes = 1000\nlimits.max_response_bytes = 2000").await;
    let mut envelopes = vec![identity_update(1, 1)];
    envelopes.extend((0..40u8).map(|number| group_message(1, [number])));
    // Everything is stored, and the answer is lost.
    failed(
        backend.try_publish(envelopes.clone()).await,
        Code::OutOfRange,
    );
    stored(&backend, 41, 2).await;
    // The log goes on meanwhile, and would not take the first one as something new.
    backend.publish([identity_update(1, 2)]).await;
    let inbox = backend.read(&topic(TopicKind::IdentityUpdate, 1)).await;
    let again = backend.publish([identity_update(1, 1)]).await;
    assert_eq!(again[0], inbox[0].meta.clone().expect("it has metadata"));
    stored(&backend, 42, 2).await;
}
