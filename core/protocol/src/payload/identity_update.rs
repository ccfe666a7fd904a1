//! Identity updates: routed by the inbox id that they name.

use crate::{ParseError, Topic, TopicKind, proto::xmtp::identity::associations::IdentityUpdate};

/// An inbox id as bytes.
const INBOX_ID_LEN: usize = 32;

/// Reads the topic and the inbox id, which may be written in either case (TOPIC-002).
///
/// # Errors
///
/// An inbox id that is not exactly 64 hex characters.
pub(crate) fn parse(update: &IdentityUpdate) -> Result<(Topic, [u8; INBOX_ID_LEN]), ParseError> {
    let mut inbox_id = [0; INBOX_ID_LEN];
    hex::decode_to_slice(&update.inbox_id, &mut inbox_id).map_err(|_| ParseError::InboxId)?;
    Ok((Topic::new(TopicKind::IdentityUpdate, &inbox_id)?, inbox_id))
}
