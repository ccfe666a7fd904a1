//! What goes in and out of a stream, before and after the transport's own encoding.

use bytes::Bytes;
use xmtp_protocol::{SequenceId, Topic};

/// A frame from the client of a bidirectional stream.
#[derive(Clone, Debug)]
pub enum ClientFrame {
    /// Change the topic set.
    Update(Update),
    /// Probe of the client.
    Ping(u64),
    /// Answer to a probe of the server.
    Pong(u64),
    /// None of the kinds is set.
    Unset,
}

/// A change of interests, as sent: nothing in it is checked yet.
#[derive(Clone)]
pub struct Update {
    /// Identifies the update on its stream.
    pub id: u64,
    /// Topics to register.
    pub adds: Vec<Interest>,
    /// Topics to drop; `None` where the topic is absent.
    pub removes: Vec<Option<Bytes>>,
    /// Length of the frame, bytes.
    pub encoded_len: usize,
}

impl Update {
    /// Stands for an update with more adds or removes than are allowed, which was therefore not decoded. It is
    /// refused in its turn, as every update whose id is 0.
    pub const fn oversized(encoded_len: usize) -> Self {
        Self {
            id: 0,
            adds: Vec::new(),
            removes: Vec::new(),
            encoded_len,
        }
    }
}

impl std::fmt::Debug for Update {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Update({} adds, {} removes)",
            self.adds.len(),
            self.removes.len()
        )
    }
}

/// A topic to register and where to start on it, as sent.
#[derive(Clone)]
pub struct Interest {
    /// Topic bytes; `None` where the topic is absent.
    pub topic: Option<Bytes>,
    /// Exclusive start position; 0 where the cursor is absent.
    pub after: u64,
}

/// The head of a topic when it was registered (API-252).
#[derive(Clone, Copy)]
pub struct Target {
    /// The topic.
    pub topic: Topic,
    /// Its head; zero for a topic without rows.
    pub through: SequenceId,
}

/// A frame to the client.
#[derive(Clone)]
pub enum Frame {
    /// First frame of a bidirectional stream.
    Started,
    /// First frame of a static stream.
    StartedStatic(Vec<Target>),
    /// An update is in force.
    Applied {
        /// Its id.
        id: u64,
        /// Targets of the topics that it newly registered, in its order.
        targets: Vec<Target>,
    },
    /// Rows, encoded as elements of `envelopes`: one or several in each part. Those of live rows are shared with
    /// every stream that gets them.
    Messages(Vec<Bytes>),
    /// Probe of a bidirectional stream.
    Ping(u64),
    /// Answer to a probe of the client.
    Pong(u64),
    /// One-way sign of life of a static stream.
    Keepalive,
}

impl Frame {
    /// Upper bound of the frame's length on the wire with the five-byte gRPC prefix.
    pub(crate) fn wire_len(&self) -> usize {
        match self {
            Self::Started | Self::Ping(_) | Self::Pong(_) | Self::Keepalive => FRAME_OVERHEAD + 11,
            Self::StartedStatic(targets) | Self::Applied { targets, .. } => {
                let targets: usize = targets.iter().map(target_len).sum();
                FRAME_OVERHEAD + 11 + targets
            }
            Self::Messages(parts) => FRAME_OVERHEAD + parts.iter().map(Bytes::len).sum::<usize>(),
        }
    }
}

/// gRPC prefix, and key and length of the frame's one oneof member.
pub(crate) const FRAME_OVERHEAD: usize = 5 + 1 + 5;

/// Upper bound: both nested messages have one-byte keys and lengths, the id at most ten bytes.
fn target_len(target: &Target) -> usize {
    2 + 2 + 2 + target.topic.as_bytes().len() + 1 + 10
}
