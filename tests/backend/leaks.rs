//! What no fault may leave behind: streams, registered topics, permits, tasks, connections and locks.

use std::mem;

use futures::future::join_all;
use metrics::{LocalRecorderGuard, set_default_local_recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use sqlx::{PgConnection, Row};
use tokio::runtime::{Builder, Handle, Runtime};
use xmtp_protocol::TopicKind;
use xmtp_protocol::client::SubscriptionServiceClient;
use xmtp_protocol::proto::grpc::health::v1::HealthCheckRequest;
use xmtp_protocol::proto::xmtp::backend::v1::SubscribeStaticRequest;
use xmtp_test_support::payloads::topic;
use xmtp_test_support::{TestDatabase, eventually};

use crate::harness::{Backend, query};
use crate::streams::LockedTable;

/// `database.max_connections` where nothing else is set.
pub(crate) const DEFAULT_CONNECTIONS: i64 = 20;

/// The metrics of one test. Threads keep them as long as they live, and so does this.
#[derive(Clone, Copy)]
pub(crate) struct Metrics(&'static PrometheusRecorder);

impl Metrics {
    pub(crate) fn new() -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        Self(Box::leak(Box::new(recorder)))
    }

    /// A runtime of several threads, all of which record here.
    pub(crate) fn runtime(self) -> Runtime {
        let recorder = self.0;
        Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .on_thread_start(move || mem::forget(set_default_local_recorder(recorder)))
            .build()
            .expect("a runtime can be built")
    }

    /// Has this thread record here, and so a runtime that is this thread alone.
    pub(crate) fn record(self) -> LocalRecorderGuard<'static> {
        set_default_local_recorder(self.0)
    }

    /// The sum of a family of whole numbers, or the value of one series.
    pub(crate) fn sum(self, family: &str) -> i64 {
        let text = self.0.handle().render();
        text.lines()
            .filter(|line| {
                line.strip_prefix(family)
                    .is_some_and(|rest| rest.starts_with(['{', ' ']))
            })
            .filter_map(|line| line.rsplit(' ').next())
            .map(|value| value.parse::<i64>().expect("a sample is a whole number"))
            .sum()
    }
}

/// How a backend was before anything happened to it.
pub(crate) struct Leaks {
    metrics: Metrics,
    tasks: usize,
    max_connections: i64,
    /// Of a runtime that is this thread alone.
    _recording: Option<LocalRecorderGuard<'static>>,
}

impl Leaks {
    /// Looks at a backend with the default pool that has no stream yet, on the runtime of one thread.
    pub(crate) async fn watch(backend: &Backend) -> Self {
        let metrics = Metrics::new();
        let recording = metrics.record();
        Self {
            _recording: Some(recording),
            ..Self::recorded(&metrics, backend, DEFAULT_CONNECTIONS).await
        }
    }

    /// Looks at a backend with a pool of `max_connections` on the runtime of `metrics`.
    pub(crate) async fn recorded(
        metrics: &Metrics,
        backend: &Backend,
        max_connections: i64,
    ) -> Self {
        // Once there was an answer, both sides have all the tasks of the connection.
        let answer = backend.health().check(HealthCheckRequest::default()).await;
        answer.expect("health answers");
        Self {
            metrics: *metrics,
            tasks: Handle::current().metrics().num_alive_tasks(),
            max_connections,
            _recording: None,
        }
    }

    /// Checks that everything is as it was, stops the backend, and checks that nothing is left of it.
    ///
    /// Every client of the test has to be gone, and every other instance.
    pub(crate) async fn none(self, backend: Backend) {
        self.permits_are_free(&backend).await;
        self.streams_are_gone().await;
        sessions_rest(&backend.database, 1, self.max_connections).await;
        let before = self.tasks;
        eventually("no task is left", async || {
            (Handle::current().metrics().num_alive_tasks() <= before).then_some(())
        })
        .await;
        let database = backend.stop().await;
        self.none_after_stop(&database).await;
    }

    /// Checks that nothing is left of a backend that has stopped.
    pub(crate) async fn none_after_stop(&self, database: &TestDatabase) {
        self.streams_are_gone().await;
        no_sessions(database).await;
    }

    async fn streams_are_gone(&self) {
        assert!(
            self.metrics.sum("xmtp_stream_ended_total") > 0,
            "no stream was recorded"
        );
        for gauge in [
            "xmtp_stream_sessions",
            "xmtp_stream_topics_registered",
            "xmtp_tailer_gap_ranges",
        ] {
            eventually(gauge, async || (self.metrics.sum(gauge) == 0).then_some(())).await;
        }
    }

    /// As many reads can be under way at once as there are permits: half as many as connections.
    async fn permits_are_free(&self, backend: &Backend) {
        let permits = self.max_connections / 2;
        let mut heads = LockedTable::new(&backend.database, "topic_watermark").await;
        let probes = (0..permits).map(|_| starts(backend));
        let release = async {
            heads.blocks(permits).await;
            heads.unlock().await;
        };
        tokio::join!(join_all(probes), release);
    }
}

/// Opens a stream that needs a read to start. A pooled connection that was lost shows it only when it is
/// used, so this tries again.
async fn starts(backend: &Backend) {
    let client = SubscriptionServiceClient::new(backend.connect().await);
    eventually("a stream starts", async || {
        let topics = vec![query(&topic(TopicKind::GroupMessage, u8::MAX), 0)];
        let request = SubscribeStaticRequest { topics };
        let mut frames = client
            .clone()
            .subscribe_static(request)
            .await
            .ok()?
            .into_inner();
        frames.message().await.ok()?
    })
    .await;
}

/// Waits until `instances` have one tailer each, no more pooled connections than allowed, and none of them
/// in a transaction or with a lock.
pub(crate) async fn sessions_rest(database: &TestDatabase, instances: i64, max_connections: i64) {
    let mut witness = database.connect().await;
    eventually("the connections are at rest", async || {
        let sessions = Sessions::look(&mut witness).await;
        let at_rest = sessions.tailers == instances
            && sessions.pooled <= instances * max_connections
            && sessions.busy == 0
            && sessions.locks == 0;
        at_rest.then_some(())
    })
    .await;
}

/// Waits until no backend has a connection.
pub(crate) async fn no_sessions(database: &TestDatabase) {
    let mut witness = database.connect().await;
    eventually("no connection is left", async || {
        let sessions = Sessions::look(&mut witness).await;
        (sessions.tailers + sessions.pooled == 0).then_some(())
    })
    .await;
}

/// What the database knows of its backends.
struct Sessions {
    tailers: i64,
    pooled: i64,
    busy: i64,
    locks: i64,
}

impl Sessions {
    async fn look(witness: &mut PgConnection) -> Self {
        let row = sqlx::query(
            "SELECT count(*) FILTER (WHERE application_name = 'xmtp-backend-tailer'),
                    count(*) FILTER (WHERE application_name = 'xmtp-backend'),
                    count(*) FILTER (WHERE application_name = 'xmtp-backend' AND state <> 'idle'),
                    (SELECT count(*) FROM pg_locks
                     WHERE locktype = 'advisory'
                       AND database = (SELECT oid FROM pg_database
                                       WHERE datname = current_database()))
             FROM pg_stat_activity WHERE datname = current_database()",
        )
        .fetch_one(witness)
        .await
        .expect("sessions can be counted");
        Self {
            tailers: row.get(0),
            pooled: row.get(1),
            busy: row.get(2),
            locks: row.get(3),
        }
    }
}
