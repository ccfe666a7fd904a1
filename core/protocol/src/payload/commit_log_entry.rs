//! Commit-log entries: a signed verdict whose signature is the business of clients.

use prost::Message;

use crate::{
    ParseError, Topic, TopicKind,
    proto::xmtp::{backend::v1::CommitLogEntry, mls::message_contents::PlaintextCommitLogEntry},
};

/// Reads the topic: the group id inside the entry.
///
/// # Errors
///
/// Bytes that do not decode as a [`PlaintextCommitLogEntry`], or a group id that is not 16 bytes.
pub(crate) fn parse(entry: &CommitLogEntry) -> Result<Topic, ParseError> {
    let plaintext = PlaintextCommitLogEntry::decode(entry.serialized_commit_log_entry.clone())
        .map_err(|_| ParseError::CommitLogEntry)?;
    Ok(Topic::new(TopicKind::CommitLogEntry, &plaintext.group_id)?)
}
