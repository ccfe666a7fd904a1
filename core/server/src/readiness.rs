//! What the process is doing: starting, serving or draining (operations contract, sections 1.1 and 8.1).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use xmtp_streams::Streams;

use crate::telemetry::families::READY;

/// A step of the start, in the contract's order and words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Database,
    Retention,
    Boundary,
    Streams,
    Configuration,
    Listener,
}

impl Step {
    const fn word(self) -> &'static str {
        match self {
            Self::Database => "database",
            Self::Retention => "retention",
            Self::Boundary => "boundary",
            Self::Streams => "streams",
            Self::Configuration => "configuration",
            Self::Listener => "listener",
        }
    }
}

enum Phase {
    Starting { waiting: Vec<&'static str> },
    Serving { streams: Streams },
    Draining,
}

/// The state of the process. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Readiness(Arc<State>);

struct State {
    phase: Mutex<Phase>,
    /// What health reports.
    serving: watch::Sender<bool>,
}

/// What `/readyz` says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Report {
    Ready {
        recovering: bool,
    },
    /// Words of what is missing.
    Waiting(Vec<&'static str>),
}

impl Readiness {
    /// Nothing is done yet: neither what subsystems do first, in their `words`, nor the steps of core, with the
    /// opening of a `source` of reads among them.
    pub(crate) fn starting(
        words: impl Iterator<Item = &'static str>,
        source: Option<&'static str>,
    ) -> Self {
        let on_primary = [Step::Database, Step::Retention].map(Step::word);
        let on_reads = [
            Step::Boundary,
            Step::Streams,
            Step::Configuration,
            Step::Listener,
        ];
        let waiting = words
            .chain(on_primary)
            .chain(source)
            .chain(on_reads.map(Step::word));
        Self(Arc::new(State {
            phase: Mutex::new(Phase::Starting {
                waiting: waiting.collect(),
            }),
            serving: watch::Sender::new(false),
        }))
    }

    /// A step of the start is done.
    pub(crate) fn done(&self, step: Step) {
        self.done_word(step.word());
    }

    /// What a subsystem calls `word` is done.
    pub(crate) fn done_word(&self, word: &str) {
        if let Phase::Starting { waiting } = &mut *self.phase() {
            waiting.retain(|other| *other != word);
        }
    }

    /// Everything is up: health, the metric and `/readyz` say so from now on (OPS-005).
    pub(crate) fn serve(&self, streams: Streams) {
        self.enter(Phase::Serving { streams }, true);
    }

    /// Nothing new is taken from now on (OPS-007).
    pub(crate) fn drain(&self) {
        self.enter(Phase::Draining, false);
    }

    fn enter(&self, phase: Phase, serving: bool) {
        let mut current = self.phase();
        *current = phase;
        self.0.serving.send_replace(serving);
        READY.set(&[], f64::from(u8::from(serving)));
    }

    /// Whether health reports SERVING.
    pub(crate) fn is_serving(&self) -> bool {
        *self.0.serving.borrow()
    }

    /// Changes of what health reports.
    pub(crate) fn watch(&self) -> watch::Receiver<bool> {
        self.0.serving.subscribe()
    }

    pub(crate) fn report(&self) -> Report {
        match &*self.phase() {
            Phase::Starting { waiting } => Report::Waiting(waiting.clone()),
            Phase::Serving { streams } => Report::Ready {
                recovering: streams.is_recovering(),
            },
            Phase::Draining => Report::Waiting(vec!["draining"]),
        }
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.0.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ops_005_every_step_of_the_start_is_waited_for_until_it_is_done() {
        let readiness = Readiness::starting(["of-a-subsystem"].into_iter(), Some("of-a-source"));
        let mut words = vec![
            "of-a-subsystem",
            "database",
            "retention",
            "of-a-source",
            "boundary",
            "streams",
            "configuration",
            "listener",
        ];
        assert_eq!(readiness.report(), Report::Waiting(words.clone()));
        readiness.done_word(words.remove(0));
        for step in [
            Some(Step::Database),
            Some(Step::Retention),
            None,
            Some(Step::Boundary),
            Some(Step::Streams),
            Some(Step::Configuration),
            Some(Step::Listener),
        ] {
            assert_eq!(readiness.report(), Report::Waiting(words.clone()));
            let word = words.remove(0);
            match step {
                Some(step) => {
                    assert_eq!(word, step.word());
                    readiness.done(step);
                }
                None => readiness.done_word(word),
            }
        }
        assert!(!readiness.is_serving(), "it has not been said yet");
        readiness.drain();
        assert_eq!(readiness.report(), Report::Waiting(vec!["draining"]));
    }
}
