//! The tailer: one reader of new rows an instance, and its recovery (ARC-070, ARC-071, ARC-041).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{Span, field};
use xmtp_protocol::SequenceId;
use xmtp_store::{GapRange, StoreError, Tail};
use xmtp_telemetry::{observed, operation};

use crate::boundary::Boundary;
use crate::gaps::Gaps;
use crate::settings::{POLL_BYTES, POLL_ROWS, WAKE_GAP};
use crate::{End, Shared, metrics};

/// Longest pause between two attempts to recover.
const MAX_RECOVERY_PAUSE: Duration = Duration::from_secs(1);

/// How long recovery waits on one connection. The address may lead to a better server by now, and the one that is
/// waited for tells nobody that it will never show the boundary. Opened anew this often, a connection costs its server
/// next to nothing, and streams come back about a second after they can.
const MAX_WAIT_ON_ONE_TAIL: Duration = Duration::from_secs(1);

/// Starts generations of the tailer, one after the other.
pub(crate) struct Recovery {
    shared: Arc<Shared>,
    boundary: Boundary,
}

/// A tailer that knows where it stands. It lives until its connection or its state is lost.
pub(crate) struct Generation {
    tail: Tail,
    gaps: Gaps,
}

/// Why a generation ended.
enum Lost {
    Database,
    Gaps,
}

impl Recovery {
    pub(crate) const fn new(shared: Arc<Shared>, boundary: Boundary) -> Self {
        Self { shared, boundary }
    }

    /// The first generation. `on_established` is called once the boundary stands. From then on the read database is
    /// waited for, whatever happens to it.
    ///
    /// # Errors
    /// [`StoreError`] before that: one of the databases cannot be used.
    pub(crate) async fn begin(
        &self,
        on_established: impl FnOnce(),
    ) -> Result<Generation, StoreError> {
        let mut stands = false;
        let first = self.bootstrap(|| {
            stands = true;
            on_established();
        });
        match first.await {
            Err(error) if stands => {
                tracing::warn!(%error, "streams cannot start yet, trying again");
                Ok(self.recover().await)
            }
            first => first,
        }
    }

    /// Establishes a closed boundary on the primary and waits until the read database shows it. Rows at
    /// or below it are history; the tailer starts above. `on_established` is called in between.
    ///
    /// The read database is connected to first: while it cannot be reached, no publisher waits for a boundary that
    /// nobody could use.
    async fn bootstrap(&self, on_established: impl FnOnce()) -> Result<Generation, StoreError> {
        metrics::tailer_started();
        let bootstrap = async {
            let tail = self.shared.reads.tail().await?;
            let established = self.boundary.establish().await?;
            on_established();
            self.await_boundary(tail, established).await
        };
        observed(operation!("tailer.bootstrap"), bootstrap).await
    }

    async fn await_boundary(
        &self,
        mut tail: Tail,
        established: SequenceId,
    ) -> Result<Generation, StoreError> {
        let mut opened = Instant::now();
        loop {
            let closed = tail.closed().await?;
            if closed >= established {
                return Ok(Generation {
                    tail,
                    gaps: Gaps::above(closed.into()),
                });
            }
            sleep(self.pause()).await;
            if opened.elapsed() >= MAX_WAIT_ON_ONE_TAIL {
                // The server of this one is held to until it is gone.
                drop(tail);
                tail = self.shared.reads.tail().await?;
                opened = Instant::now();
            }
        }
    }

    /// A pause between two looks at what recovery waits for.
    fn pause(&self) -> Duration {
        self.shared.settings.poll_interval.min(MAX_RECOVERY_PAUSE)
    }

    /// Tails until `shutdown`, beginning with `first`.
    pub(crate) async fn run(self, first: Generation, shutdown: CancellationToken) {
        shutdown.run_until_cancelled(self.generations(first)).await;
        self.shared.registry.refuse(End::Shutdown, End::Shutdown);
        self.shared.pace.hurry();
    }

