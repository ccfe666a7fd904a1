//! Key packages: a bare MLS `KeyPackage` that fills its field to the last byte.

use crate::{
    ParseError, Topic, TopicKind, key_package::KeyPackage as MlsKeyPackage,
    proto::xmtp::backend::v1::KeyPackage,
};

/// Reads the topic: the signature key of the leaf node.
///
/// # Errors
///
/// Bytes that are not exactly one key package, or a signature key that is not 32 bytes. The latter
/// makes a sound package of another signature scheme unroutable (TOPIC-002).
pub(crate) fn parse(key_package: &KeyPackage) -> Result<Topic, ParseError> {
    let package = MlsKeyPackage::decode(&key_package.key_package_tls_serialized)
        .ok_or(ParseError::KeyPackage)?;
    Ok(Topic::new(TopicKind::KeyPackage, package.signature_key())?)
}
