//! Signatures that have been judged, so that a token which comes with every request costs its signature once. A verdict
//! depends on the whole token and on the keys alone: it is kept under the digest of the one, and with the set of the
//! others. Claims are no part of it; they are judged with every request.

use std::hash::RandomState;
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use lru::LruCache;

use crate::digest::Digest;

/// Most tokens whose signature was good.
const MAX_GOOD: NonZeroUsize = NonZeroUsize::new(16_384).expect("not zero");

/// Most tokens whose signature was bad. Who sends ever new ones pushes out these alone.
const MAX_BAD: NonZeroUsize = NonZeroUsize::new(1024).expect("not zero");

/// What was judged of late.
#[derive(Debug)]
pub(crate) struct Verdicts {
    good: Recent,
    bad: Recent,
}

impl Default for Verdicts {
    fn default() -> Self {
        Self {
            good: Recent::new(MAX_GOOD),
            bad: Recent::new(MAX_BAD),
        }
    }
}

impl Verdicts {
    /// Whether the signature of the token with this digest is good: as it was judged, or as `judge` finds.
    pub(crate) fn of(&self, token: &Digest, judge: impl FnOnce() -> bool) -> bool {
        if let Some(known) = self.known(token) {
            return known;
        }
        // Without a lock: others need not wait.
        let is_good = judge();
        if is_good {
            self.good.add(*token);
        } else {
            self.bad.add(*token);
        }
        is_good
    }

    /// How it was judged of late.
    pub(crate) fn known(&self, token: &Digest) -> Option<bool> {
        let is_known = |(recent, verdict): (&Recent, bool)| recent.has(token).then_some(verdict);
        [(&self.good, true), (&self.bad, false)]
            .into_iter()
            .find_map(is_known)
    }
}

/// The digests that were used last.
#[derive(Debug)]
struct Recent(Mutex<LruCache<Digest, (), RandomState>>);

impl Recent {
    fn new(most: NonZeroUsize) -> Self {
        Self(Mutex::new(LruCache::with_hasher(most, RandomState::new())))
    }

    fn has(&self, token: &Digest) -> bool {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        recent.get(token).is_some()
    }

    fn add(&self, token: Digest) {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        recent.put(token, ());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::digest;

    fn numbered(number: u32) -> Digest {
        digest(&number.to_be_bytes())
    }

    #[test]
    fn auth_010_a_token_is_judged_once_whatever_the_verdict() {
        let verdicts = Verdicts::default();
        let mut judged = 0;
        for (number, verdict) in [(1, true), (2, false), (1, true), (2, false)] {
            let judgement = verdicts.of(&numbered(number), || {
                judged += 1;
                verdict
            });
            assert_eq!(judgement, verdict, "{number}");
        }
        assert_eq!(judged, 2);
        let of_others = verdicts.of(&numbered(3), || false);
        assert!(!of_others, "every token has a verdict of its own");
    }

    #[test]
    fn auth_010_a_flood_of_bad_tokens_is_not_kept_and_pushes_out_no_good_one() {
        let verdicts = Verdicts::default();
        assert!(verdicts.of(&numbered(0), || true));
        for number in 1..=100_000 {
            assert!(!verdicts.of(&numbered(number), || false));
        }
        assert!(verdicts.of(&numbered(0), || panic!("it is known")));
        let kept = |recent: &Recent| recent.0.lock().unwrap().len();
        assert_eq!(kept(&verdicts.good), 1);
        assert_eq!(kept(&verdicts.bad), MAX_BAD.get());
        for number in 0..20_000 {
            verdicts.of(&numbered(2_000_000 + number), || true);
        }
        assert_eq!(kept(&verdicts.good), MAX_GOOD.get());
    }
}
