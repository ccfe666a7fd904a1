//! Which streams want which topics (ARC-070).

use std::array;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use xmtp_protocol::{SequenceId, Topic};
use xmtp_store::TailRow;

use crate::feed::Feed;
use crate::port::{Mailbox, Port, RegistrationId};
use crate::{End, is_roomy, lock, metrics};

/// The instance's topic registry and its open sessions.
pub(crate) struct Registry {
    feeds: Feeds,
    sessions: Mutex<Sessions>,
    next_id: AtomicU64,
}

struct Sessions {
    /// Why no session can open, or `None` while they can.
    refused: Option<End>,
    open: HashMap<u64, Arc<Port>>,
}

/// Topics that somebody follows, in parts with a lock each. A part that grows or shrinks hashes all that it holds,
/// and whoever publishes or delivers waits: with one part for hundreds of thousands of topics, tens of
/// milliseconds. No session's or feed's lock is held while one of these is taken.
struct Feeds {
    keys: RandomState,
    parts: [Mutex<HashSet<Feed>>; PARTS],
}

/// A divisor of 256. So many that 100,000 topics move in parts of 1,600, well below a millisecond.
const PARTS: usize = 64;

impl Feeds {
    fn new() -> Self {
        Self {
            keys: RandomState::new(),
            parts: array::from_fn(|_| Mutex::default()),
        }
    }

    /// The part in which `topic` is, if anywhere.
    fn with(&self, topic: &Topic) -> MutexGuard<'_, HashSet<Feed>> {
        let [part, ..] = self.keys.hash_one(topic).to_le_bytes();
        lock(&self.parts[usize::from(part) % PARTS])
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.parts.iter().all(|part| lock(part).is_empty())
    }
}

impl Registry {
    /// A registry that admits nobody yet.
    pub(crate) fn new() -> Self {
        Self {
            feeds: Feeds::new(),
            sessions: Mutex::new(Sessions {
                refused: Some(End::Tailer),
                open: HashMap::new(),
            }),
            next_id: AtomicU64::new(1),
        }
    }

    /// Admits sessions from now on (OPS-006).
    pub(crate) fn admit(&self) {
        lock(&self.sessions).refused = None;
        metrics::tailer_ready(true);
    }

    /// Whether nobody is admitted.
    pub(crate) fn is_refusing(&self) -> bool {
        lock(&self.sessions).refused.is_some()
    }

    /// Ends every session, and refuses new ones with `refused`, as one step.
    pub(crate) fn refuse(&self, end: End, refused: End) {
        metrics::tailer_ready(false);
        let mut sessions = lock(&self.sessions);
        sessions.refused = Some(refused);
        for port in sessions.open.values() {
            port.end(end);
        }
    }

    /// Opens a session.
    pub(crate) fn open(&self) -> Result<Mailbox, End> {
        let mut sessions = lock(&self.sessions);
        if let Some(refused) = sessions.refused {
            return Err(refused);
        }
        let mailbox = Mailbox::new(self.next_id());
        let port = Arc::clone(mailbox.port());
        sessions.open.insert(port.id(), port);
        Ok(mailbox)
    }

    /// Forgets a session that has removed its registrations.
    pub(crate) fn close(&self, port: &Port) {
        let mut sessions = lock(&self.sessions);
        let open = &mut sessions.open;
        open.remove(&port.id());
        if is_roomy(open.len(), open.capacity()) {
            open.shrink_to(2 * open.len());
        }
    }

    /// Registers a topic, catching up from `after`.
    pub(crate) fn register(
        &self,
        port: &Arc<Port>,
        topic: Topic,
        after: SequenceId,
    ) -> (Feed, RegistrationId) {
        let registration = self.next_id();
        let mut feeds = self.feeds.with(&topic);
        let feed = feeds.get(&topic).cloned().unwrap_or_else(|| {
            let feed = Feed::new(topic);
            feeds.insert(feed.clone());
            feed
        });
        // Under the lock: a feed without subscribers may be on its way out.
        feed.subscribe(port, registration, after);
        (feed, registration)
    }

    /// Drops a registration.
    pub(crate) fn deregister(&self, feed: &Feed, registration: RegistrationId) {
        // A crowd leaves one feed without holding up the others.
        if !feed.unsubscribe(registration) {
            return;
        }
        let mut feeds = self.feeds.with(feed.topic());
        // Somebody may have come meanwhile.
        let kept = feeds.get(feed.topic());
        if feed.is_abandoned() && kept.is_some_and(|kept| kept.is_same(feed)) {
            feeds.remove(feed.topic());
            if is_roomy(feeds.len(), feeds.capacity()) {
                let room = 2 * feeds.len();
                feeds.shrink_to(room);
            }
        }
    }

    /// Hands the rows of one poll, ascending by sequence id, to everybody who wants them. Never waits
    /// for a session, and holds no lock for longer than a row takes.
    pub(crate) fn dispatch(&self, rows: &[TailRow]) {
        let mut told = Vec::new();
        for TailRow { envelope, .. } in rows {
            let topic = &envelope.metadata.topic;
            let feed = self.feeds.with(topic).get(topic).cloned();
            if let Some(feed) = feed {
                feed.dispatch(envelope, &mut told);
            }
        }
        // Afterwards, so that a session wakes once for the whole page.
        for port in told {
            port.wake();
        }
    }

