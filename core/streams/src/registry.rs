//! Which streams want which topics (ARC-070).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use smallvec::SmallVec;
use tokio::sync::Notify;
use xmtp_protocol::{SequenceId, Topic};
use xmtp_store::TailRow;

use crate::settings::OUTPUT_BYTES;
use crate::{End, metrics};

/// Names one registration of one topic on one stream. A topic that is removed and added again gets a
/// new one, so that what was meant for the old registration is recognised (ARC-074).
pub(crate) type RegistrationId = u64;

/// The instance's topic registry and its open sessions.
pub(crate) struct Registry {
    /// Most topics interest one stream of an instance.
    topics: Mutex<HashMap<Topic, SmallVec<[Subscriber; 1]>>>,
    sessions: Mutex<Sessions>,
    next_id: AtomicU64,
}

struct Sessions {
    /// Why no session can open, or `None` while they can.
    refused: Option<End>,
    open: HashMap<u64, Arc<Port>>,
}

struct Subscriber {
    port: Arc<Port>,
    registration: RegistrationId,
    mode: Mode,
}

/// How a registration learns of new rows.
enum Mode {
    /// By the greatest id that it has to fetch; payloads are not kept (ARC-078).
    CatchingUp { needed: SequenceId },
    /// By the row itself.
    Current,
}

/// A row on its way to a current registration.
pub(crate) struct LiveRow {
    pub(crate) registration: RegistrationId,
    pub(crate) topic: Topic,
    pub(crate) sequence_id: SequenceId,
    /// Encoded `ServerEnvelope`, shared by every stream that gets it.
    pub(crate) encoded: Bytes,
}

/// The side of a session that others reach.
pub(crate) struct Port {
    id: u64,
    arrived: Mutex<Arrived>,
    changed: Notify,
}

/// What the session has not looked at yet.
#[derive(Default)]
struct Arrived {
    rows: Vec<LiveRow>,
    /// Bytes of the rows: they are bounded by ending the session, never by waiting for it.
    bytes: usize,
    end: Option<End>,
}

/// The owner's side of a [`Port`].
pub(crate) struct Mailbox {
    port: Arc<Port>,
}

impl Port {
    /// Hands over a row without waiting; whether the session has to be told. A session that lets more than
    /// an output's worth pile up ends (ARC-073).
    fn deliver(&self, row: LiveRow) -> bool {
        let mut arrived = lock(&self.arrived);
        let bytes = arrived.bytes.saturating_add(row.encoded.len());
        if bytes > OUTPUT_BYTES {
            arrived.end.get_or_insert(End::Backpressure);
            return true;
        }
        arrived.bytes = bytes;
        arrived.rows.push(row);
        arrived.rows.len() == 1
    }

    /// Tells the session to end; the first cause wins.
    fn end(&self, end: End) {
        lock(&self.arrived).end.get_or_insert(end);
        self.changed.notify_one();
    }
}

impl Mailbox {
    pub(crate) const fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// Waits for the next rows, or for somebody to end the session. Cancel-safe.
    pub(crate) async fn recv(&mut self) -> Result<Vec<LiveRow>, End> {
        loop {
            {
                let mut arrived = lock(&self.port.arrived);
                if let Some(end) = arrived.end {
                    return Err(end);
                }
                if !arrived.rows.is_empty() {
                    arrived.bytes = 0;
                    return Ok(std::mem::take(&mut arrived.rows));
                }
            }
            self.port.changed.notified().await;
        }
    }
}

