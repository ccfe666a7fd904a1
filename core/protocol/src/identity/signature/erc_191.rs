//! Signatures of Ethereum accounts over a personal message (EIP-191, version 0x45).

use bytes::Bytes;
use k256::ecdsa::{RecoveryId, Signature, VerifyingKey};
use sha3::{Digest, Keccak256};

use super::super::{error::SignatureError, identifier::ADDRESS_LEN};

/// `r`, `s` and the recovery byte.
const LEN: usize = 65;

/// A signature in its canonical form: low `s`, and the parity that goes with it.
pub(in super::super) struct Erc191 {
    signature: Signature,
    is_y_odd: bool,
}

impl Erc191 {
    /// Reads `r`, `s` and the recovery byte, which is 0, 1, 27 or 28. A high `s` is lowered, which turns
    /// the parity around.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, SignatureError> {
        let bytes: &[u8; LEN] = bytes.try_into().map_err(|_| SignatureError::Length)?;
        let (scalars, recovery) = bytes.split_at(LEN - 1);
        let is_y_odd = match recovery[0] {
            0 | 27 => false,
            1 | 28 => true,
            _ => return Err(SignatureError::Invalid),
        };
        // Refuses scalars that are zero or not below the order.
        let signature = Signature::from_slice(scalars).map_err(|_| SignatureError::Invalid)?;
        let low = signature.normalize_s();
        Ok(Self {
            is_y_odd: is_y_odd ^ (low != signature),
            signature: low,
        })
    }

    /// The address whose key made this signature of `hash`. For another text that is another address,
    /// not an error.
    pub(super) fn recover(&self, hash: &[u8; 32]) -> Result<[u8; ADDRESS_LEN], SignatureError> {
        let recovery = RecoveryId::new(self.is_y_odd, false);
        let key = VerifyingKey::recover_from_prehash(hash, &self.signature, recovery)
            .map_err(|_| SignatureError::Invalid)?;
        // The uncompressed point without its tag.
        let point = key.to_sec1_point(false);
        let hash = keccak_256(&[&point.as_bytes()[1..]]);
        let mut address = [0; ADDRESS_LEN];
        address.copy_from_slice(&hash[32 - ADDRESS_LEN..]);
        Ok(address)
    }

    /// `r`, low `s`, and 0 or 1.
    pub(super) fn canonical(&self) -> Bytes {
        let scalars = self.signature.to_bytes();
        [scalars.as_slice(), &[u8::from(self.is_y_odd)]]
            .concat()
            .into()
    }
}

/// The hash of a personal message: what `erc_191` signs and what a contract wallet is asked about.
pub(super) fn personal_message_hash(text: &str) -> [u8; 32] {
    let prefix = format!("\x19Ethereum Signed Message:\n{}", text.len());
    keccak_256(&[prefix.as_bytes(), text.as_bytes()])
}

/// Keccak-256, as Ethereum has it, of the concatenated `parts`.
fn keccak_256(parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Keccak256::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize().into()
}
