//! The thread that writes the log. Nobody else waits for who reads it: a pipe that is full would stop the threads that
//! serve one by one, health and all.

use std::io::{self, BufWriter, Stdout, Write};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};

/// How long the thread rests when no line waits. Lines that come meanwhile wake nobody, and are written together.
const REST: Duration = Duration::from_millis(1);

/// Most lines that wait to be written, about two megabytes. Those beyond are dropped, and counted.
const MAX_LINES: usize = 8_192;

/// Lines after which the writing thread looks for dropped ones, where the queue is never empty.
const LOOK_EVERY: usize = 1_000;

/// Has the log written while it lives.
pub struct LogWriter {
    thread: WorkerGuard,
}

impl LogWriter {
    /// Writes what is left, if it is read within `limit`.
    pub fn finish(self, limit: Duration) {
        let (said, heard) = mpsc::channel();
        // With no room left, the library itself writes to the pipe that nobody reads.
        thread::spawn(move || {
            drop(self.thread);
            let _ = said.send(());
        });
        let _ = heard.recv_timeout(limit);
    }
}

pub(super) fn to_standard_output() -> (NonBlocking, LogWriter) {
    let dropped = Arc::new(OnceLock::new());
    let output = Output {
        lines: BufWriter::new(io::stdout()),
        dropped: Arc::clone(&dropped),
        told: 0,
        since_look: 0,
    };
    let (lines, thread) = NonBlockingBuilder::default()
        .buffered_lines_limit(MAX_LINES)
        .lossy(true)
        .thread_name("log")
        .finish(output);
    dropped.get_or_init(|| lines.error_counter());
    (lines, LogWriter { thread })
}

/// Standard output, as the writing thread sees it.
struct Output {
    lines: BufWriter<Stdout>,
    /// Set once there is something to write.
    dropped: Arc<OnceLock<ErrorCounter>>,
    /// How many of the dropped lines have been told.
    told: usize,
    /// Lines written since it was looked at them.
    since_look: usize,
}

impl Output {
    /// Tells of lines that were dropped, in a line of the log, for which there is room by now.
    fn look(&mut self) {
        self.since_look = 0;
        let dropped = self.dropped.get().map_or(0, ErrorCounter::dropped_lines);
        let lines = dropped - self.told;
        self.told = dropped;
        if lines > 0 {
            tracing::warn!(lines, "log lines were dropped: they were not read in time");
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the thread serves nobody, and who logs does not wait for it"
)]
fn rest() {
    thread::sleep(REST);
}

impl Write for Output {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.since_look += 1;
        if self.since_look == LOOK_EVERY {
            self.look();
        }
        self.lines.write(line)
    }

    /// Once no line waits any more.
    fn flush(&mut self) -> io::Result<()> {
        self.lines.flush()?;
        self.look();
        rest();
        Ok(())
    }
}
