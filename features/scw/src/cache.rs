//! Verdicts that stay as they are: those at a block that was named (SEC-042 to SEC-044).
//!
//! The key has everything that a verdict depends on. With less, the verdict of one wallet would answer for another.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lru::LruCache;
use sha2::{Digest, Sha256};
use xmtp_protocol::identity::ContractSignature;

/// What a verdict is known by: SHA-256 of chain, account, hash, signature and block.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key([u8; 32]);

impl Key {
    /// Of a signature; `None` for one at the latest block, whose verdict the next block may change.
    pub(crate) fn of(signature: &ContractSignature) -> Option<Self> {
        let block_number = signature.block_number?;
        let mut key = Sha256::new();
        for part in [
            &signature.account.chain_id.to_be_bytes()[..],
            &signature.account.address,
            &signature.hash,
            &signature.signature,
            &block_number.to_be_bytes(),
        ] {
            key.update((part.len() as u64).to_be_bytes());
            key.update(part);
        }
        Some(Self(key.finalize().into()))
    }
}

/// The verdicts that were used last.
pub(crate) struct Verdicts {
    most: NonZeroUsize,
    verdicts: Mutex<LruCache<Key, bool>>,
}

impl Verdicts {
    /// Keeps `most` of them. Memory is taken as they come: one is some 100 bytes.
    pub(crate) fn new(most: NonZeroUsize) -> Self {
        Self {
            most,
            verdicts: Mutex::new(LruCache::unbounded()),
        }
    }

    /// The verdict of this key, which counts as used.
    pub(crate) fn get(&self, key: &Key) -> Option<bool> {
        self.lock().get(key).copied()
    }

    /// Keeps a verdict, in the place of the one that was not used for longest.
    pub(crate) fn keep(&self, key: Key, is_valid: bool) {
        let mut verdicts = self.lock();
        verdicts.put(key, is_valid);
        while verdicts.len() > self.most.get() {
            verdicts.pop_lru();
        }
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<Key, bool>> {
        // Nothing that holds the lock can leave it half done.
        self.verdicts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use xmtp_protocol::identity::EvmAccount;

    use super::*;

    fn signature() -> ContractSignature {
        ContractSignature {
            account: EvmAccount {
                chain_id: 1,
                address: [2; 20],
            },
            hash: [3; 32],
            signature: vec![4, 5].into(),
            block_number: Some(6),
        }
    }

    fn key(change: impl FnOnce(&mut ContractSignature)) -> Option<Key> {
        let mut signature = signature();
        change(&mut signature);
        Key::of(&signature)
    }

    #[test]
    fn sec_043_a_key_has_everything_that_a_verdict_depends_on() {
        let keys = [
            key(|_| ()),
            key(|it| it.account.chain_id = 2),
            key(|it| it.account.address[19] = 3),
            key(|it| it.hash[31] = 4),
            key(|it| it.signature = vec![4].into()),
            key(|it| it.signature = vec![4, 5, 0].into()),
            key(|it| it.signature = vec![].into()),
            key(|it| it.block_number = Some(7)),
            key(|it| it.block_number = Some(0)),
        ];
        for (index, one) in keys.iter().enumerate() {
            assert!(one.is_some());
            assert!(!keys[..index].contains(one), "{index}");
        }
        assert!(key(|_| ()) == key(|_| ()));
    }

    #[test]
    fn sec_044_the_latest_block_has_no_key() {
        assert!(key(|it| it.block_number = None).is_none());
    }

    #[test]
    fn sec_042_the_verdict_that_was_not_used_for_longest_goes() {
        let verdicts = Verdicts::new(NonZeroUsize::new(2).unwrap());
        let [one, two, three] = [1, 2, 3].map(|byte| Key([byte; 32]));
        verdicts.keep(one, true);
        verdicts.keep(two, false);
        assert_eq!(verdicts.get(&one), Some(true));
        verdicts.keep(three, true);
        assert_eq!(
            [one, two, three].map(|key| verdicts.get(&key)),
            [Some(true), None, Some(true)]
        );
    }
}
