//! Key packages, checked as the members of the network check them (RFC 9420, sections 10.1 and 7.3).
//!
//! They are decoded here and verified with ed25519-dalek, not with openmls, although that is at hand for
//! group messages. openmls checks lifetimes against the system's clock alone, which a browser does not
//! have and a test cannot turn; it refuses packages that published clients take (a GREASE extension, a
//! required-capabilities extension in a leaf); and it allocates what a length announces before the bytes
//! are there. A key package is a dozen fields, and no state comes with it.

mod decode;
mod reader;

use ed25519_dalek::{Signature, VerifyingKey};
use prost::Message;
use thiserror::Error;

use crate::proto::xmtp::identity::MlsCredential;
pub(crate) use decode::KeyPackage;
use decode::{BASIC_CREDENTIAL, LeafNodeSource};

/// The protocol version `mls10`.
const MLS_10: u16 = 1;
/// The cipher suites whose signatures are Ed25519. No other has keys of 32 bytes that verify.
const ED25519_SUITES: [u16; 3] = [1, 3, 0x004D];
/// The extension types that need not be among the capabilities: those of RFC 9420.
const DEFAULT_EXTENSIONS: std::ops::RangeInclusive<u16> = 1..=5;

/// Why a key package that parses is refused: `REASON_INVALID_KEY_PACKAGE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyPackageError {
    /// The bytes are not exactly one key package. Nothing that was parsed before gives this.
    #[error("key package does not parse")]
    Malformed,
    /// The leaf node was made for an update or a commit.
    #[error("leaf node is not of a key package")]
    LeafNodeSource,
    /// The signature of the leaf node does not verify under its signature key.
    #[error("signature of the leaf node does not verify")]
    LeafNodeSignature,
    /// The protocol version is not MLS 1.0.
    #[error("unsupported MLS version")]
    Version,
    /// The init key is the encryption key of the leaf.
    #[error("init key and encryption key are equal")]
    InitKey,
    /// The signature of the package does not verify.
    #[error("signature of the key package does not verify")]
    Signature,
    /// The leaf's capabilities do not list an extension of the package.
    #[error("extension is not among the capabilities")]
    UnsupportedExtension,
    /// It is too early or too late (JOIN-008).
    #[error("outside of the lifetime")]
    Lifetime,
    /// The credential is not a basic one that holds an `MlsCredential` (JOIN-004).
    #[error("credential is not a basic MLS credential")]
    Credential,
}

/// Checks a key package at a time in Unix seconds (API-230, JOIN-007).
///
/// The form of the inbox id, the length of the lifetime, the cipher suite beyond its signature scheme and
/// what the capabilities list beyond the package's own extensions are not checked (API-235).
///
/// # Errors
///
/// The first check that fails.
pub fn check_key_package(tls: &[u8], now_unix_seconds: u64) -> Result<(), KeyPackageError> {
    let package = KeyPackage::decode(tls).ok_or(KeyPackageError::Malformed)?;
    let leaf = &package.leaf;
    let LeafNodeSource::KeyPackage {
        not_before,
        not_after,
    } = leaf.source
    else {
        return Err(KeyPackageError::LeafNodeSource);
    };
    let key = verifying_key(&package).ok_or(KeyPackageError::LeafNodeSignature)?;
    if !is_signed(&key, "LeafNodeTBS", leaf.to_be_signed, leaf.signature) {
        return Err(KeyPackageError::LeafNodeSignature);
    }
    if package.version != MLS_10 {
        return Err(KeyPackageError::Version);
    }
    if package.init_key == leaf.encryption_key {
        return Err(KeyPackageError::InitKey);
    }
    if !is_signed(
        &key,
        "KeyPackageTBS",
        package.to_be_signed,
        package.signature,
    ) {
        return Err(KeyPackageError::Signature);
    }
    let is_supported =
        |kind: &u16| DEFAULT_EXTENSIONS.contains(kind) || leaf.capable_of.contains(kind);
    if !package.extensions.iter().all(is_supported) {
        return Err(KeyPackageError::UnsupportedExtension);
    }
    if !(not_before..not_after).contains(&now_unix_seconds) {
        return Err(KeyPackageError::Lifetime);
    }
    let is_basic = leaf.credential.credential_type == BASIC_CREDENTIAL;
    if !is_basic || MlsCredential::decode(leaf.credential.content).is_err() {
        return Err(KeyPackageError::Credential);
    }
    Ok(())
}

/// The signature key, if it is one of the suite's scheme.
fn verifying_key(package: &KeyPackage<'_>) -> Option<VerifyingKey> {
    if !ED25519_SUITES.contains(&package.cipher_suite) {
        return None;
    }
    let key = package.signature_key().try_into().ok()?;
    VerifyingKey::from_bytes(key).ok()
}

/// Verifies `SignWithLabel` (RFC 9420, section 5.1.2), strictly: keys of small order are refused.
fn is_signed(key: &VerifyingKey, label: &str, content: &[u8], signature: &[u8]) -> bool {
    let Ok(signature) = Signature::from_slice(signature) else {
        return false;
    };
    let label = format!("MLS 1.0 {label}");
    let mut signed = Vec::with_capacity(label.len() + content.len() + 8);
    for part in [label.as_bytes(), content] {
        put_length(part.len(), &mut signed);
        signed.extend_from_slice(part);
    }
    key.verify_strict(&signed, &signature).is_ok()
}

/// The length of a vector, in its shortest form.
fn put_length(len: usize, out: &mut Vec<u8>) {
    // What stood in a field of a message is shorter than 2^30 bytes.
    let [.., a, b, c, d] = len.to_be_bytes();
    match len {
        ..0x40 => out.push(d),
        0x40..0x4000 => out.extend_from_slice(&[0x40 | c, d]),
        _ => out.extend_from_slice(&[0x80 | a, b, c, d]),
    }
}
