//! Envelopes: from what a client sends to what is stored.

use std::fmt;

use bytes::Bytes;
use prost::Message;
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::{
    Topic, TopicError,
    payload::{
        commit_log_entry, group_message, identity_update,
        identity_update::contract_wallet_signatures, key_package, welcome,
    },
    proto::xmtp::{
        backend::v1::{self as wire, ClientEnvelope, client_envelope::Payload},
        identity::associations::IdentityUpdate,
    },
};

/// The length of the canonical encoding, in bytes, known without encoding or parsing.
///
/// It can exceed the length on the wire: an enum sent as the five-byte varint 0xFFFFFFFF is -1 and
/// takes ten bytes when written again.
pub fn canonical_len(envelope: &ClientEnvelope) -> usize {
    envelope.encoded_len()
}

/// SHA-256 of the canonical encoding of an envelope (API-211). `Debug` does not show it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageHash([u8; Self::LEN]);

impl MessageHash {
    /// The length of a hash, in bytes.
    pub const LEN: usize = 32;

    fn of(canonical: &[u8]) -> Self {
        Self(Sha256::digest(canonical).into())
    }

    /// The hash as it stands on the wire and in a row.
    pub const fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl From<[u8; Self::LEN]> for MessageHash {
    fn from(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }
}

impl From<MessageHash> for wire::MessageHash {
    fn from(hash: MessageHash) -> Self {
        let sha256 = Bytes::copy_from_slice(hash.as_bytes());
        Self {
            hash: Some(wire::message_hash::Hash::Sha256(sha256)),
        }
    }
}

impl fmt::Debug for MessageHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MessageHash(..)")
    }
}

/// Why an envelope cannot be stored, whoever sends it: `REASON_MALFORMED_PAYLOAD` (API-230).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    /// The envelope carries none of the five payloads.
    #[error("payload is unset")]
    PayloadUnset,
    /// The data of a group message does not start with an MLS 1.0 message.
    #[error("group message is not an MLS message")]
    MlsMessage,
    /// The data of a group message is a Welcome, a `GroupInfo` or a `KeyPackage`.
    #[error("group message is neither a public nor a private MLS message")]
    MlsWireFormat,
    /// A welcome is neither inline nor a pointer.
    #[error("welcome version is unset")]
    WelcomeVersionUnset,
    /// The bytes are not exactly one MLS key package.
    #[error("key package does not parse")]
    KeyPackage,
    /// An inbox id is not 64 hex characters.
    #[error("inbox id is not 64 hex characters")]
    InboxId,
    /// The bytes inside a commit-log entry do not decode.
    #[error("commit-log entry does not decode")]
    CommitLogEntry,
    /// The payload parses, and names an identifier that gives no legal topic (TOPIC-002).
    #[error("payload gives no legal topic")]
    Topic(#[from] TopicError),
}

/// An envelope that has been parsed and can be validated and stored.
#[derive(Clone)]
pub struct ParsedEnvelope {
    /// Derived from the payload (TOPIC-001).
    pub topic: Topic,
    /// The hash of `payload`; with the topic, what makes a publish idempotent (API-211).
    pub hash: MessageHash,
    /// The canonical encoding of the whole [`ClientEnvelope`], as it is stored and returned.
    pub payload: Bytes,
    /// A group message that is an MLS commit or proposal (API-212).
    pub is_commit_or_proposal: bool,
    /// Whether storing the envelope may cause a push (PUSH-030, PUSH-031).
    pub push_eligible: bool,
    /// With it a recipient's own messages are told apart (PUSH-030, PUSH-031).
    pub sender_hmac: Option<[u8; 32]>,
    /// What validation needs.
    pub content: Content,
}

