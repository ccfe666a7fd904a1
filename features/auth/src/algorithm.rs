//! The six signature algorithms, and the public keys that they verify with (RFC 7518, RFC 8037).

use std::fmt;

use ring::signature::{
    self, EcdsaVerificationAlgorithm, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey,
};

/// A JWS algorithm (AUTH-008).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Es256,
    Es384,
    EdDsa,
}

/// What kind of key an algorithm needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyType {
    Rsa,
    P256,
    P384,
    Ed25519,
}

impl Algorithm {
    pub(crate) const ALL: [Self; 6] = [
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Es256,
        Self::Es384,
        Self::EdDsa,
    ];

    /// The value of `alg`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::EdDsa => "EdDSA",
        }
    }

    /// The algorithm of that name; `None` for `none`, for every HMAC and for everything else.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    pub(crate) const fn key_type(self) -> KeyType {
        match self {
            Self::Rs256 | Self::Rs384 | Self::Rs512 => KeyType::Rsa,
            Self::Es256 => KeyType::P256,
            Self::Es384 => KeyType::P384,
            Self::EdDsa => KeyType::Ed25519,
        }
    }

    /// PKCS#1 v1.5, for the RSA algorithms.
    const fn rsa(self) -> Option<&'static RsaParameters> {
        match self {
            Self::Rs256 => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
            Self::Rs384 => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
            Self::Rs512 => Some(&signature::RSA_PKCS1_2048_8192_SHA512),
            _ => None,
        }
    }

    /// With signatures in the form r‖s, for the ECDSA algorithms.
    const fn ecdsa(self) -> Option<&'static EcdsaVerificationAlgorithm> {
        match self {
            Self::Es256 => Some(&signature::ECDSA_P256_SHA256_FIXED),
            Self::Es384 => Some(&signature::ECDSA_P384_SHA384_FIXED),
            _ => None,
        }
    }
}

impl KeyType {
    /// Bytes of one coordinate, for the elliptic curves that have two.
    pub(crate) const fn coordinate_bytes(self) -> Option<usize> {
        match self {
            Self::P256 => Some(32),
            Self::P384 => Some(48),
            Self::Rsa | Self::Ed25519 => None,
        }
    }
}

/// A public key of the type that its algorithm needs.
#[derive(Clone)]
pub(crate) enum PublicKey {
    /// Modulus and exponent, both without leading zeros.
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    /// An uncompressed point, or the 32 bytes of Ed25519.
    Point(Vec<u8>),
}

/// Least and most bits of an RSA modulus (RFC 7518, section 3.3, and what is verified in bounded time).
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// Most bytes of an RSA exponent.
const MAX_EXPONENT_BYTES: usize = 4;

impl PublicKey {
    /// Of unsigned big-endian numbers. `None` for a modulus or an exponent that no signature is verified with.
    pub(crate) fn rsa(modulus: &[u8], exponent: &[u8]) -> Option<Self> {
        let (modulus, exponent) = (trimmed(modulus), trimmed(exponent));
        let first = modulus.first()?;
        let bits = modulus.len() * 8 - first.leading_zeros() as usize;
        let is_odd = |number: &[u8]| number.last().is_some_and(|last| last % 2 == 1);
        let sound = RSA_BITS.contains(&bits)
            && is_odd(modulus)
            && is_odd(exponent)
            && exponent.len() <= MAX_EXPONENT_BYTES
            && exponent != [1];
        sound.then(|| Self::Rsa {
            modulus: modulus.to_owned(),
            exponent: exponent.to_owned(),
        })
    }

    /// Of the encoded point of a curve. `None` for another length or form.
    pub(crate) fn point(kind: KeyType, point: &[u8]) -> Option<Self> {
        let sound = match kind.coordinate_bytes() {
            Some(bytes) => point.len() == 1 + 2 * bytes && point[0] == 4,
            None => kind == KeyType::Ed25519 && point.len() == 32,
        };
        sound.then(|| Self::Point(point.to_owned()))
    }

    /// Whether `signature` is one of `message` by this key.
    pub(crate) fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        let verified = match (self, algorithm.rsa(), algorithm.ecdsa()) {
            (Self::Rsa { modulus, exponent }, Some(parameters), _) => RsaPublicKeyComponents {
                n: modulus,
                e: exponent,
            }
            .verify(parameters, message, signature),
            (Self::Point(point), None, Some(parameters)) => {
                UnparsedPublicKey::new(parameters, point).verify(message, signature)
            }
            (Self::Point(point), None, None) => {
                UnparsedPublicKey::new(&signature::ED25519, point).verify(message, signature)
            }
            (Self::Rsa { .. }, None, _) | (Self::Point(_), Some(_), _) => return false,
        };
        verified.is_ok()
    }
}

fn trimmed(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

/// Shows no key material.
impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PublicKey(..)")
    }
}
