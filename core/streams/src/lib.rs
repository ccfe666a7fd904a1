//! Live delivery: a stream hands out every visible row of its topics, in order, once, or it ends with
//! the reason why not.
//!
//! One `tailer` an instance reads new rows from the read database and hands them to the `registry`,
//! which knows the streams interested in each topic. Each stream has one owner task, its `session`,
//! which alone decides what goes into the stream's bounded `output`. History comes from range reads
//! that take turns; a topic that has caught up switches to the tailer's rows.
//!
//! What a stream owes is decided by one rule: each registration has a floor, raised when a row is
//! admitted to the output, and every path drops rows at or below it (ARC-075).
//!
//! This crate knows the store and not the transport: [`ClientFrame`]s come in, [`Frame`]s and one
//! [`End`] go out.

mod boundary;
mod end;
mod feed;
mod frame;
mod gaps;
mod metrics;
mod output;
mod pace;
mod port;
mod registry;
mod session;
mod settings;
mod tailer;

use std::num::NonZeroU32;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::Stream;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;
use xmtp_protocol::Topic;
use xmtp_store::{Primary, Reads, StoreError};

pub use end::End;
pub use frame::{ClientFrame, Frame, Interest, Target, Update};
pub use metrics::{FAMILIES, OPERATIONS};
pub use output::OutputStream;
pub use settings::{Limits, Rate, Settings};

use metrics::FetchWait;
use pace::Pace;
use registry::Registry;
use session::Session;

/// The streams of one instance. Cheap to clone.
#[derive(Clone)]
pub struct Streams {
    shared: Arc<Shared>,
    tasks: TaskTracker,
}

/// What every session uses.
struct Shared {
    registry: Registry,
    reads: Reads,
    settings: Settings,
    /// Bounds how many reads of streams occupy the pool at once.
    fetch_permits: Arc<Semaphore>,
    /// Bounds how much of the processors work on many topics takes.
    pace: Pace,
    /// Rows were committed here that a stream waits for: one bit.
    committed: Notify,
}

impl Shared {
    /// Waits for a permit, and reads. A read that has begun goes on in a task of its own though nobody wait for
    /// it any more: so it keeps its permit for as long as it has its connection, which then returns to the pool.
    async fn read<T, R>(&self, read: R) -> Result<T, StoreError>
    where
        T: Send + 'static,
        R: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let waiting = FetchWait::begin();
        let permit = Arc::clone(&self.fetch_permits).acquire_owned().await;
        drop(waiting);
        let read = tokio::spawn(async move {
            let read = read.await;
            drop(permit);
            read
        });
        match read.await.map_err(JoinError::try_into_panic) {
            Ok(read) => read,
            Err(Ok(panic)) => resume_unwind(panic),
            // The runtime shuts down, and takes whoever waits as well.
            Err(Err(_)) => std::future::pending().await,
        }
    }
}

impl Streams {
    /// Starts the boundary task and the tailer, and returns once streams can be admitted (ARC-041).
    /// Everything stops when `shutdown` is cancelled: streams end with [`End::Shutdown`]. `established` is
    /// called once the boundary stands, before the read database shows it.
    ///
    /// # Errors
    /// [`StoreError`] when one of the databases cannot be used before the boundary stands. Later failures restart
    /// recovery.
    pub async fn start(
        primary: Primary,
        reads: Reads,
        settings: Settings,
        shutdown: CancellationToken,
        established: impl FnOnce(),
    ) -> Result<Self, StoreError> {
        let fetch_permits = usize::try_from(settings.fetch_permits.get()).unwrap_or(usize::MAX);
        let tasks = TaskTracker::new();
        let shared = Arc::new(Shared {
            registry: Registry::new(),
            reads,
            fetch_permits: Arc::new(Semaphore::new(fetch_permits.min(Semaphore::MAX_PERMITS))),
            pace: Pace::new(),
            committed: Notify::new(),
            settings,
        });
        let (boundary, maintenance) = boundary::Boundary::new(
            primary,
            shared.settings.max_barrier_wait,
            shared.settings.poll_interval,
        );
        let recovery = tailer::Recovery::new(Arc::clone(&shared), boundary);
        let first = recovery.begin(established).await?;
        shared.registry.admit();
        tasks.spawn(maintenance.run(shutdown.clone()));
        tasks.spawn(recovery.run(first, shutdown));
        Ok(Self { shared, tasks })
    }

    /// Says that rows of `topics` have just been committed on this instance. If a stream waits for one of
    /// them the tailer looks at once (contract decisions, 6). Only a hint: every row is found without it, at
    /// the next interval. Never waits. Where a replica is read it says nothing: a commit is there only after it
    /// was answered here, and the poll would come too early.
    pub fn committed<'a>(&self, topics: impl IntoIterator<Item = &'a Topic>) {
        let shared = &self.shared;
        if shared.settings.wake_on_commit
            && shared.reads.are_of_primary()
            && shared.registry.is_any_wanted(topics)
        {
            shared.committed.notify_one();
        }
    }

    /// Whether streams are refused until recovery is done (OPS-006).
    pub fn is_recovering(&self) -> bool {
        self.shared.registry.is_refusing()
    }

    /// What clients are held to.
    pub fn limits(&self) -> &Limits {
        &self.shared.settings.limits
    }

    /// Opens a bidirectional stream. `inbound` ends when the client half-closes; what is logged of the stream
    /// names `request_id`.
    ///
    /// # Errors
    /// [`End::Tailer`] while recovery runs (OPS-006), [`End::Shutdown`] afterwards.
    pub fn subscribe(
        &self,
        request_id: Uuid,
        inbound: impl Stream<Item = Result<ClientFrame, End>> + Send + 'static,
    ) -> Result<OutputStream, End> {
        let (session, output) = Session::open(
            Arc::clone(&self.shared),
            session::Kind::Bidirectional,
            request_id,
        )?;
        self.tasks
            .spawn(session.run_bidirectional(Box::pin(inbound)));
        Ok(output)
    }

    /// Opens a static stream over `topics`, which is checked first (API-260). What is logged of the stream names
    /// `request_id`.
    ///
    /// # Errors
    /// [`End::Invalid`] for a bad request, [`End::Tailer`] while recovery runs, [`End::Shutdown`].
    pub fn subscribe_static(
        &self,
        request_id: Uuid,
        topics: &[Interest],
    ) -> Result<OutputStream, End> {
        let positions = session::update::check_static(topics, &self.shared.settings.limits)?;
        let (session, output) =
            Session::open(Arc::clone(&self.shared), session::Kind::Static, request_id)?;
        self.tasks.spawn(session.run_static(positions));
        Ok(output)
    }

    /// Waits until every stream and both tasks have ended; only after the shutdown token was cancelled.
    pub async fn stopped(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// How many catch-up reads may run at once beside other requests: half the pool, at least one.
pub fn fetch_permits(max_connections: u32) -> NonZeroU32 {
    NonZeroU32::new(max_connections / 2).unwrap_or(NonZeroU32::MIN)
}

/// Nothing that runs under this crate's locks can leave them half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Entries up to which a collection keeps the room of what has left it.
const SMALL: usize = 1024;

/// Whether a crowd has left: what it took is then given back, in time that its leaving pays for.
const fn is_roomy(len: usize, capacity: usize) -> bool {
    capacity > SMALL && len < capacity / 4
}