/// The part of a payload that is validated after parsing.
#[derive(Clone)]
pub enum Content {
    /// Nothing is validated beyond parsing.
    GroupMessage,
    /// Nothing is validated beyond parsing.
    Welcome,
    /// The update has to apply to the history of its inbox. Decoded it can take a hundred times its encoded
    /// length, so it is not kept: [`ParsedEnvelope::identity_update`].
    IdentityUpdate {
        /// The inbox id, hex decoded.
        inbox_id: [u8; 32],
        /// Contract-wallet signatures (ERC-6492) in every slot of every action.
        contract_wallet_signatures: usize,
    },
    /// The package has to be signed, current, and so on.
    KeyPackage {
        /// The MLS `KeyPackage` in TLS encoding.
        tls: Bytes,
    },
    /// Nothing is validated beyond parsing.
    CommitLogEntry,
}

impl ParsedEnvelope {
    /// Parses the payload, derives the topic, and encodes the envelope once, in its canonical form.
    ///
    /// Canonical is what protobuf encoding yields for the decoded message: fields in ascending
    /// order, each singular one once, implicit ones left out at zero, unknown ones gone. Two
    /// envelopes that decode to the same value have the same bytes and hash (API-211).
    ///
    /// # Errors
    ///
    /// A payload that is unset or does not parse, or that gives no legal topic.
    pub fn parse(envelope: ClientEnvelope) -> Result<Self, ParseError> {
        let canonical = Bytes::from(envelope.encode_to_vec());
        match envelope.payload.ok_or(ParseError::PayloadUnset)? {
            Payload::GroupMessage(message) => {
                let (topic, is_commit_or_proposal) = group_message::parse(&message)?;
                Ok(Self {
                    is_commit_or_proposal,
                    push_eligible: is_commit_or_proposal || message.should_push,
                    sender_hmac: group_message::sender_hmac(&message),
                    ..Self::unpushed(topic, canonical, Content::GroupMessage)
                })
            }
            Payload::WelcomeMessage(welcome) => {
                let topic = welcome::parse(&welcome)?;
                Ok(Self {
                    push_eligible: true,
                    ..Self::unpushed(topic, canonical, Content::Welcome)
                })
            }
            Payload::IdentityUpdate(update) => {
                let (topic, inbox_id) = identity_update::parse(&update)?;
                Ok(Self::unpushed(
                    topic,
                    canonical,
                    Content::IdentityUpdate {
                        inbox_id,
                        contract_wallet_signatures: contract_wallet_signatures(&update),
                    },
                ))
            }
            Payload::KeyPackage(key_package) => {
                let topic = key_package::parse(&key_package)?;
                let tls = key_package.key_package_tls_serialized;
                Ok(Self::unpushed(
                    topic,
                    canonical,
                    Content::KeyPackage { tls },
                ))
            }
            Payload::CommitLogEntry(entry) => {
                let topic = commit_log_entry::parse(&entry)?;
                Ok(Self::unpushed(topic, canonical, Content::CommitLogEntry))
            }
        }
    }

    /// The identity update that the envelope holds, decoded again.
    pub fn identity_update(&self) -> Option<IdentityUpdate> {
        match ClientEnvelope::decode(self.payload.clone()).ok()?.payload? {
            Payload::IdentityUpdate(update) => Some(update),
            _ => None,
        }
    }

    /// An envelope of a kind that causes no push (PUSH-031).
    fn unpushed(topic: Topic, canonical: Bytes, content: Content) -> Self {
        Self {
            topic,
            hash: MessageHash::of(&canonical),
            payload: canonical,
            is_commit_or_proposal: false,
            push_eligible: false,
            sender_hmac: None,
            content,
        }
    }
}

impl fmt::Debug for ParsedEnvelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParsedEnvelope")
            .field("topic", &self.topic)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GroupMessage => "GroupMessage",
            Self::Welcome => "Welcome",
            Self::IdentityUpdate { .. } => "IdentityUpdate { .. }",
            Self::KeyPackage { .. } => "KeyPackage { .. }",
            Self::CommitLogEntry => "CommitLogEntry",
        })
    }
}
