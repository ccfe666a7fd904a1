//! Signatures of passkeys: ECDSA on P-256 over what `WebAuthn` gives an authenticator to sign.
//!
//! The type, the origin, the relying party's hash, flags and counter are not checked, and must not be
//! (SEC-032, ARC-013): the network's members take any.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use p256::ecdsa::{Signature, VerifyingKey, signature::hazmat::PrehashVerifier};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::super::error::SignatureError;
use crate::proto::xmtp::identity::associations::RecoverablePasskeySignature;

pub(in super::super) struct PasskeySignature {
    /// As given: the same point in another form is another member.
    public_key: Bytes,
    key: VerifyingKey,
    signature: Signature,
    authenticator_data: Bytes,
    client_data_json: Bytes,
}

/// The members of the client data that have to be there.
#[derive(Deserialize)]
struct ClientData {
    challenge: String,
    #[serde(rename = "origin")]
    _origin: String,
}

impl ClientData {
    fn read(json: &[u8]) -> Option<Self> {
        // The library would take an array of two strings as well.
        let is_object = json.trim_ascii_start().starts_with(b"{");
        is_object
            .then(|| serde_json::from_slice(json).ok())
            .flatten()
    }
}

impl PasskeySignature {
    pub(super) fn read(wire: &RecoverablePasskeySignature) -> Result<Self, SignatureError> {
        // Compressed or not; the library knows a third form that SEC1 does not.
        if !matches!(wire.public_key.first(), Some(2..=4)) {
            return Err(SignatureError::Invalid);
        }
        let key =
            VerifyingKey::from_sec1_bytes(&wire.public_key).map_err(|_| SignatureError::Invalid)?;
        let signature =
            Signature::from_der(&wire.signature).map_err(|_| SignatureError::Invalid)?;
        Ok(Self {
            public_key: wire.public_key.clone(),
            key,
            signature,
            authenticator_data: wire.authenticator_data.clone(),
            client_data_json: wire.client_data_json.clone(),
        })
    }

    pub(super) fn verify(&self, text: &str) -> Result<(), SignatureError> {
        let client_data =
            ClientData::read(&self.client_data_json).ok_or(SignatureError::PasskeyClientData)?;
        if client_data.challenge != BASE64_URL_SAFE_NO_PAD.encode(text) {
            return Err(SignatureError::PasskeyClientData);
        }
        let hash = Sha256::new()
            .chain_update(&self.authenticator_data)
            .chain_update(Sha256::digest(&self.client_data_json))
            .finalize();
        self.key
            .verify_prehash(&hash, &self.signature)
            .map_err(|_| SignatureError::Invalid)
    }

    pub(super) fn public_key(&self) -> Bytes {
        self.public_key.clone()
    }

    /// `r` and low `s`.
    pub(super) fn canonical(&self) -> Bytes {
        Bytes::copy_from_slice(&self.signature.normalize_s().to_bytes())
    }
}
