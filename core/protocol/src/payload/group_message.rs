//! Group messages: an MLS message, framed and not opened.
//!
//! They are read with openmls. A `PrivateMessage` is six fields, but a `PublicMessage` can only be
//! told from garbage by decoding the proposals and commits inside it, with the leaf nodes and key
//! packages those carry; openmls has these rules, and takes and refuses exactly what the published
//! clients do.

use openmls::{
    framing::{ContentType, MlsMessageIn, ProtocolMessage},
    prelude::tls_codec::Deserialize,
};

use crate::{ParseError, Topic, TopicKind, proto::xmtp::backend::v1::GroupMessage};

/// The length that a sender HMAC must have to be usable, in bytes.
const SENDER_HMAC_LEN: usize = 32;

/// Reads the framing: the topic, and whether the message is a commit or a proposal.
///
/// What follows the MLS message is accepted and kept (ARC-092). Nothing is decrypted or verified.
///
/// # Errors
///
/// Bytes that do not start with an MLS 1.0 message, a message that is neither public nor private,
/// or a group id that is not 16 bytes.
pub(crate) fn parse(message: &GroupMessage) -> Result<(Topic, bool), ParseError> {
    // Read from a reader, not with `DeserializeBytes`, whose debug builds panic on truncated vectors.
    let message: ProtocolMessage = MlsMessageIn::tls_deserialize(&mut message.data.as_ref())
        .map_err(|_| ParseError::MlsMessage)?
        .try_into_protocol_message()
        .map_err(|_| ParseError::MlsWireFormat)?;
    let topic = Topic::new(TopicKind::GroupMessage, message.group_id().as_slice())?;
    let is_commit_or_proposal = match message.content_type() {
        ContentType::Application => false,
        ContentType::Proposal | ContentType::Commit => true,
    };
    Ok((topic, is_commit_or_proposal))
}

/// The sender HMAC, where it is usable (PUSH-030).
pub(crate) fn sender_hmac(message: &GroupMessage) -> Option<[u8; SENDER_HMAC_LEN]> {
    message.sender_hmac.as_ref().try_into().ok()
}
