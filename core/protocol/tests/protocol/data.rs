//! The test data of the workspace, and ways to build envelopes from its parts.

use bytes::Bytes;
use serde::{Deserialize, de::DeserializeOwned};
use xmtp_protocol::{
    ParseError, ParsedEnvelope, TopicKind,
    proto::xmtp::backend::v1::{
        ClientEnvelope, CommitLogEntry, GroupMessage, KeyPackage, WelcomeMessage,
        client_envelope::Payload, welcome_message,
    },
};

/// A payload that a published client sent, as an envelope.
#[derive(Deserialize)]
pub(crate) struct RecordedEnvelope {
    pub(crate) kind: RecordedKind,
    #[serde(with = "hex::serde")]
    pub(crate) topic: Vec<u8>,
    #[serde(with = "hex::serde")]
    pub(crate) hash: [u8; 32],
    #[serde(with = "hex::serde")]
    pub(crate) envelope: Vec<u8>,
    pub(crate) is_commit_or_proposal: bool,
    pub(crate) source: String,
    #[serde(default)]
    pub(crate) needs_chain: bool,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RecordedKind {
    GroupMessage,
    WelcomeMessage,
    IdentityUpdate,
    KeyPackage,
    CommitLogEntry,
}

impl From<RecordedKind> for TopicKind {
    fn from(kind: RecordedKind) -> Self {
        match kind {
            RecordedKind::GroupMessage => Self::GroupMessage,
            RecordedKind::WelcomeMessage => Self::Welcome,
            RecordedKind::IdentityUpdate => Self::IdentityUpdate,
            RecordedKind::KeyPackage => Self::KeyPackage,
            RecordedKind::CommitLogEntry => Self::CommitLogEntry,
        }
    }
}

/// A crafted MLS message in the data of a group message.
#[derive(Deserialize)]
pub(crate) struct CraftedGroupMessage {
    pub(crate) name: String,
    #[serde(with = "hex::serde")]
    pub(crate) data: Vec<u8>,
    pub(crate) accepted: bool,
    /// Only where accepted.
    #[serde(default, with = "hex::serde")]
    pub(crate) group_id: Vec<u8>,
    /// Only where accepted.
    #[serde(default)]
    pub(crate) content_type: String,
}

/// A crafted key package.
#[derive(Deserialize)]
pub(crate) struct CraftedKeyPackage {
    pub(crate) name: String,
    #[serde(with = "hex::serde")]
    pub(crate) key_package: Vec<u8>,
    pub(crate) expected: KeyPackageVerdict,
    /// Not where malformed.
    #[serde(default, with = "hex::serde")]
    pub(crate) installation_key: Vec<u8>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeyPackageVerdict {
    Accepted,
    /// Parses, and fails a check.
    Invalid,
    Malformed,
    /// The sources disagree.
    Either,
}

/// Crafted bytes in a commit-log entry.
#[derive(Deserialize)]
pub(crate) struct CraftedCommitLogEntry {
    pub(crate) name: String,
    #[serde(with = "hex::serde")]
    pub(crate) entry: Vec<u8>,
    pub(crate) accepted: bool,
    /// Only where accepted.
    #[serde(default, with = "hex::serde")]
    pub(crate) group_id: Vec<u8>,
}

/// A crafted identity update, and the log before it.
#[derive(Deserialize)]
pub(crate) struct CraftedIdentityUpdate {
    pub(crate) name: String,
    pub(crate) history: Vec<HexBytes>,
    pub(crate) update: HexBytes,
    /// Absent where no text can be made.
    pub(crate) text: Option<String>,
    /// Absent where accepted.
    pub(crate) refused: Option<IdentityRefusal>,
    /// Only where accepted.
    #[serde(default)]
    pub(crate) members: Vec<String>,
    /// Only where accepted.
    #[serde(default)]
    pub(crate) recovery: String,
}

#[derive(Deserialize)]
#[serde(transparent)]
pub(crate) struct HexBytes(#[serde(with = "hex::serde")] pub(crate) Vec<u8>);

/// Why a crafted identity update is refused.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct IdentityRefusal {
    pub(crate) reason: String,
    pub(crate) kind: String,
}

/// What a recorded identity update leaves of its inbox.
#[derive(Deserialize)]
pub(crate) struct RecordedIdentityState {
    #[serde(with = "hex::serde")]
    pub(crate) hash: [u8; 32],
    pub(crate) members: Vec<String>,
    pub(crate) recovery: String,
}

/// An identifier and the inbox that it opens.
#[derive(Deserialize)]
pub(crate) struct InboxIdCase {
    pub(crate) identifier: String,
    pub(crate) kind: i32,
    pub(crate) nonce: u64,
    pub(crate) inbox_id: Option<String>,
}

macro_rules! test_data {
    ($file:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/data/",
            $file
        ))
    };
}

