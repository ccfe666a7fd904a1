//! Key packages: a bare MLS `KeyPackage` that fills its field to the last byte.
//!
//! They are read with openmls, whose feature `draft-ietf-mls-pq-ciphersuites` is on because without
//! it the suite 0x004D (X-Wing), which has to pass, is an unknown number.

use openmls::prelude::{KeyPackageIn, tls_codec::Deserialize};

use crate::{ParseError, Topic, TopicKind, proto::xmtp::backend::v1::KeyPackage};

/// Reads the topic: the signature key of the leaf node.
///
/// # Errors
///
/// Bytes that are not exactly one key package, or a signature key that is not 32 bytes. The latter
/// makes a sound package of another signature scheme unroutable (TOPIC-002).
pub(crate) fn parse(key_package: &KeyPackage) -> Result<Topic, ParseError> {
    let parsed = KeyPackageIn::tls_deserialize_exact(&key_package.key_package_tls_serialized)
        .map_err(|_| ParseError::KeyPackage)?;
    let owner = parsed.unverified_credential().signature_key;
    Ok(Topic::new(TopicKind::KeyPackage, owner.as_slice())?)
}
