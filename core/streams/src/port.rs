//! How rows and ends reach a session from outside its task.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::Notify;
use xmtp_protocol::{SequenceId, Topic};

use crate::settings::OUTPUT_BYTES;
use crate::{End, lock};

/// Names one registration of one topic on one stream. A topic that is removed and added again gets a
/// new one, so that what was meant for the old registration is recognised (ARC-074).
pub(crate) type RegistrationId = u64;

/// A row on its way to a current registration.
pub(crate) struct LiveRow {
    pub(crate) registration: RegistrationId,
    pub(crate) topic: Topic,
    pub(crate) sequence_id: SequenceId,
    /// As an element of `envelopes`, shared by every stream that gets it.
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
    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    /// Hands over a row without waiting; whether the session has to be told. A session that lets more than
    /// an output's worth pile up ends (ARC-073).
    pub(crate) fn deliver(&self, row: LiveRow) -> bool {
        let mut arrived = lock(&self.arrived);
        if arrived.end.is_some() {
            return false;
        }
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
    pub(crate) fn end(&self, end: End) {
        lock(&self.arrived).end.get_or_insert(end);
        self.wake();
    }

    /// Tells the session to look.
    pub(crate) fn wake(&self) {
        self.changed.notify_one();
    }
}

impl Mailbox {
    /// An empty one; `id` names its session.
    pub(crate) fn new(id: u64) -> Self {
        Self {
            port: Arc::new(Port {
                id,
                arrived: Mutex::default(),
                changed: Notify::new(),
            }),
        }
    }

    pub(crate) const fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// Why somebody has ended the session, if somebody has.
    pub(crate) fn end(&self) -> Option<End> {
        lock(&self.port.arrived).end
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
