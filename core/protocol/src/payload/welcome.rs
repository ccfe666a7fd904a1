//! Welcomes: opaque but for the key that they are addressed to.

use crate::{
    ParseError, Topic, TopicKind,
    proto::xmtp::backend::v1::{WelcomeMessage, welcome_message::Version},
};

/// Reads the topic. The key need not belong to an installation: the welcome that a pointer leads to
/// is stored under 32 random bytes.
///
/// # Errors
///
/// An unset version, or a key that is not 32 bytes.
pub(crate) fn parse(welcome: &WelcomeMessage) -> Result<Topic, ParseError> {
    let installation_key = match welcome
        .version
        .as_ref()
        .ok_or(ParseError::WelcomeVersionUnset)?
    {
        Version::V1(inline) => &inline.installation_key,
        Version::WelcomePointer(pointer) => &pointer.installation_key,
    };
    Ok(Topic::new(TopicKind::Welcome, installation_key)?)
}
