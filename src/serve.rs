//! A server in its process: telemetry, signals, exit.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::runtime;
use xmtp_server::config::sections::LogLevel;
use xmtp_server::subsystem::SubsystemError;
use xmtp_server::telemetry::{LoggingError, Metrics, MetricsError, install_logging};
use xmtp_server::{Server, StartError};

use crate::signals::{self, CutOff};
use crate::subsystems;

/// Longest time to send what telemetry has left (OPS-008).
const FLUSH_LIMIT: Duration = Duration::from_secs(5);

/// Time to write the last lines of the log. Whoever reads it takes them at once.
const LAST_LINES: Duration = Duration::from_secs(1);

/// What is left, after that, of the time in which the process has to end.
const EXIT_RESERVE: Duration = Duration::from_millis(250);

/// Turns of tasks after which a busy worker looks for what has arrived. A turn of work on many topics takes a tenth of a
/// millisecond, and what the others wait for at each step of a request is this many of them.
const EVENT_INTERVAL: u32 = 4;

/// Why the process ends without having served to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    #[error(transparent)]
    Logging(#[from] LoggingError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("the system refuses what a server needs: {}", .0.kind())]
    System(#[from] io::Error),
    #[error("{0}")]
    Subsystem(SubsystemError),
}

/// Serves until a signal, or until a subsystem cannot go on, then drains; a second signal, or a drain that does not
/// end, ends the process, and `tell` says why. `announce` is told the address of the gRPC port.
pub(crate) fn run(
    mut server: Server,
    log_level: Option<LogLevel>,
    announce: impl FnOnce(SocketAddr) -> io::Result<()>,
    tell: impl FnOnce(CutOff) + Send + 'static,
) -> Result<(), ServeError> {
    let metrics = Metrics::install(server.catalogue().clone())?;
    let settings = &server.config().server;
    let (level, format) = (log_level.unwrap_or(settings.log_level), settings.log_format);
    let mut observers = server
        .observe(&metrics, level)
        .map_err(ServeError::Subsystem)?;
    let log = install_logging(server.catalogue(), level, format, &mut observers)?;
    subsystems::warn_of_what_is_ignored();
    let exit_limit = server.exit_limit();
    let mut watch = signals::watch(exit_limit, tell)?;
    let runtime = runtime::Builder::new_multi_thread()
        .enable_all()
        .event_interval(EVENT_INTERVAL)
        .build()?;
    let mut asked = None;
    let outcome = runtime.block_on(async {
        let mut running = tokio::select! {
            started = server.with_metrics(metrics).start() => started?,
            () = watch.signal() => {
                asked = Some(Instant::now());
                return Ok(());
            }
        };
        let outcome = match announce(running.local_addr()) {
            Ok(()) => tokio::select! {
                () = watch.signal() => Ok(()),
                error = running.failed() => Err(ServeError::Subsystem(error)),
            },
            Err(error) => Err(error.into()),
        };
        watch.drains();
        asked = Some(Instant::now());
        running.stop().await;
        outcome
    });
    // A stuck read must not hold the exit.
    runtime.shutdown_background();
    let gone = asked.map_or(Duration::ZERO, |asked| asked.elapsed());
    let left = exit_limit.saturating_sub(EXIT_RESERVE + gone);
    observers.flush(left.saturating_sub(LAST_LINES).min(FLUSH_LIMIT));
    log.finish(LAST_LINES);
    outcome
}
