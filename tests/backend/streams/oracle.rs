//! Judges what one stream delivers, frame by frame.

use std::collections::HashMap;

use prost::Message;
use xmtp_protocol::Topic;
use xmtp_protocol::proto::xmtp::backend::v1::ServerEnvelope;
use xmtp_protocol::proto::xmtp::backend::v1::message_hash::Hash;

use crate::harness::sequence_id;

/// Most bytes of a delivery frame with its framing (ARC-079).
const FRAME_BYTES: usize = 2 << 20;

/// The topics that a stream may deliver now, and what it has delivered on each.
#[derive(Default)]
pub(super) struct Oracle {
    registrations: HashMap<Topic, Registration>,
}

struct Registration {
    after: u64,
    rows: Vec<ServerEnvelope>,
}

impl Oracle {
    /// The topic may deliver from now on, above `after`.
    pub(super) fn register(&mut self, topic: Topic, after: u64) {
        let rows = Vec::new();
        let before = self
            .registrations
            .insert(topic, Registration { after, rows });
        assert!(before.is_none(), "a topic is registered once");
    }

    /// The topic may deliver no more.
    pub(super) fn release(&mut self, topic: &Topic) {
        self.registrations.remove(topic);
    }

    pub(super) fn is_registered(&self, topic: &Topic) -> bool {
        self.registrations.contains_key(topic)
    }

    /// Takes the rows of one frame.
    ///
    /// # Panics
    /// When one of them should not be here: not after its own cursor and every earlier row of its topic, of a
    /// topic that is not in force, or incomplete.
    pub(super) fn observe(&mut self, rows: &[ServerEnvelope]) {
        assert!(!rows.is_empty(), "a delivery has rows");
        let bytes: usize = rows.iter().map(|row| row.encoded_len() + 5).sum();
        assert!(bytes <= FRAME_BYTES, "a delivery frame of {bytes} bytes");
        for row in rows {
            let meta = row.meta.as_ref().expect("a row has metadata");
            let hash = meta
                .message_hash
                .as_ref()
                .and_then(|hash| hash.hash.as_ref());
            assert!(
                matches!(hash, Some(Hash::Sha256(hash)) if hash.len() == 32),
                "a row has a SHA-256"
            );
            assert!(row.envelope.is_some(), "a row has its envelope");
            let topic = topic_of(row);
            let id = sequence_id(row);
            let registration = self
                .registrations
                .get_mut(&topic)
                .expect("a row's topic is registered and acknowledged");
            let last = registration.position();
            assert!(id > last, "row {id} after {last}");
            registration.rows.push(row.clone());
        }
    }

    /// Where the client would go on: the last row of the topic, or its start.
    pub(super) fn position(&self, topic: &Topic) -> u64 {
        self.registrations
            .get(topic)
            .map_or(0, Registration::position)
    }

    /// What the registration has delivered.
    pub(super) fn rows(&self, topic: &Topic) -> &[ServerEnvelope] {
        self.registrations
            .get(topic)
            .map_or(&[], |registration| &registration.rows)
    }

    /// The sequence ids of [`Self::rows`].
    pub(super) fn ids(&self, topic: &Topic) -> Vec<u64> {
        self.rows(topic).iter().map(sequence_id).collect()
    }
}

impl Registration {
    fn position(&self) -> u64 {
        self.rows.last().map_or(self.after, sequence_id)
    }
}

/// The topic that a row says it is on.
pub(super) fn topic_of(row: &ServerEnvelope) -> Topic {
    let meta = row.meta.as_ref().expect("a row has metadata");
    let topic = meta.topic.as_ref().expect("a row has a topic");
    Topic::parse(&topic.topic).expect("a row has a legal topic")
}

mod tests {
    use xmtp_protocol::proto::xmtp::backend::v1::{Cursor, EnvelopeMeta, MessageHash};

    use super::*;
    use crate::harness::wire;
    use crate::streams::{group, messages};

    fn row(number: u8, sequence_id: u64) -> ServerEnvelope {
        let meta = EnvelopeMeta {
            cursor: Some(Cursor { sequence_id }),
            message_hash: Some(MessageHash {
                hash: Some(Hash::Sha256(vec![0; 32].into())),
            }),
            topic: Some(wire(&group(number))),
            ..Default::default()
        };
        ServerEnvelope {
            meta: Some(meta),
            envelope: messages(number, [sequence_id]).pop(),
        }
    }

    fn oracle() -> Oracle {
        let mut oracle = Oracle::default();
        oracle.register(group(1), 3);
        oracle.observe(&[row(1, 5)]);
        oracle
    }

    #[test]
    fn what_follows_is_taken() {
        let mut oracle = oracle();
        oracle.observe(&[row(1, 6), row(1, 9)]);
        assert_eq!(oracle.ids(&group(1)), [5, 6, 9]);
        assert_eq!(oracle.position(&group(1)), 9);
    }

    #[test]
    #[should_panic(expected = "row 5 after 5")]
    fn a_repeated_row_is_noticed() {
        oracle().observe(&[row(1, 5)]);
    }

    #[test]
    #[should_panic(expected = "row 4 after 5")]
    fn a_reordered_row_is_noticed() {
        oracle().observe(&[row(1, 4)]);
    }

    #[test]
    #[should_panic(expected = "registered and acknowledged")]
    fn a_row_of_a_removed_topic_is_noticed() {
        let mut oracle = oracle();
        oracle.release(&group(1));
        oracle.observe(&[row(1, 6)]);
    }

    #[test]
    #[should_panic(expected = "row 3 after 3")]
    fn a_row_at_the_cursor_is_noticed() {
        let mut oracle = Oracle::default();
        oracle.register(group(1), 3);
        oracle.observe(&[row(1, 3)]);
    }
}
