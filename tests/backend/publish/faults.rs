//! Databases that are slow, gone or not what they were (section 5.6 of the API contract).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::FutureExt;
use futures::future::{join, join_all};
use tokio::time::Instant;
use tonic::{Code, Status};
use xmtp_protocol::TopicKind;
use xmtp_protocol::client::PublishServiceClient;
use xmtp_protocol::proto::grpc::health::v1::HealthCheckRequest;
use xmtp_protocol::proto::grpc::health::v1::health_check_response::ServingStatus;
use xmtp_protocol::proto::xmtp::backend::v1::{
    QueryRequest, SubscribeStaticRequest, subscribe_static_response::Response,
};
use xmtp_test_support::eventually;
use xmtp_test_support::payloads::{group_message, identity_update, topic};

use super::{failed, request, stored};
use crate::harness::{Backend, query, within};
use crate::storage::{Stranger, no_publish_locks};

#[tokio::test]
async fn arc_051_a_publish_that_waits_too_long_is_timed_out_and_leaves_no_lock() {
    let backend = Backend::with("database.max_statement_timeout_ms = 2000").await;
    let group = topic(TopicKind::GroupMessage, 1);
    let stranger = Stranger::on_topic(&backend.database, &group).await;
    failed(
        backend.try_publish([group_message(1, "a")]).await,
        Code::DeadlineExceeded,
    );
    // Other topics are not concerned.
    backend.publish([group_message(2, "b")]).await;
    stranger.commit().await;
    no_publish_locks(&backend.database).await;
    backend.publish([group_message(1, "a")]).await;
    stored(&backend, 2, 2).await;
}

#[tokio::test]
async fn s16_a_hot_topic_starves_nobody_for_longer_than_the_publish_limit() {
    const LIMIT: Duration = Duration::from_millis(600);
    /// For a busy machine.
    const MARGIN: Duration = Duration::from_secs(4);
    let backend = Backend::with(
        "database.max_connections = 4\n\
         database.max_statement_timeout_ms = 300\n\
         publishing.max_publish_duration_ms = 600",
    )
    .await;
    let (hot, cold) = (
        topic(TopicKind::GroupMessage, 1),
        topic(TopicKind::GroupMessage, 2),
    );
    let subscription = SubscribeStaticRequest {
        topics: vec![query(&hot, 0)],
    };
    let mut stream = backend
        .subscriptions()
        .subscribe_static(subscription)
        .await
        .expect("admitted")
        .into_inner();
    let _frozen = Stranger::on_topic(&backend.database, &hot)
        .await
        .bounded(1500)
        .await;

    let timed = |call: futures::future::BoxFuture<'static, Result<(), Status>>| async move {
        let start = Instant::now();
        let outcome = call.await;
        (start.elapsed(), outcome)
    };
    let calls = (0..16u8).map(|number| {
        let (mut publisher, mut queries) = (backend.publisher(), backend.queries());
        let page = QueryRequest {
            queries: vec![query(&cold, 0)],
            limit: 0,
        };
        timed(match number % 4 {
            0 => async move { queries.query(page).await.map(drop) }.boxed(),
            1 => async move {
                let envelopes = request([group_message(2, [number])]);
                publisher.publish(envelopes).await.map(drop)
            }
            .boxed(),
            _ => async move {
                let envelopes = request([group_message(1, [number])]);
                publisher.publish(envelopes).await.map(drop)
            }
            .boxed(),
        })
    });
    let mut health = backend.health();
    let check = health.check(HealthCheckRequest::default());
    let (outcomes, check) = join(join_all(calls), check).await;
    assert_eq!(
        check.expect("health answers").into_inner().status(),
        ServingStatus::Serving
    );
    for (elapsed, outcome) in outcomes {
        assert!(elapsed < LIMIT + MARGIN, "{elapsed:?}");
        if let Err(status) = outcome {
            assert!(
                matches!(status.code(), Code::DeadlineExceeded | Code::Unavailable),
                "{status:?}"
            );
        }
    }

    // The database ends the frozen transaction; service is as it was, the stream too.
    eventually("the topic takes publishes again", async || {
        backend.try_publish([group_message(1, "later")]).await.ok()
    })
    .await;
    let delivered = async {
        loop {
            let frame = stream.message().await.expect("healthy").expect("open");
            if let Some(Response::Messages(messages)) = frame.response {
                return messages.envelopes;
            }
        }
    };
    assert!(!within(delivered).await.is_empty());
}

