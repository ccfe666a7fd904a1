//! A server that is killed under load has kept what it acknowledged, once (spec 002, section 4).

use std::collections::HashMap;
use std::net::SocketAddr;

use futures::future::join_all;
use prost::Message;
use sqlx::Row;
use tokio::sync::watch;
use tokio::time::timeout;
use xmtp_protocol::client::PublishServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::{ClientEnvelope, EnvelopeMeta, PublishRequest};
use xmtp_test_support::payloads::{group_message, welcome};
use xmtp_test_support::{PATIENCE, TestDatabase};

use crate::harness::{connect, meta_id};
use crate::process::Process;

/// How often the server is killed.
const ROUNDS: usize = 5;
/// Clients at once.
const PUBLISHERS: usize = 6;
/// Groups that they share.
const GROUPS: [u8; 3] = [0, 1, 2];
/// Requests of a round that are acknowledged when the server is killed; others are on their way.
const ACKNOWLEDGED: usize = 60;

/// A request, and what the server said to it; `None` where it was killed first.
struct Sent {
    envelopes: Vec<ClientEnvelope>,
    acknowledged: Option<Vec<EnvelopeMeta>>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn api_211_killed_under_load_nothing_acknowledged_is_missing_and_nothing_is_twice() {
    let database = TestDatabase::create().await;
    let mut server = Process::serve(&database, "").await;
    let mut sent: Vec<Sent> = Vec::new();
    let mut interrupted = 0;
    for round in 0..ROUNDS {
        let (count, mut counted) = watch::channel(0);
        let publishers = join_all(
            (0..PUBLISHERS).map(|publisher| publish(server.address, round, publisher, &count)),
        );
        let kill = async {
            timeout(PATIENCE, counted.wait_for(|count| *count >= ACKNOWLEDGED))
                .await
                .expect("requests are acknowledged")
                .expect("publishers run until the server is killed");
            server.kill().await;
        };
        let (of_round, ()) = tokio::join!(publishers, kill);
        sent.extend(of_round.into_iter().flatten());
        interrupted += sent.iter().filter(|it| it.acknowledged.is_none()).count();

        server = Process::serve(&database, "").await;
        check_stored(&database, &sent).await;
        resend(&server, &mut sent).await;
        check_stored(&database, &sent).await;
    }
    assert!(interrupted > 0, "no kill interrupted a request");
}

/// Publishes one request after the other until the server is gone.
async fn publish(
    address: SocketAddr,
    round: usize,
    publisher: usize,
    count: &watch::Sender<usize>,
) -> Vec<Sent> {
    let mut client = PublishServiceClient::new(connect(address).await);
    let mut sent = Vec::new();
    for number in 0.. {
        let group = GROUPS[(publisher + number) % GROUPS.len()];
        let name = format!("{round} {publisher} {number}");
        let envelopes = vec![
            // Every publisher sends this one.
            group_message(0, format!("{round} {number}")),
            group_message(group, format!("{name} a")),
            welcome(group, format!("{name} b")),
        ];
        let request = PublishRequest {
            envelopes: envelopes.clone(),
        };
        let acknowledged = client.publish(request).await.ok();
        let killed = acknowledged.is_none();
        sent.push(Sent {
            envelopes,
            acknowledged: acknowledged.map(|answer| answer.into_inner().envelope_metas),
        });
        if killed {
            break;
        }
        count.send_modify(|count| *count += 1);
    }
    sent
}

/// Compares what was acknowledged with the tables.
async fn check_stored(database: &TestDatabase, sent: &[Sent]) {
    let mut connection = database.connect().await;
    let mut rows: HashMap<Vec<u8>, u64> = HashMap::new();
    for row in sqlx::query("SELECT payload, sequence_id FROM envelopes")
        .fetch_all(&mut connection)
        .await
        .expect("rows can be read")
    {
        let before = rows.insert(row.get(0), row.get::<i64, _>(1).cast_unsigned());
        assert_eq!(before, None, "an envelope is stored twice");
    }
    let stored = |envelope: &ClientEnvelope| rows.get(&envelope.encode_to_vec()).copied();
    for request in sent {
        let found: Vec<Option<u64>> = request.envelopes.iter().map(stored).collect();
        if let Some(metas) = &request.acknowledged {
            let ids: Vec<_> = metas.iter().map(|meta| Some(meta_id(meta))).collect();
            assert_eq!(found, ids, "an acknowledged request is missing");
        } else {
            // The first one is every publisher's.
            assert_eq!(
                found[1].is_some(),
                found[2].is_some(),
                "a request is stored in part"
            );
        }
    }
    let astray: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM (SELECT topic, max(sequence_id) AS head FROM envelopes GROUP BY topic) \
         AS heads FULL JOIN topic_watermark USING (topic) WHERE head IS DISTINCT FROM last_sequence_id",
    )
    .fetch_one(&mut connection)
    .await
    .expect("watermarks can be read");
    assert_eq!(astray, 0, "a watermark is not the head of its topic");
}

/// Sends everything again, as clients do after a failure: what was acknowledged is answered as before.
async fn resend(server: &Process, sent: &mut [Sent]) {
    let mut client = PublishServiceClient::new(connect(server.address).await);
    for request in sent {
        let again = PublishRequest {
            envelopes: request.envelopes.clone(),
        };
        let answer = client.publish(again).await.expect("the server is back");
        let metas = answer.into_inner().envelope_metas;
        assert_eq!(metas.len(), request.envelopes.len());
        let before = request.acknowledged.replace(metas);
        assert!(
            before.is_none() || before == request.acknowledged,
            "a duplicate is answered with other metadata"
        );
    }
}