    async fn generations(&self, mut generation: Generation) {
        loop {
            let lost = tokio::select! {
                lost = self.tail(&mut generation) => lost,
                () = self.boundary.failed() => Lost::Database,
            };
            let end = match lost {
                Lost::Database => End::Tailer,
                Lost::Gaps => End::Capacity("stream recovery in progress"),
            };
            self.shared.registry.refuse(end, End::Tailer);
            metrics::tailer_gap_ranges(0);
            // Nobody is held to the server that it read any more.
            drop(generation);
            generation = self.recover().await;
            self.shared.registry.admit();
        }
    }

    async fn recover(&self) -> Generation {
        let mut pause = self.pause();
        loop {
            sleep(pause).await;
            match self.bootstrap(|| ()).await {
                Ok(generation) => return generation,
                Err(error) => tracing::warn!(%error, "stream recovery failed, trying again"),
            }
            pause = (pause * 2).min(MAX_RECOVERY_PAUSE);
        }
    }

    /// Polls and dispatches until something is lost.
    async fn tail(&self, generation: &mut Generation) -> Lost {
        let interval = self.shared.settings.poll_interval;
        let (mut marked, mut mark) = (Instant::now(), generation.gaps.forward());
        loop {
            let started = Instant::now();
            match self.poll(generation).await {
                Ok(true) => {}
                Ok(false) => self.rest().await,
                Err(error) => {
                    metrics::tailer_polled(false);
                    tracing::error!(%error, elapsed_ms = started.elapsed().as_millis(), "tailer lost its database");
                    return Lost::Database;
                }
            }
            if generation.gaps.len() > self.shared.settings.max_gap_ranges {
                tracing::error!("more unresolved gap ranges than streams.max_gap_ranges allows");
                return Lost::Gaps;
            }
            // Most gaps are publishes in flight, gone within an interval: only one that has outlived it is
            // worth holding publishers up for.
            if marked.elapsed() >= interval {
                let old = generation
                    .gaps
                    .ranges()
                    .take_while(|gap| *gap.start() <= mark);
                if let Some(gap) = old.last() {
                    self.boundary.request(*gap.end());
                }
                (marked, mark) = (Instant::now(), generation.gaps.forward());
            }
        }
    }

    /// Waits for the next poll: an interval, or less where rows were committed here.
    async fn rest(&self) {
        let woken = async {
            let gap = sleep(WAKE_GAP);
            self.shared.committed.notified().await;
            gap.await;
        };
        // What is committed while the gap passes is seen by the poll after it.
        let _ = timeout(self.shared.settings.poll_interval, woken).await;
    }

    /// One poll; `true` when rows were left behind by a bound.
    async fn poll(&self, generation: &mut Generation) -> Result<bool, StoreError> {
        let span = operation!("tailer.poll", rows = field::Empty, gaps = field::Empty);
        let poll = async {
            let Generation { tail, gaps } = generation;
            let ranges: Vec<GapRange> = gaps.ranges().collect();
            let after = SequenceId::try_from(gaps.forward()).unwrap_or(SequenceId::START);
            let page = tail.poll(after, &ranges, POLL_ROWS, POLL_BYTES).await?;
            self.shared.registry.dispatch(&page.rows);
            let ids = page
                .rows
                .iter()
                .map(|row| i64::from(row.envelope.metadata.sequence_id));
            gaps.observe(ids, page.cut, page.closed.into());

            let from_gap = page.rows.iter().filter(|row| row.from_gap).count();
            metrics::tailer_polled(true);
            metrics::tailer_rows(from_gap, page.rows.len() - from_gap);
            metrics::tailer_gap_ranges(gaps.len());
            Span::current()
                .record("rows", page.rows.len())
                .record("gaps", gaps.len());
            Ok(page.cut)
        };
        observed(span, poll).await
    }
}