pub(crate) fn wire_contract() -> &'static str {
    test_data!("wire-contract.txt")
}

pub(crate) fn recorded_envelopes() -> Vec<RecordedEnvelope> {
    lines(test_data!("recorded-envelopes.jsonl"))
}

pub(crate) fn crafted_group_messages() -> Vec<CraftedGroupMessage> {
    lines(test_data!("crafted-group-messages.jsonl"))
}

pub(crate) fn crafted_key_packages() -> Vec<CraftedKeyPackage> {
    lines(test_data!("crafted-key-packages.jsonl"))
}

pub(crate) fn crafted_commit_log_entries() -> Vec<CraftedCommitLogEntry> {
    lines(test_data!("crafted-commit-log-entries.jsonl"))
}

pub(crate) fn crafted_identity_updates() -> Vec<CraftedIdentityUpdate> {
    lines(test_data!("crafted-identity-updates.jsonl"))
}

pub(crate) fn recorded_identity_states() -> Vec<RecordedIdentityState> {
    lines(test_data!("recorded-identity-states.jsonl"))
}

pub(crate) fn inbox_id_cases() -> Vec<InboxIdCase> {
    lines(test_data!("inbox-ids.jsonl"))
}

fn lines<T: DeserializeOwned>(file: &str) -> Vec<T> {
    file.lines()
        .map(|line| serde_json::from_str(line).expect("a line of test data"))
        .collect()
}

/// The data of a crafted group message that parses.
pub(crate) fn group_message_data(name: &str) -> Vec<u8> {
    crafted_group_messages()
        .into_iter()
        .find(|case| case.name == name)
        .expect("a crafted group message of that name")
        .data
}

pub(crate) fn envelope(payload: Payload) -> ClientEnvelope {
    ClientEnvelope {
        payload: Some(payload),
    }
}

pub(crate) fn group_message(data: impl Into<Bytes>) -> ClientEnvelope {
    envelope(Payload::GroupMessage(GroupMessage {
        data: data.into(),
        ..Default::default()
    }))
}

pub(crate) fn key_package(tls: impl Into<Bytes>) -> ClientEnvelope {
    let key_package_tls_serialized = tls.into();
    envelope(Payload::KeyPackage(KeyPackage {
        key_package_tls_serialized,
    }))
}

pub(crate) fn commit_log_entry(entry: impl Into<Bytes>) -> ClientEnvelope {
    let serialized_commit_log_entry = entry.into();
    envelope(Payload::CommitLogEntry(CommitLogEntry {
        serialized_commit_log_entry,
        signature: None,
    }))
}

pub(crate) fn inline_welcome(installation_key: impl Into<Bytes>) -> ClientEnvelope {
    let installation_key = installation_key.into();
    let v1 = welcome_message::V1 {
        installation_key,
        ..Default::default()
    };
    welcome(Some(welcome_message::Version::V1(v1)))
}

pub(crate) fn welcome_pointer(installation_key: impl Into<Bytes>) -> ClientEnvelope {
    let installation_key = installation_key.into();
    let pointer = welcome_message::WelcomePointer {
        installation_key,
        ..Default::default()
    };
    welcome(Some(welcome_message::Version::WelcomePointer(pointer)))
}

pub(crate) fn welcome(version: Option<welcome_message::Version>) -> ClientEnvelope {
    envelope(Payload::WelcomeMessage(WelcomeMessage { version }))
}

pub(crate) fn parsed(envelope: ClientEnvelope) -> ParsedEnvelope {
    ParsedEnvelope::parse(envelope).expect("an envelope that parses")
}

pub(crate) fn parse_error(envelope: ClientEnvelope) -> Option<ParseError> {
    ParsedEnvelope::parse(envelope).err()
}
