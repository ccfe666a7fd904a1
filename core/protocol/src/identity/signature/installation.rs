//! Signatures of installations: Ed25519ph (RFC 8032, section 5.1).

use bytes::Bytes;
use ed25519_dalek::{Signature, VerifyingKey};
use sha2::{Digest, Sha512};

use super::super::error::SignatureError;
use crate::proto::xmtp::identity::associations::RecoverableEd25519Signature;

/// The context, which tells these signatures from all others that the key makes.
const CONTEXT: &[u8] = b"IDENTITY UPDATE SIGNATURE";

pub(in super::super) struct InstallationSignature {
    key: VerifyingKey,
    signature: Signature,
}

impl InstallationSignature {
    pub(super) fn read(wire: &RecoverableEd25519Signature) -> Result<Self, SignatureError> {
        let key = wire
            .public_key
            .as_ref()
            .try_into()
            .map_err(|_| SignatureError::KeyLength)?;
        let signature = wire
            .bytes
            .as_ref()
            .try_into()
            .map_err(|_| SignatureError::Length)?;
        Ok(Self {
            key: VerifyingKey::from_bytes(key).map_err(|_| SignatureError::Invalid)?,
            signature: Signature::from_bytes(signature),
        })
    }

    /// The check without cofactor, with canonical `S`; keys of small order are not refused, because they
    /// never were.
    pub(super) fn verify(&self, text: &str) -> Result<(), SignatureError> {
        let prehash = Sha512::new_with_prefix(text);
        self.key
            .verify_prehashed(prehash, Some(CONTEXT), &self.signature)
            .map_err(|_| SignatureError::Invalid)
    }

    pub(super) fn public_key(&self) -> Bytes {
        Bytes::copy_from_slice(self.key.as_bytes())
    }

    pub(super) fn canonical(&self) -> Bytes {
        Bytes::copy_from_slice(&self.signature.to_bytes())
    }
}
