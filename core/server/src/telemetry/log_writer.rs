//! The thread that writes the log. Nobody else waits for who reads it: a pipe that is full would stop the threads that
//! serve one by one, health and all.

use std::io::{self, BufWriter, Stdout, Write};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};

/// Most lines that wait to be written, about two megabytes. Those beyond are dropped, and counted.
const MAX_LINES: usize = 8_192;

/// Time to write what is left at the end.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Has the log written while it lives; then what is left, if it is read within a second.
pub struct LogWriter {
    thread: Option<WorkerGuard>,
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        let (said, heard) = mpsc::channel();
        let guard = self.thread.take();
        // With no room left, the library itself writes to the pipe that nobody reads.
        thread::spawn(move || {
            drop(guard);
            let _ = said.send(());
        });
        let _ = heard.recv_timeout(LAST_LINES);
    }
}

pub(super) fn to_standard_output() -> (NonBlocking, LogWriter) {
    let dropped = Arc::new(OnceLock::new());
    let output = Output {
        lines: BufWriter::new(io::stdout()),
        dropped: Arc::clone(&dropped),
        told: 0,
    };
    let (lines, thread) = NonBlockingBuilder::default()
        .buffered_lines_limit(MAX_LINES)
        .lossy(true)
        .thread_name("log")
        .finish(output);
    dropped.get_or_init(|| lines.error_counter());
    let thread = Some(thread);
    (lines, LogWriter { thread })
}

/// Standard output, as the writing thread sees it.
struct Output {
    lines: BufWriter<Stdout>,
    /// Set once there is something to write.
    dropped: Arc<OnceLock<ErrorCounter>>,
    /// How many of the dropped lines have been told.
    told: usize,
}

impl Write for Output {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.lines.write(line)
    }

    /// Once no line waits any more. So there is room for one that tells of those that were dropped.
    fn flush(&mut self) -> io::Result<()> {
        self.lines.flush()?;
        let dropped = self.dropped.get().map_or(0, ErrorCounter::dropped_lines);
        let lines = dropped - self.told;
        self.told = dropped;
        if lines > 0 {
            tracing::warn!(lines, "log lines were dropped: they were not read in time");
        }
        Ok(())
    }
}
