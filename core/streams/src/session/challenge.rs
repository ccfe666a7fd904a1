//! Liveness of the peer: when to send a Ping, and how long to wait for its Pong (API-255, API-257).

use std::time::Duration;

use tokio::time::Instant;

/// The one open challenge of a bidirectional stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Challenge {
    nonce: u64,
    queued: Instant,
    /// When the transport took the Ping; only then can a Pong answer it (ARC-081).
    taken: Option<Instant>,
}

impl Challenge {
    pub(crate) const fn new(nonce: u64, queued: Instant) -> Self {
        Self {
            nonce,
            queued,
            taken: None,
        }
    }

    /// Notes that the transport took the Ping.
    pub(crate) fn handed_off(&mut self, at: Instant) {
        self.taken.get_or_insert(at);
    }

    /// Whether the Ping has left for the transport.
    pub(crate) const fn is_handed_off(&self) -> bool {
        self.taken.is_some()
    }

    /// Whether `nonce` answers it.
    pub(crate) const fn is_answered_by(&self, nonce: u64) -> bool {
        self.taken.is_some() && self.nonce == nonce
    }

    /// When waiting ends: for the Pong after the handoff, for the handoff itself before it.
    pub(crate) fn deadline(&self, max_pong_wait: Duration) -> Instant {
        self.taken.unwrap_or(self.queued) + max_pong_wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_257_only_the_matching_pong_after_handoff_answers() {
        let queued = Instant::now();
        let mut challenge = Challenge::new(7, queued);
        assert!(
            !challenge.is_answered_by(7),
            "a pong from before the handoff"
        );
        challenge.handed_off(queued + Duration::from_secs(1));
        assert!(!challenge.is_answered_by(8), "another nonce");
        assert!(challenge.is_answered_by(7));
    }

    #[test]
    fn arc_081_the_deadline_starts_at_handoff() {
        let queued = Instant::now();
        let wait = Duration::from_secs(90);
        let mut challenge = Challenge::new(1, queued);
        assert_eq!(challenge.deadline(wait), queued + wait);
        let taken = queued + Duration::from_secs(20);
        challenge.handed_off(taken);
        challenge.handed_off(taken + wait);
        assert_eq!(challenge.deadline(wait), taken + wait);
    }
}