impl Registry {
    /// A registry that admits nobody yet.
    pub(crate) fn new() -> Self {
        Self {
            topics: Mutex::default(),
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
        let port = Arc::new(Port {
            id: self.next_id(),
            arrived: Mutex::default(),
            changed: Notify::new(),
        });
        sessions.open.insert(port.id, Arc::clone(&port));
        Ok(Mailbox { port })
    }

    /// Forgets a session that has removed its registrations.
    pub(crate) fn close(&self, port: &Port) {
        let mut sessions = lock(&self.sessions);
        sessions.open.remove(&port.id);
        shrink(&mut sessions.open);
    }

    /// Registers a topic, catching up from `after`.
    pub(crate) fn register(
        &self,
        port: &Arc<Port>,
        topic: Topic,
        after: SequenceId,
    ) -> RegistrationId {
        let registration = self.next_id();
        let mode = Mode::CatchingUp { needed: after };
        let subscriber = Subscriber {
            port: Arc::clone(port),
            registration,
            mode,
        };
        lock(&self.topics)
            .entry(topic)
            .or_default()
            .push(subscriber);
        registration
    }

    /// Drops a registration.
    pub(crate) fn deregister(&self, topic: &Topic, registration: RegistrationId) {
        let mut topics = lock(&self.topics);
        if let Entry::Occupied(mut entry) = topics.entry(*topic) {
            entry
                .get_mut()
                .retain(|subscriber| subscriber.registration != registration);
            if entry.get().is_empty() {
                entry.remove();
                shrink(&mut topics);
            }
        }
    }

    /// Switches a registration to direct rows if nothing above `floor` is needed, or says what is.
    /// Taking the last notice and switching are one step: a racing row is either in the answer or
    /// comes directly (ARC-078).
    pub(crate) fn switch_if_current(
        &self,
        topic: &Topic,
        registration: RegistrationId,
        floor: SequenceId,
    ) -> Option<SequenceId> {
        let mut topics = lock(&self.topics);
        let subscriber = topics
            .get_mut(topic)?
            .iter_mut()
            .find(|subscriber| subscriber.registration == registration)?;
        match subscriber.mode {
            Mode::CatchingUp { needed } if needed > floor => Some(needed),
            Mode::CatchingUp { .. } | Mode::Current => {
                subscriber.mode = Mode::Current;
                None
            }
        }
    }

    /// Hands the rows of one poll, ascending by sequence id, to everybody who wants them. Never waits
    /// for a session. A row is encoded at most once.
    pub(crate) fn dispatch(&self, rows: &[TailRow]) {
        let mut told = Vec::new();
        for row in rows {
            let metadata = &row.envelope.metadata;
            let mut topics = lock(&self.topics);
            let Some(subscribers) = topics.get_mut(&metadata.topic) else {
                continue;
            };
            let mut encoded = None;
            for subscriber in subscribers {
                match &mut subscriber.mode {
                    Mode::CatchingUp { needed } => *needed = (*needed).max(metadata.sequence_id),
                    Mode::Current => {
                        let encoded = encoded.get_or_insert_with(|| row.envelope.encode());
                        let first = subscriber.port.deliver(LiveRow {
                            registration: subscriber.registration,
                            topic: metadata.topic,
                            sequence_id: metadata.sequence_id,
                            encoded: encoded.clone(),
                        });
                        if first {
                            told.push(Arc::clone(&subscriber.port));
                        }
                    }
                }
            }
        }
        // Afterwards, so that a session wakes once for the whole page.
        for port in told {
            port.changed.notify_one();
        }
    }

    /// Whether a session is interested in one of `topics`.
    pub(crate) fn is_any_wanted<'a>(&self, topics: impl IntoIterator<Item = &'a Topic>) -> bool {
        let registered = lock(&self.topics);
        topics
            .into_iter()
            .any(|topic| registered.contains_key(topic))
    }

    /// Whether nobody is here.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.topics).is_empty() && lock(&self.sessions).open.is_empty()
    }

    fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }
}

/// Gives back what a crowd has left, in time that its leaving pays for.
fn shrink<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    const SMALL: usize = 1024;
    if map.capacity() > SMALL && map.len() < map.capacity() / 4 {
        map.shrink_to(2 * map.len());
    }
}

/// Nothing that runs under these locks can leave them half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use xmtp_protocol::TopicKind;
    use xmtp_store::{Metadata, StoredEnvelope};

    use super::*;

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
        let registration = registry.register(mailbox.port(), topic(1), id(4));
        let switch = |floor| registry.switch_if_current(&topic(1), registration, id(floor));
        registry.dispatch(&[row(1, 6), row(2, 7)]);
        assert_eq!(switch(4), Some(id(6)), "the row came before the switch");
        assert_eq!(received(&mut mailbox), [], "and not directly as well");
        assert_eq!(switch(6), None);
        registry.dispatch(&[row(1, 8), row(2, 9), row(1, 10)]);
        assert_eq!(switch(6), None, "never back");
        assert_eq!(
            received(&mut mailbox),
            [(registration, 8), (registration, 10)]
        );
    }

    #[test]
    fn str_012_a_notice_below_the_cursor_owes_nothing() {
        let registry = admitting();
        let mailbox = registry.open().unwrap();
        let registration = registry.register(mailbox.port(), topic(1), id(9));
        registry.dispatch(&[row(1, 5)]);
        assert_eq!(
            registry.switch_if_current(&topic(1), registration, id(9)),
            None
        );
    }

    #[test]
    fn arc_074_a_registration_of_before_gets_nothing_and_removes_nothing() {
        let registry = admitting();
        let mut mailbox = registry.open().unwrap();
        let before = registry.register(mailbox.port(), topic(1), id(0));
        registry.deregister(&topic(1), before);
        let after = registry.register(mailbox.port(), topic(1), id(0));
        registry.deregister(&topic(1), before);
        assert_eq!(registry.switch_if_current(&topic(1), before, id(0)), None);
        registry.dispatch(&[row(1, 1)]);
        assert_eq!(received(&mut mailbox), [], "the new one still catches up");
        assert_eq!(registry.switch_if_current(&topic(1), after, id(1)), None);
        registry.dispatch(&[row(1, 2)]);
        assert_eq!(received(&mut mailbox), [(after, 2)]);
    }

    #[test]
    fn arc_073_only_the_session_that_does_not_look_ends() {
        let registry = admitting();
        let mut sessions = [(); 2].map(|()| registry.open().unwrap());
        for session in &sessions {
            let registration = registry.register(session.port(), topic(1), id(0));
            registry.switch_if_current(&topic(1), registration, id(0));
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
        for (session, registration) in sessions.iter().zip(registrations) {
            assert!(!registry.is_empty());
            registry.deregister(&topic(1), registration);
            registry.close(session.port());
        }
        assert!(registry.is_empty());
    }
}
