//! A followed topic: one allocation, which the registry and every session that follows it share (ARC-070).

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};

use smallvec::SmallVec;
use xmtp_protocol::{SequenceId, Topic};
use xmtp_store::StoredEnvelope;

use crate::port::{LiveRow, Port, RegistrationId};
use crate::{is_roomy, lock};

/// A topic that somebody follows, and who. Found by its topic, and cheap to clone.
///
/// A server has hundreds of thousands of these: a handle is one pointer, and a feed of one subscriber with
/// its counters takes 96 bytes.
#[derive(Clone)]
pub(crate) struct Feed(Arc<Inner>);

struct Inner {
    topic: Topic,
    /// Most topics interest one stream of an instance.
    subscribers: Mutex<SmallVec<[Subscriber; 1]>>,
}

struct Subscriber {
    port: Arc<Port>,
    registration: RegistrationId,
    mode: Mode,
}

/// How a registration learns of new rows: by the greatest id that it has to fetch, whose payload is not
/// kept (ARC-078), or, past every id, by the row itself.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Mode(u64);

impl Mode {
    const CURRENT: Self = Self(u64::MAX);

    fn catching_up(needed: SequenceId) -> Self {
        Self(needed.into())
    }

    /// `None` for one that is current: no sequence id is so great.
    fn needed(self) -> Option<SequenceId> {
        SequenceId::try_from(self.0).ok()
    }
}

/// Whether a registration gets direct rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    /// It does, from the next row on.
    Current,
    /// It has to fetch up to here first.
    Behind(SequenceId),
    /// There is no such registration.
    Gone,
}

impl Feed {
    pub(crate) fn new(topic: Topic) -> Self {
        Self(Arc::new(Inner {
            topic,
            subscribers: Mutex::default(),
        }))
    }

    pub(crate) fn topic(&self) -> &Topic {
        &self.0.topic
    }

    /// Adds a subscriber that catches up from `after`.
    pub(crate) fn subscribe(
        &self,
        port: &Arc<Port>,
        registration: RegistrationId,
        after: SequenceId,
    ) {
        lock(&self.0.subscribers).push(Subscriber {
            port: Arc::clone(port),
            registration,
            mode: Mode::catching_up(after),
        });
    }

    /// Whether this is the very same entry, and not another one of its topic.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether nobody follows the topic any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        lock(&self.0.subscribers).is_empty()
    }

    /// Drops a subscriber; whether it was the last one.
    pub(crate) fn unsubscribe(&self, registration: RegistrationId) -> bool {
        let mut subscribers = lock(&self.0.subscribers);
        let Some(position) = position(&subscribers, registration) else {
            return false;
        };
        subscribers.swap_remove(position);
        if is_roomy(subscribers.len(), subscribers.capacity()) {
            subscribers.shrink_to_fit();
        }
        subscribers.is_empty()
    }

    /// Switches a registration to direct rows if nothing above `floor` is needed, or says why not.
    /// Taking the last notice and switching are one step: a racing row is either in the answer or
    /// comes directly (ARC-078).
    pub(crate) fn switch_if_current(
        &self,
        registration: RegistrationId,
        floor: SequenceId,
    ) -> Switch {
        let mut subscribers = lock(&self.0.subscribers);
        let Some(position) = position(&subscribers, registration) else {
            return Switch::Gone;
        };
        let mode = &mut subscribers[position].mode;
        match mode.needed() {
            Some(needed) if needed > floor => Switch::Behind(needed),
            _ => {
                *mode = Mode::CURRENT;
                Switch::Current
            }
        }
    }

    /// Hands a row to every subscriber, and to `told` the sessions that have to look. Encodes it at most
    /// once.
    pub(crate) fn dispatch(&self, envelope: &StoredEnvelope, told: &mut Vec<Arc<Port>>) {
        let sequence_id = envelope.metadata.sequence_id;
        let mut encoded = None;
        for subscriber in lock(&self.0.subscribers).iter_mut() {
            if subscriber.mode != Mode::CURRENT {
                subscriber.mode.0 = subscriber.mode.0.max(sequence_id.into());
                continue;
            }
            let first = subscriber.port.deliver(LiveRow {
                registration: subscriber.registration,
                topic: self.0.topic,
                sequence_id,
                encoded: encoded
                    .get_or_insert_with(|| StoredEnvelope::encode([envelope]))
                    .clone(),
            });
            if first {
                told.push(Arc::clone(&subscriber.port));
            }
        }
    }
}

fn position(subscribers: &[Subscriber], registration: RegistrationId) -> Option<usize> {
    let named = |subscriber: &Subscriber| subscriber.registration == registration;
    subscribers.iter().position(named)
}

impl Borrow<Topic> for Feed {
    fn borrow(&self) -> &Topic {
        self.topic()
    }
}

impl Hash for Feed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.topic().hash(state);
    }
}

impl PartialEq for Feed {
    fn eq(&self, other: &Self) -> bool {
        self.topic() == other.topic()
    }
}

impl Eq for Feed {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feed_of_one_subscriber_takes_96_bytes() {
        assert!(size_of::<Inner>() + 2 * size_of::<usize>() <= 96);
    }
}
