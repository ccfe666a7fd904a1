//! The locks of a publish, and their one global order (ARC-031).

use std::fmt::Write;

use sha2::{Digest, Sha256};
use xmtp_protocol::{Topic, TopicKind};

/// Locks that belong to no topic. They live in PostgreSQL's two-integer key space, topic locks in its
/// one-integer space, so that the two can never meet.
#[derive(Clone, Copy)]
pub(crate) enum GlobalLock {
    /// Held exclusively by every publish that stores an identity update (ARC-032).
    Identity,
    /// Shared by every publish from before its allocation to its end; exclusive for the boundary task
    /// (ARC-039).
    AllocationBarrier,
}

/// First integer of every [`GlobalLock`]: "xmtp" in ASCII.
const GLOBAL_CLASS: i32 = 0x786d_7470;

impl GlobalLock {
    /// The two-integer advisory lock key.
    pub(crate) const fn key(self) -> (i32, i32) {
        let id = match self {
            Self::Identity => 1,
            Self::AllocationBarrier => 2,
        };
        (GLOBAL_CLASS, id)
    }
}

/// What one publish locks: the identity lock if it stores an identity update, then its topics in
/// ascending key order, then the shared allocation barrier.
#[derive(Debug)]
pub struct PublishLocks {
    identity: bool,
    /// Distinct and ascending.
    topics: Vec<i64>,
}

impl PublishLocks {
    /// Locks for a publish to `topics`, which may repeat.
    pub fn new<'a>(topics: impl IntoIterator<Item = &'a Topic>) -> Self {
        let mut identity = false;
        let mut keys: Vec<i64> = topics
            .into_iter()
            .map(|topic| {
                identity |= topic.kind() == TopicKind::IdentityUpdate;
                topic_key(topic)
            })
            .collect();
        keys.sort_unstable();
        keys.dedup();
        Self {
            identity,
            topics: keys,
        }
    }

    /// `BEGIN` and the locks, one statement each so that they are taken in this order. A later
    /// statement sees what committed while these waited (ARC-036).
    pub(crate) fn begin_statement(&self) -> String {
        let mut sql = String::with_capacity(160 + 21 * self.topics.len());
        sql.push_str("BEGIN ISOLATION LEVEL READ COMMITTED; ");
        if self.identity {
            let (class, id) = GlobalLock::Identity.key();
            let _ = write!(sql, "SELECT pg_advisory_xact_lock({class}, {id}); ");
        }
        // An array scan visits its elements in order.
        sql.push_str("SELECT count(pg_advisory_xact_lock(key)) FROM unnest('{");
        for (position, key) in self.topics.iter().enumerate() {
            let separator = if position == 0 { "" } else { "," };
            let _ = write!(sql, "{separator}{key}");
        }
        let (class, id) = GlobalLock::AllocationBarrier.key();
        let _ = write!(
            sql,
            "}}'::bigint[]) AS key; SELECT pg_advisory_xact_lock_shared({class}, {id})"
        );
        sql
    }
}

/// A topic's lock key. Two topics that share one only wait for each other. The key must not change
/// while two versions run side by side.
fn topic_key(topic: &Topic) -> i64 {
    let digest: [u8; 32] = Sha256::digest(topic.as_bytes()).into();
    let mut key = [0; 8];
    key.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(kind: TopicKind, byte: u8) -> Topic {
        Topic::new(kind, &vec![byte; kind.identifier_len()]).expect("length fits the kind")
    }

    #[test]
    fn arc_031_topic_locks_are_distinct_and_ascending_whatever_the_request_order() {
        let (a, b) = (
            topic(TopicKind::GroupMessage, 1),
            topic(TopicKind::Welcome, 2),
        );
        let one = PublishLocks::new([&a, &b, &a]);
        let other = PublishLocks::new([&b, &a]);
        assert_eq!(one.topics, other.topics);
        assert_eq!(one.topics.len(), 2);
        assert!(one.topics.is_sorted());
        assert_eq!(one.begin_statement(), other.begin_statement());
    }

    #[test]
    fn arc_032_identity_updates_take_the_identity_lock_before_any_topic() {
        let update = topic(TopicKind::IdentityUpdate, 1);
        let sql = PublishLocks::new([&update]).begin_statement();
        let position = |needle: &str| sql.find(needle).expect("statement holds the lock");
        assert!(position("pg_advisory_xact_lock(2020439152, 1)") < position("unnest"));
        let message = topic(TopicKind::GroupMessage, 1);
        assert!(
            !PublishLocks::new([&message])
                .begin_statement()
                .contains(", 1)")
        );
    }

    #[test]
    fn arc_039_the_allocation_barrier_is_the_last_lock_and_shared() {
        let message = topic(TopicKind::GroupMessage, 1);
        let sql = PublishLocks::new([&message]).begin_statement();
        assert!(
            sql.ends_with("SELECT pg_advisory_xact_lock_shared(2020439152, 2)"),
            "{sql}"
        );
    }

    #[test]
    fn topic_keys_are_fixed() {
        // The first eight bytes of the SHA-256 of seventeen zero bytes, big-endian.
        assert_eq!(
            topic_key(&topic(TopicKind::GroupMessage, 0)),
            758_875_333_365_161_134
        );
    }
}
