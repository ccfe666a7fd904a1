//! The digest of a credential, which stands for it wherever one is compared or remembered.

use sha2::Sha256;

/// SHA-256.
pub(crate) type Digest = [u8; 32];

pub(crate) fn digest(credential: &[u8]) -> Digest {
    <Sha256 as sha2::Digest>::digest(credential).into()
}
