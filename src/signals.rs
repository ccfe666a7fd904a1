//! Signals, and the bound on what follows them. On a thread of its own: where every thread of the server hangs,
//! nothing else notices a signal or a time limit (OPS-008).

use std::sync::mpsc;
use std::time::Duration;
use std::{io, process, thread};

use futures::channel::oneshot;
use tokio::runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

/// Time to say why the process is cut off; whoever should read it may be what hangs.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Why a process did not end by itself after a signal.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CutOff {
    #[error("ended by a second signal")]
    SecondSignal,
    #[error("the drain did not end in time")]
    Overdue,
}

/// What the thread of the signals is told and tells.
pub(crate) struct Watch {
    asked: oneshot::Receiver<()>,
    drains: Option<oneshot::Sender<()>>,
}

impl Watch {
    /// Resolves at the first SIGTERM or SIGINT.
    pub(crate) async fn signal(&mut self) {
        // The thread lives as long as the process.
        let _ = (&mut self.asked).await;
    }

    /// The process drains, for a signal or without one: from now on it has the limit of its time, and a signal is a
    /// second one.
    pub(crate) fn drains(&mut self) {
        if let Some(drains) = self.drains.take() {
            let _ = drains.send(());
        }
    }
}

/// Watches for signals. After the first one, or after [`Watch::drains`], a further one, or `limit` without an end of
/// the process, ends it with status 1; `tell` says why.
#[expect(
    clippy::disallowed_methods,
    reason = "the drain has had its time, and the thread of `main` may be what hangs"
)]
pub(crate) fn watch(
    limit: Duration,
    tell: impl FnOnce(CutOff) + Send + 'static,
) -> io::Result<Watch> {
    let (ask, asked) = oneshot::channel();
    let (drains, drain) = oneshot::channel::<()>();
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut signals = {
        let _inside = runtime.enter();
        Signals::listen()?
    };
    let watch = move || {
        let why = runtime.block_on(async {
            tokio::select! {
                () = signals.next() => {
                    // A server that does not wait any more is about to end.
                    let _ = ask.send(());
                }
                Ok(()) = drain => {}
            }
            match timeout(limit, signals.next()).await {
                Ok(()) => CutOff::SecondSignal,
                Err(_) => CutOff::Overdue,
            }
        });
        let (said, heard) = mpsc::channel();
        thread::spawn(move || {
            tell(why);
            let _ = said.send(());
        });
        let _ = heard.recv_timeout(LAST_WORDS);
        process::exit(1)
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(watch)?;
    Ok(Watch {
        asked,
        drains: Some(drains),
    })
}

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
