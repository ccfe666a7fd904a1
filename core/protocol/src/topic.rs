//! Topics: the address of each ordered log of envelopes.

use std::fmt;

use thiserror::Error;

/// What a topic holds. The numbers are the kind bytes of the wire and keep their meaning for good
/// (TOPIC-001).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum TopicKind {
    /// Messages of one group, by MLS group id.
    GroupMessage = 0,
    /// Welcomes, by the installation key of the receiver.
    Welcome = 1,
    /// The association log of one inbox, by inbox id.
    IdentityUpdate = 2,
    /// Key packages, by the installation key of their owner.
    KeyPackage = 3,
    /// The commit log of one group, by MLS group id.
    CommitLogEntry = 4,
}

impl TopicKind {
    /// Every kind, in the order of the kind bytes.
    pub const ALL: [Self; 5] = [
        Self::GroupMessage,
        Self::Welcome,
        Self::IdentityUpdate,
        Self::KeyPackage,
        Self::CommitLogEntry,
    ];

    /// The length of an identifier of this kind, in bytes.
    pub const fn identifier_len(self) -> usize {
        match self {
            Self::GroupMessage | Self::CommitLogEntry => 16,
            Self::Welcome | Self::IdentityUpdate | Self::KeyPackage => 32,
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }
}

/// Why bytes are no topic (TOPIC-002, TOPIC-003).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TopicError {
    /// There is not even a kind byte.
    #[error("topic is empty")]
    Empty,
    /// The kind byte has no meaning.
    #[error("unknown topic kind")]
    UnknownKind,
    /// The identifier has not the length of its kind.
    #[error("topic identifier has the wrong length")]
    IdentifierLength,
}

/// A legal topic: a kind byte and an identifier of the length that the kind asks for.
///
/// Topics order as their bytes do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Topic {
    kind: TopicKind,
    /// The kind byte, the identifier, then zeros. The kind says where the identifier ends.
    bytes: [u8; Self::MAX_LEN],
}

impl Topic {
    /// The length of the longest topic, in bytes.
    pub const MAX_LEN: usize = 33;

    /// Reads a topic as it stands in a request or a row (TOPIC-003).
    ///
    /// # Errors
    ///
    /// An empty topic, an unknown kind, or an identifier of the wrong length.
    pub fn parse(bytes: &[u8]) -> Result<Self, TopicError> {
        let (&kind, identifier) = bytes.split_first().ok_or(TopicError::Empty)?;
        Self::new(
            TopicKind::from_byte(kind).ok_or(TopicError::UnknownKind)?,
            identifier,
        )
    }

    /// Makes the topic of an identifier (TOPIC-001, TOPIC-002).
    ///
    /// # Errors
    ///
    /// [`TopicError::IdentifierLength`] unless the identifier has exactly
    /// [`TopicKind::identifier_len`] bytes.
    pub fn new(kind: TopicKind, identifier: &[u8]) -> Result<Self, TopicError> {
        if identifier.len() != kind.identifier_len() {
            return Err(TopicError::IdentifierLength);
        }
        let mut bytes = [0; Self::MAX_LEN];
        bytes[0] = kind as u8;
        bytes[1..=identifier.len()].copy_from_slice(identifier);
        Ok(Self { kind, bytes })
    }

    /// What the topic holds.
    pub const fn kind(&self) -> TopicKind {
        self.kind
    }

    /// Whose log it is: [`TopicKind::identifier_len`] bytes.
    pub fn identifier(&self) -> &[u8] {
        &self.as_bytes()[1..]
    }

    /// The topic as it stands on the wire and in a row: kind byte, then identifier.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..=self.kind.identifier_len()]
    }
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topic")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}