    /// Whether a session is interested in one of `topics`.
    pub(crate) fn is_any_wanted<'a>(&self, topics: impl IntoIterator<Item = &'a Topic>) -> bool {
        let mut topics = topics.into_iter();
        topics.any(|topic| self.feeds.with(topic).contains(topic))
    }

    /// Whether nobody is here.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.feeds.is_empty() && lock(&self.sessions).open.is_empty()
    }

    fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use xmtp_protocol::TopicKind;
    use xmtp_store::{Metadata, StoredEnvelope};

    use crate::settings::OUTPUT_BYTES;

    use super::*;
    use crate::feed::Switch;

    fn topic(byte: u8) -> Topic {
        Topic::new(TopicKind::GroupMessage, &[byte; 16]).unwrap()
    }

    fn id(id: u64) -> SequenceId {
        id.try_into().unwrap()
    }

    fn row_of(topic_byte: u8, sequence_id: u64, bytes: usize) -> TailRow {
        let metadata = Metadata {
            sequence_id: id(sequence_id),
            topic: topic(topic_byte),
            message_hash: [0; 32].into(),
            server_ns: 1,
            expiry_ns: None,
            is_commit_or_proposal: false,
        };
        TailRow {
            envelope: StoredEnvelope {
                metadata,
                payload: vec![0; bytes].into(),
            },
            from_gap: false,
        }
    }

    fn row(topic_byte: u8, sequence_id: u64) -> TailRow {
        row_of(topic_byte, sequence_id, 0)
    }

    fn admitting() -> Registry {
        let registry = Registry::new();
        registry.admit();
        registry
    }

    /// What lies in the mailbox: registration and sequence id of each row.
    fn received(mailbox: &mut Mailbox) -> Vec<(RegistrationId, u64)> {
        let mut rows = Vec::new();
        while let Some(batch) = mailbox.recv().now_or_never() {
            let batch = batch.expect("nobody ended the session");
            rows.extend(
                batch
                    .iter()
                    .map(|row| (row.registration, row.sequence_id.into())),
            );
        }
        rows
    }

    #[test]
    fn arc_078_a_racing_row_is_in_the_last_notice_or_comes_directly() {
        let registry = admitting();
        let mut mailbox = registry.open().unwrap();
        let (feed, registration) = registry.register(mailbox.port(), topic(1), id(4));
        let switch = |floor| feed.switch_if_current(registration, id(floor));
        registry.dispatch(&[row(1, 6), row(2, 7)]);
        assert_eq!(
            switch(4),
            Switch::Behind(id(6)),
            "the row came before the switch"
        );
        assert_eq!(received(&mut mailbox), [], "and not directly as well");
        assert_eq!(switch(6), Switch::Current);
        registry.dispatch(&[row(1, 8), row(2, 9), row(1, 10)]);
        assert_eq!(switch(6), Switch::Current, "never back");
        assert_eq!(
            received(&mut mailbox),
            [(registration, 8), (registration, 10)]
        );
    }

    #[test]
    fn str_012_a_notice_below_the_cursor_owes_nothing() {
        let registry = admitting();
        let mailbox = registry.open().unwrap();
        let (feed, registration) = registry.register(mailbox.port(), topic(1), id(9));
        registry.dispatch(&[row(1, 5)]);
        assert_eq!(feed.switch_if_current(registration, id(9)), Switch::Current);
    }

    #[test]
    fn arc_074_a_registration_of_before_gets_nothing_and_removes_nothing() {
        let registry = admitting();
        let mut mailbox = registry.open().unwrap();
        let (left, before) = registry.register(mailbox.port(), topic(1), id(0));
        registry.deregister(&left, before);
        let (feed, after) = registry.register(mailbox.port(), topic(1), id(0));
        registry.deregister(&left, before);
        assert_eq!(feed.switch_if_current(before, id(0)), Switch::Gone);
        registry.dispatch(&[row(1, 1)]);
        assert_eq!(received(&mut mailbox), [], "the new one still catches up");
        assert_eq!(feed.switch_if_current(after, id(1)), Switch::Current);
        registry.dispatch(&[row(1, 2)]);
        assert_eq!(received(&mut mailbox), [(after, 2)]);
    }

    #[test]
    fn arc_073_only_the_session_that_does_not_look_ends() {
        let registry = admitting();
        let mut sessions = [(); 2].map(|()| registry.open().unwrap());
        for session in &sessions {
            let (feed, registration) = registry.register(session.port(), topic(1), id(0));
            feed.switch_if_current(registration, id(0));
        }
        let half = OUTPUT_BYTES / 2;
        for number in 1..=4 {
            registry.dispatch(&[row_of(1, number, half)]);
            assert_eq!(received(&mut sessions[0]).len(), 1);
        }
        let end = sessions[1].recv().now_or_never();
        assert!(matches!(end, Some(Err(End::Backpressure))));
    }

    #[test]
    fn ops_006_recovery_ends_every_session_and_admits_none() {
        let registry = admitting();
        let mut sessions = [(); 2].map(|()| registry.open().unwrap());
        registry.refuse(End::Capacity("gaps"), End::Tailer);
        registry.refuse(End::Shutdown, End::Tailer);
        for session in &mut sessions {
            let end = session.recv().now_or_never();
            assert!(
                matches!(end, Some(Err(End::Capacity(_)))),
                "the first cause wins"
            );
        }
        assert_eq!(registry.open().err(), Some(End::Tailer));
        registry.admit();
        assert!(registry.open().is_ok());
    }

    #[test]
    fn arc_082_the_last_to_go_leaves_nothing_behind() {
        let registry = admitting();
        let sessions = [(); 2].map(|()| registry.open().unwrap());
        let registrations = sessions
            .each_ref()
            .map(|session| registry.register(session.port(), topic(1), id(0)));
        for (session, (feed, registration)) in sessions.iter().zip(registrations) {
            assert!(!registry.is_empty());
            registry.deregister(&feed, registration);
            registry.close(session.port());
        }
        assert!(registry.is_empty());
    }
}
