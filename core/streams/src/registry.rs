//! Which streams want which topics (ARC-070).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use xmtp_protocol::{SequenceId, Topic};
use xmtp_store::TailRow;

use crate::settings::OUTPUT_BYTES;
use crate::{End, metrics};

/// Names one registration of one topic on one stream. A topic that is removed and added again gets a
/// new one, so that what was meant for the old registration is recognised (ARC-074).
pub(crate) type RegistrationId = u64;

/// The instance's topic registry and its open sessions.
pub(crate) struct Registry {
    topics: Mutex<HashMap<Topic, Vec<Subscriber>>>,
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
    mailbox: mpsc::UnboundedSender<Vec<LiveRow>>,
    /// Bytes in the mailbox: it is bounded by ending the session, never by waiting for it.
    mailbox_bytes: AtomicUsize,
    end: watch::Sender<Option<End>>,
}

/// The owner's side of a [`Port`].
pub(crate) struct Mailbox {
    port: Arc<Port>,
    rows: mpsc::UnboundedReceiver<Vec<LiveRow>>,
    end: watch::Receiver<Option<End>>,
}

impl Port {
    /// Hands over rows without waiting. A session that lets more than an output's worth pile up ends
    /// (ARC-073).
    fn deliver(&self, rows: Vec<LiveRow>) {
        let bytes: usize = rows.iter().map(|row| row.encoded.len()).sum();
        let before = self.mailbox_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > OUTPUT_BYTES {
            self.end(End::Backpressure);
        } else {
            // A closed mailbox belongs to a session that is ending anyway.
            let _ = self.mailbox.send(rows);
        }
    }

    /// Tells the session to end; the first cause wins.
    fn end(&self, end: End) {
        self.end.send_if_modified(|current| {
            let first = current.is_none();
            current.get_or_insert(end);
            first
        });
    }
}

impl Mailbox {
    pub(crate) const fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// Waits for the next rows, or for somebody to end the session. Cancel-safe.
    pub(crate) async fn recv(&mut self) -> Result<Vec<LiveRow>, End> {
        let rows = tokio::select! {
            biased;
            end = self.end.wait_for(Option::is_some) => {
                return Err(end.ok().and_then(|end| *end).unwrap_or(End::Shutdown));
            }
            // Both senders live in our own port: neither side can be closed.
            rows = self.rows.recv() => rows.unwrap_or_default(),
        };
        let bytes = rows.iter().map(|row| row.encoded.len()).sum();
        self.port.mailbox_bytes.fetch_sub(bytes, Ordering::Relaxed);
        Ok(rows)
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
    #[expect(
        clippy::disallowed_methods,
        reason = "the mailbox is bounded by its bytes, in `Port::deliver`"
    )]
    pub(crate) fn open(&self) -> Result<Mailbox, End> {
        let mut sessions = lock(&self.sessions);
        if let Some(refused) = sessions.refused {
            return Err(refused);
        }
        let (mailbox, rows) = mpsc::unbounded_channel();
        let (end, ended) = watch::channel(None);
        let id = self.next_id();
        let port = Arc::new(Port {
            id,
            mailbox,
            mailbox_bytes: AtomicUsize::new(0),
            end,
        });
        sessions.open.insert(id, Arc::clone(&port));
        Ok(Mailbox {
            port,
            rows,
            end: ended,
        })
    }

    /// Forgets a session that has removed its registrations.
    pub(crate) fn close(&self, port: &Port) {
        lock(&self.sessions).open.remove(&port.id);
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
        let mut batches: HashMap<u64, (Arc<Port>, Vec<LiveRow>)> = HashMap::new();
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
                        let (_, batch) = batches
                            .entry(subscriber.port.id)
                            .or_insert_with(|| (Arc::clone(&subscriber.port), Vec::new()));
                        batch.push(LiveRow {
                            registration: subscriber.registration,
                            topic: metadata.topic,
                            sequence_id: metadata.sequence_id,
                            encoded: encoded.clone(),
                        });
                    }
                }
            }
        }
        for (port, batch) in batches.into_values() {
            port.deliver(batch);
        }
    }

    fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }
}

/// Nothing that runs under these locks can leave them half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
