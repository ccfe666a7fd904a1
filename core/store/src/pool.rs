//! Pooled connections, and how one returns to its pool (ARC-060).

use std::fmt::{Debug, Formatter};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::{self, Metrics, Object, PoolError, QueueMode, RecycleError, RecycleResult};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use crate::StoreError;
use crate::answers::{Answers, NETWORK_MARGIN};
use crate::metrics::RELEASED_OPEN_TRANSACTIONS;
use crate::standby::{Incarnation, Standby};

/// A connection that has rested for this long is asked whether it lives before it is used. For one in
/// steady use a round trip each time would be too dear: its death shows in its next statement.
const RESTED: Duration = Duration::from_secs(1);

/// Age at which a connection is replaced when it is next asked for, so that a server process in use gives
/// back what it has cached and a moved database is found again.
const MAX_AGE: Duration = Duration::from_mins(30);

/// Connections to one database, opened when they are needed. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Pool {
    connections: managed::Pool<Manager>,
    /// Bound of every statement, and of the wait for a connection.
    statement_timeout: Duration,
}

impl Pool {
    /// At most `max_connections` at once; whoever wants one more waits for at most `statement_timeout`. All of
    /// them lead to `standby`, where there is one.
    pub(crate) fn new(
        options: PgConnectOptions,
        max_connections: u32,
        statement_timeout: Duration,
        standby: Option<Arc<Standby>>,
    ) -> Self {
        let connections = managed::Pool::builder(Manager { options, standby })
            .max_size(usize::try_from(max_connections).unwrap_or(usize::MAX))
            // The one used last has its server process still in the caches.
            .queue_mode(QueueMode::Lifo)
            .build()
            .expect("a pool without timeouts of its own needs no runtime");
        Self {
            connections,
            statement_timeout,
        }
    }

    /// Takes a connection.
    pub(crate) async fn acquire(&self) -> Result<Lease, StoreError> {
        let connection = timeout(self.statement_timeout, self.connections.get())
            .await
            .map_err(|_| StoreError::pool_timeout())??;
        Ok(Lease {
            connection: Some(connection),
            answers: Answers::new(self.statement_timeout),
            in_transaction: false,
        })
    }

    /// Closes every connection: those in use when they are let go.
    pub(crate) fn close(&self) {
        self.connections.close();
    }
}

impl Debug for Pool {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

/// Opens connections, and looks at those that are to be used again.
struct Manager {
    options: PgConnectOptions,
    /// `None` where they lead to the primary.
    standby: Option<Arc<Standby>>,
}

/// A connection, and where it leads.
struct Pooled {
    connection: PgConnection,
    /// The standby, and when it was asked last. `None` for the primary.
    server: Option<(Incarnation, Instant)>,
}

impl managed::Manager for Manager {
    type Type = Pooled;
    type Error = StoreError;

    async fn create(&self) -> Result<Pooled, StoreError> {
        let mut connection = PgConnection::connect_with(&self.options).await?;
        let server = match &self.standby {
            Some(standby) => Some((standby.admit(&mut connection).await?, Instant::now())),
            None => None,
        };
        Ok(Pooled { connection, server })
    }

