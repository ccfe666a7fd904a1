//! A server in its process: telemetry, signals, exit.

use std::net::SocketAddr;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use xmtp_server::Server;
use xmtp_server::config::sections::LogLevel;
use xmtp_server::telemetry::{install_logging, install_recorder};

use crate::cli::Failure;

/// Serves until a signal, then drains; a second signal ends the process at once. `announce` is told
/// the address of the gRPC port.
pub(crate) fn run(
    server: Server,
    log_level: Option<LogLevel>,
    announce: impl FnOnce(SocketAddr) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let process = |error: &dyn std::error::Error| Failure::Process(error.to_string());
    let metrics = install_recorder().map_err(|error| process(&error))?;
    let settings = &server.config().server;
    install_logging(log_level.unwrap_or(settings.log_level), settings.log_format)
        .map_err(|error| process(&error))?;
    let runtime = Runtime::new().map_err(|error| process(&error))?;
    let outcome = runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let running = tokio::select! {
            started = server.with_metrics(metrics).start() => started?,
            () = signals.next() => return Ok(()),
        };
        let announced = announce(running.local_addr());
        if announced.is_ok() {
            signals.next().await;
        }
        tokio::select! {
            () = running.stop() => announced,
            () = signals.next() => Err(Failure::Process("ended by a second signal".to_owned())),
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
    fn listen() -> Result<Self, Failure> {
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