#[tokio::test]
async fn s15_a_primary_that_stops_taking_writes_is_unavailable_and_comes_back() {
    let backend = Backend::start().await;
    backend.publish([group_message(1, "before")]).await;
    // New sessions come to a server that only reads, as after a failover. They stay open.
    backend
        .database
        .execute(
            "DO $$ BEGIN
                 EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on',
                                current_database());
             END $$",
        )
        .await;
    backend.database.kill_sessions("xmtp-backend").await;
    let read_only = eventually("the pool reaches the reading server", async || {
        let status = backend
            .try_publish([group_message(1, "during")])
            .await
            .expect_err("nothing can be stored");
        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
        let pages = join_all((0..8).map(|_| async {
            let page = QueryRequest {
                queries: vec![query(&topic(TopicKind::GroupMessage, 1), 0)],
                limit: 0,
            };
            backend.queries().query(page).await.is_ok()
        }))
        .await;
        pages.into_iter().all(|read| read).then_some(())
    });
    read_only.await;
    failed(
        backend.try_publish([identity_update(1, 1)]).await,
        Code::Unavailable,
    );
    backend
        .database
        .execute(
            "BEGIN READ WRITE;
             DO $$ BEGIN
                 EXECUTE format('ALTER DATABASE %I RESET default_transaction_read_only',
                                current_database());
             END $$;
             COMMIT",
        )
        .await;
    eventually("publishes are taken again", async || {
        match backend.try_publish([group_message(1, "after")]).await {
            Ok(_) => Some(()),
            Err(status) => {
                assert_eq!(status.code(), Code::Unavailable, "{status:?}");
                None
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_lost_connection_is_unavailable_and_the_next_one_serves() {
    let backend = Backend::start().await;
    backend.publish([group_message(1, "before")]).await;
    backend.database.kill_sessions("xmtp-backend").await;
    eventually("publishes are taken again", async || {
        match backend.try_publish([group_message(1, "after")]).await {
            Ok(_) => Some(()),
            Err(status) => {
                assert_eq!(status.code(), Code::Unavailable, "{status:?}");
                None
            }
        }
    })
    .await;
}

#[tokio::test]
async fn ops_020_an_expiry_that_does_not_fit_is_internal_and_stores_nothing() {
    let backend = Backend::start().await;
    // The longest period that the clock leaves room for, but for a second or two.
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    let longest = Duration::from_nanos(i64::MAX.unsigned_abs())
        .checked_sub(now + Duration::from_secs(1))
        .expect("there is room");
    let (_other, channel) = backend
        .another(&format!(
            "retention.welcome_seconds = {}",
            longest.as_secs()
        ))
        .await;
    let publish = async |number: u64| {
        let envelopes = [
            group_message(1, number.to_be_bytes()),
            xmtp_test_support::payloads::welcome(1, number.to_be_bytes()),
        ];
        PublishServiceClient::new(channel.clone())
            .publish(request(envelopes))
            .await
    };
    let mut accepted = 0;
    let refused = eventually("time runs past the room", async || {
        match publish(accepted).await {
            Ok(_) => {
                accepted += 1;
                None
            }
            Err(status) => Some(status),
        }
    })
    .await;
    failed::<()>(Err(refused), Code::Internal);
    let rows = i64::try_from(accepted).expect("few") * 2;
    assert_eq!(backend.count("envelopes").await, rows);
    // What is not kept for that long is stored.
    PublishServiceClient::new(channel.clone())
        .publish(request([group_message(1, "last")]))
        .await
        .expect("stored");
}