    async fn recycle(&self, pooled: &mut Pooled, metrics: &Metrics) -> RecycleResult<StoreError> {
        if metrics.age() > MAX_AGE {
            return Err(RecycleError::message("old"));
        }
        let Pooled { connection, server } = pooled;
        // Another one is taken in time where this one's network has forgotten it.
        let silent = |_| RecycleError::message("silent");
        if let (Some(standby), Some((server, asked))) = (&self.standby, server) {
            if standby.is_left(*server) {
                return Err(RecycleError::message("of another server"));
            }
            // A busy one too: a promoted server keeps its sessions.
            if asked.elapsed() > RESTED {
                let confirmed = standby.confirm(connection, *server);
                timeout(NETWORK_MARGIN, confirmed).await.map_err(silent)??;
                *asked = Instant::now();
            }
        } else if metrics.last_used() > RESTED {
            let answered = timeout(NETWORK_MARGIN, connection.ping()).await;
            answered.map_err(silent)?.map_err(StoreError::from)?;
        }
        Ok(())
    }
}

impl From<PoolError<Self>> for StoreError {
    fn from(error: PoolError<Self>) -> Self {
        match error {
            PoolError::Backend(error) => error,
            PoolError::Closed => Self::pool_closed(),
            PoolError::Timeout(_)
            | PoolError::NoRuntimeSpecified
            | PoolError::PostCreateHook(_) => Self::pool_timeout(),
        }
    }
}

/// A pooled connection that returns to its pool only when its holder says that its work is done.
///
/// A cancelled future is dropped at any await point: its connection may then be inside a transaction, or
/// wait for a lock, or owe an answer that nobody will read. Closing it makes PostgreSQL roll back without
/// a further statement of ours, and nobody else ever gets it. So a return costs no round trip.
///
/// A small read that nobody waits for any more is the exception, since clients that come and go would else cost a
/// server process each time: its connection counts as in use until the answer is there, and then returns.
pub(crate) struct Lease {
    connection: Option<Object<Manager>>,
    answers: Answers,
    /// From before `BEGIN` is sent until the end of the transaction is answered.
    in_transaction: bool,
}

impl Lease {
    /// What every statement's answer is awaited with.
    pub(crate) fn answers(&self) -> Answers {
        self.answers.clone()
    }

    /// Begins a transaction with `sql`, which starts with `BEGIN` and holds nothing of a caller's.
    pub(crate) async fn begin(&mut self, sql: String) -> Result<(), StoreError> {
        self.in_transaction = true;
        let answers = self.answers();
        let begin = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut **self);
        answers.wait(begin).await?;
        Ok(())
    }

    /// Commits, and gives the connection back.
    pub(crate) async fn commit(self) -> Result<(), StoreError> {
        self.end("COMMIT").await
    }

    /// Rolls back, and gives the connection back.
    pub(crate) async fn rollback(self) -> Result<(), StoreError> {
        self.end("ROLLBACK").await
    }

    async fn end(mut self, sql: &'static str) -> Result<(), StoreError> {
        let answers = self.answers();
        let end = sqlx::raw_sql(sql).execute(&mut *self);
        answers.wait(end).await?;
        self.in_transaction = false;
        self.release();
        Ok(())
    }

    /// Gives the connection back to its pool, unless it is inside a transaction: that is a fault of this program,
    /// which is counted, unlike a transaction whose client has gone.
    pub(crate) fn release(mut self) {
        if self.in_transaction {
            RELEASED_OPEN_TRANSACTIONS.count(&[], 1);
        } else if let Some(mut pooled) = self.connection.take() {
            // A statement with 100,000 parameters would else keep its megabytes for as long as this lives.
            pooled.connection.shrink_buffers();
        }
    }
}

impl Deref for Lease {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        let pooled = self.connection.as_deref();
        &pooled
            .expect("a lease holds its connection until it is consumed")
            .connection
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut PgConnection {
        let pooled = self.connection.as_deref_mut();
        &mut pooled
            .expect("a lease holds its connection until it is consumed")
            .connection
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        if !self.in_transaction
            && self.answers.are_owed()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(give_back_answered(connection, self.answers()));
            return;
        }
        drop(Object::take(connection));
    }
}

