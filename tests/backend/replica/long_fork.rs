//! The long fork: a primary makes commits visible in another order than it writes them to its log, and a replica
//! shows them in the order of the log. So of two commits each of the two servers may show one that the other does not
//! show yet. What has to be ordered here, the rows of a topic and the boundary above them, is ordered by locks that
//! are held beyond both moments (ARC-033, ARC-039).

use std::sync::Arc;

use sqlx::{Connection, Executor};
use xmtp_protocol::proto::xmtp::backend::v1::PublishRequest;
use xmtp_test_support::{PostgresServer, TestDatabase, eventually};

use super::{PATIENT, Pair, newest, setting, shows};
use crate::harness::{Backend, meta_id, sequence_id};
use crate::streams::{HeldId, Reader, boundary, group, messages};

#[tokio::test]
async fn arc_033_arc_039_long_fork_a_replica_shows_a_commit_that_its_primary_does_not_and_stays_in_order()
 {
    // Of its own: commits are going to wait here for a standby that does not exist.
    let primary = Arc::new(PostgresServer::primary().await);
    // The test's own commits do not wait.
    let ours = primary.options().options([("synchronous_commit", "local")]);
    let database = TestDatabase::create_on(ours).await;
    let name = super::name(&database);
    let pair = Pair::of(Arc::clone(&primary), &database).await;
    let replica = pair.standby.options().port(pair.address.port());
    let urls = [
        setting(&primary.options().database(&name)).replace("replica_url", "url"),
        setting(&replica.database(&name)),
    ];
    let settings = format!("{}\n{PATIENT}", urls.join("\n"));
    let backend = Backend::with_replica(database, &settings).await;
    let first = meta_id(&backend.publish(messages(1, [1])).await[0]);
    let mut reader = Reader::following(&backend, &[(group(1), 0), (group(2), 0)]).await;
    reader.read_to(&group(1), first).await;

    let waiting = Waiting::begin(&primary).await;
    let mut publisher = backend.publisher();
    let envelopes = messages(1, [2]);
    let publishing =
        tokio::spawn(async move { publisher.publish(PublishRequest { envelopes }).await });
    // The commit is in the log, so the replica has it; the primary shows it to nobody.
    eventually("the replica shows the commit", async || {
        (newest(&backend, &group(1)).await.expect("answered") > first).then_some(())
    })
    .await;
    let forked = newest(&backend, &group(1)).await.expect("answered");
    let on_primary: Vec<u64> = backend
        .read(&group(1))
        .await
        .iter()
        .map(sequence_id)
        .collect();
    assert_eq!(on_primary, [first]);
    pair.pause().await;
    let other = HeldId::new(&backend.database).await;
    let id = other.id.cast_unsigned();
    other.commit(&group(2), &messages(2, [1])[0]).await;
    // The fork: each shows what the other one does not.
    assert_eq!(backend.read(&group(1)).await.len(), 1);
    assert_eq!(backend.read(&group(2)).await.len(), 1);
    assert_eq!(newest(&backend, &group(1)).await.expect("answered"), forked);
    assert_eq!(newest(&backend, &group(2)).await.expect("answered"), 0);
    reader.read_to(&group(1), forked).await;
    assert!(forked < id && reader.ids(&group(2)).is_empty());
    // The boundary is ahead of no row on either: who waits to be shown still holds the barrier.
    let mut standby = pair.connect(&backend.database).await;
    let there = "SELECT closed_sequence_id FROM allocation_boundary";
    let there: i64 = sqlx::query_scalar(there)
        .fetch_one(&mut standby)
        .await
        .expect("a boundary");
    assert!(there.cast_unsigned() < forked);
    assert!(boundary(&backend.database).await.cast_unsigned() < forked);
    // Nor does a later publish to the topic get before it.
    let mut late = backend.publisher();
    let envelopes = messages(1, [3]);
    let later = tokio::spawn(async move { late.publish(PublishRequest { envelopes }).await });

    pair.resume().await;
    reader.read_to(&group(2), id).await;
    assert_eq!(reader.ids(&group(1)), [first, forked]);
    waiting.end(&primary).await;
    let mut ids = vec![first];
    for publish in [publishing, later] {
        let metas = publish
            .await
            .expect("no panic")
            .expect("accepted")
            .into_inner();
        ids.extend(metas.envelope_metas.iter().map(meta_id));
    }
    assert_eq!(ids[1], forked);
    reader.read_to(&group(1), ids[2]).await;
    assert_eq!(reader.ids(&group(1)), ids);
    shows(&backend, &group(1), ids[2]).await;
    drop(reader);
    backend.stop().await;
}

/// Commits of a primary that wait for a standby that does not exist.
struct Waiting(tokio::task::JoinHandle<()>);

impl Waiting {
    /// Begins it, and makes sure of it: the server's processes hear of a setting one after the other.
    async fn begin(primary: &PostgresServer) -> Self {
        let named = [
            "ALTER SYSTEM SET synchronous_standby_names = 'nobody'",
            "SELECT pg_reload_conf()",
        ];
        primary.execute(&named).await;
        let mut probe = primary.connect("postgres").await;
        let mut witness = primary.connect("postgres").await;
        probe
            .execute("SET application_name = 'probe'")
            .await
            .expect("set");
        let probing = tokio::spawn(async move {
            while probe
                .execute("SELECT pg_logical_emit_message(true, 'commit', '')")
                .await
                .is_ok()
            {}
            // Ended by the server with the test.
            let _ = probe.close().await;
        });
        eventually("a commit waits", async || {
            let waits = sqlx::query_scalar(
                "SELECT EXISTS (SELECT FROM pg_stat_activity
                                WHERE application_name = 'probe' AND wait_event = 'SyncRep')",
            );
            let waits: bool = waits
                .fetch_one(&mut witness)
                .await
                .expect("sessions can be read");
            waits.then_some(())
        })
        .await;
        Self(probing)
    }

    async fn end(self, primary: &PostgresServer) {
        self.0.abort();
        let none = [
            "ALTER SYSTEM RESET synchronous_standby_names",
            "SELECT pg_reload_conf()",
        ];
        primary.execute(&none).await;
    }
}
