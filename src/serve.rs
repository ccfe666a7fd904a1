//! A server in its process: telemetry, signals, exit.

use std::io;
use std::net::SocketAddr;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use xmtp_server::config::sections::LogLevel;
use xmtp_server::subsystem::SubsystemError;
use xmtp_server::telemetry::{LoggingError, Metrics, MetricsError, install_logging};
use xmtp_server::{Server, StartError};

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
    #[error("ended by a second signal")]
    SecondSignal,
}

/// Serves until a signal, or until a subsystem cannot go on, then drains; a second signal ends the process at
/// once. `announce` is told the address of the gRPC port.
pub(crate) fn run(
    server: Server,
    log_level: Option<LogLevel>,
    announce: impl FnOnce(SocketAddr) -> io::Result<()>,
) -> Result<(), ServeError> {
    let metrics = Metrics::install(server.catalogue().clone())?;
    let settings = &server.config().server;
    install_logging(
        server.catalogue(),
        log_level.unwrap_or(settings.log_level),
        settings.log_format,
    )?;
    let runtime = Runtime::new()?;
    let outcome = runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let mut running = tokio::select! {
            started = server.with_metrics(metrics).start() => started?,
            () = signals.next() => return Ok(()),
        };
        let outcome = match announce(running.local_addr()) {
            Ok(()) => tokio::select! {
                () = signals.next() => Ok(()),
                error = running.failed() => Err(ServeError::Subsystem(error)),
            },
            Err(error) => Err(error.into()),
        };
        tokio::select! {
            () = running.stop() => outcome,
            () = signals.next() => Err(ServeError::SecondSignal),
        }
    });
    // A stuck read must not hold the exit.
    runtime.shutdown_background();
    outcome
}

/// What asks the process to end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