/// Reads the answer that nobody waits for, and gives the connection back, unless the answer is an error: that
/// may be the connection's own.
async fn give_back_answered(mut pooled: Object<Manager>, answers: Answers) {
    match answers.wait(pooled.connection.ping()).await {
        Ok(()) => pooled.connection.shrink_buffers(),
        Err(_) => drop(Object::take(pooled)),
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
    use sqlx::Row;
    use xmtp_test_support::{TestDatabase, eventually};

    use super::*;

    /// A pool of one, so that whoever comes next gets the connection that was let go.
    fn pool_of_one(database: &TestDatabase) -> Pool {
        Pool::new(database.options(), 1, Duration::from_secs(20), None)
    }

    /// The server process behind the next connection, and whether it is inside a transaction.
    async fn session(pool: &Pool) -> (i32, bool) {
        let mut lease = pool.acquire().await.unwrap();
        let process = process(&mut lease).await;
        let open = sqlx::raw_sql("SELECT transaction_timestamp() < statement_timestamp()");
        let open = open.fetch_one(&mut *lease).await.unwrap().get(0);
        lease.release();
        (process, open)
    }

    async fn process(connection: &mut PgConnection) -> i32 {
        let process = sqlx::query_scalar("SELECT pg_backend_pid()");
        process.fetch_one(connection).await.unwrap()
    }

    async fn until_gone(database: &TestDatabase, process: i32) {
        let mut witness = database.connect().await;
        eventually("the session is gone", async || {
            sqlx::query_scalar::<_, bool>(
                "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)",
            )
            .bind(process)
            .fetch_one(&mut witness)
            .await
            .unwrap()
            .then_some(())
        })
        .await;
    }

    fn rolled_back(snapshotter: &Snapshotter) -> u64 {
        snapshotter
            .snapshot()
            .into_vec()
            .into_iter()
            .filter(|(key, ..)| key.key().name() == RELEASED_OPEN_TRANSACTIONS.name())
            .map(|(.., value)| match value {
                DebugValue::Counter(count) => count,
                _ => panic!("it is a counter"),
            })
            .sum()
    }

    // The recorder is this thread's, and the runtime runs every task on it.
    #[tokio::test]
    async fn arc_060_a_begin_dropped_unanswered_is_rolled_back_and_is_no_leak() {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        let _recording = metrics::set_default_local_recorder(&recorder);
        let database = TestDatabase::create().await;
        let pool = pool_of_one(&database);
        let (process, _) = session(&pool).await;
        let mut lease = pool.acquire().await.unwrap();
        {
            // Slow, so that it cannot be answered within the one poll.
            let begin = lease.begin("BEGIN; SELECT pg_sleep(0.1)".to_owned());
            assert!(begin.now_or_never().is_none());
        }
        drop(lease);
        let (next, open) = session(&pool).await;
        assert!(next != process && !open);
        until_gone(&database, process).await;
        assert_eq!(rolled_back(&snapshotter), 0);
    }

    #[tokio::test]
    async fn arc_060_a_read_dropped_unanswered_leaves_its_connection_to_the_next() {
        let database = TestDatabase::create().await;
        let pool = pool_of_one(&database);
        let (process, _) = session(&pool).await;
        for _ in 0..3 {
            let mut lease = pool.acquire().await.unwrap();
            {
                let answers = lease.answers();
                let read = sqlx::raw_sql("SELECT repeat('x', 100000), pg_sleep(0.05)");
                let answer = answers.wait(read.fetch_all(&mut *lease));
                assert!(answer.now_or_never().is_none());
            }
            drop(lease);
            assert_eq!(session(&pool).await, (process, false));
        }
    }

    #[tokio::test]
    async fn arc_060_a_read_may_be_dropped_at_any_point_of_its_protocol() {
        let database = TestDatabase::create().await;
        let pool = pool_of_one(&database);
        let (process, _) = session(&pool).await;
        for microseconds in (0..4_000).step_by(100) {
            let mut lease = pool.acquire().await.unwrap();
            let answers = lease.answers();
            // Prepared first, each with a text of its own, then bound and executed.
            let text = format!("SELECT $1::bigint, repeat('x', {microseconds})");
            let read = sqlx::query(AssertSqlSafe(text)).bind(1_i64);
            let read = answers.wait(read.fetch_all(&mut *lease));
            let read = timeout(Duration::from_micros(microseconds), read).await;
            if read.is_ok() {
                lease.release();
            } else {
                drop(lease);
            }
            assert_eq!(session(&pool).await, (process, false), "{microseconds}");
        }
    }

    #[tokio::test]
    async fn arc_060_what_does_not_answer_is_not_given_back() {
        let database = TestDatabase::create().await;
        let statement_timeout = Duration::from_secs(2);
        let pool = Pool::new(database.options(), 1, statement_timeout, None);
        let (process, _) = session(&pool).await;
        let mut lease = pool.acquire().await.unwrap();
        {
            let answers = lease.answers();
            let read = sqlx::raw_sql("SELECT pg_sleep(1000)");
            assert!(
                answers
                    .wait(read.execute(&mut *lease))
                    .now_or_never()
                    .is_none()
            );
        }
        drop(lease);
        let (next, _) = eventually("there is another connection", async || {
            let lease = pool.acquire().await.ok()?;
            lease.release();
            Some(session(&pool).await)
        })
        .await;
        assert_ne!(next, process);
    }

    #[tokio::test]
    async fn arc_060_an_open_transaction_is_never_given_back() {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        let _recording = metrics::set_default_local_recorder(&recorder);
        let database = TestDatabase::create().await;
        let pool = pool_of_one(&database);
        let mut lease = pool.acquire().await.unwrap();
        let process = process(&mut lease).await;
        lease.begin("BEGIN".to_owned()).await.unwrap();
        lease.release();
        let (next, open) = session(&pool).await;
        assert!(next != process && !open);
        until_gone(&database, process).await;
        assert_eq!(rolled_back(&snapshotter), 1);
    }

    #[tokio::test]
    async fn arc_060_an_ended_transaction_is_given_back_uncounted() {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        let _recording = metrics::set_default_local_recorder(&recorder);
        let database = TestDatabase::create().await;
        let pool = pool_of_one(&database);
        let (process, _) = session(&pool).await;
        for commit in [true, false].repeat(10) {
            let mut lease = pool.acquire().await.unwrap();
            lease.begin("BEGIN".to_owned()).await.unwrap();
            let ended = if commit {
                lease.commit().await
            } else {
                lease.rollback().await
            };
            ended.unwrap();
        }
        assert_eq!(session(&pool).await, (process, false));
        assert_eq!(rolled_back(&snapshotter), 0);
    }

    #[tokio::test]
    async fn arc_060_a_connection_with_an_aborted_transaction_is_discarded() {
        let database = TestDatabase::create().await;
        let pool = pool_of_one(&database);
        let mut lease = pool.acquire().await.unwrap();
        let process = process(&mut lease).await;
        let aborted = lease.begin("BEGIN; SELECT 1 / 0".to_owned()).await;
        assert!(aborted.is_err());
        lease.release();
        let (next, open) = session(&pool).await;
        assert!(next != process && !open);
        until_gone(&database, process).await;
    }

    #[tokio::test]
    async fn a_rested_connection_that_died_is_replaced_before_anybody_uses_it() {
        let database = TestDatabase::create().await;
        let pool = pool_of_one(&database);
        let (process, _) = session(&pool).await;
        sqlx::query("SELECT pg_terminate_backend($1)")
            .bind(process)
            .execute(&mut database.connect().await)
            .await
            .unwrap();
        until_gone(&database, process).await;
        tokio::time::sleep(RESTED).await;
        assert_ne!(session(&pool).await.0, process);
    }

    #[tokio::test]
    async fn a_closed_pool_refuses_and_closes_what_is_let_go() {
        let database = TestDatabase::create().await;
        let pool = pool_of_one(&database);
        let mut lease = pool.acquire().await.unwrap();
        let process = process(&mut lease).await;
        pool.close();
        let error = pool.acquire().await.map(Lease::release).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Connection);
        lease.release();
        until_gone(&database, process).await;
    }
}
