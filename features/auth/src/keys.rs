//! A set of verification keys, and which one of them a token is verified with (AUTH-009).

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use spki::ObjectIdentifier;
use spki::SubjectPublicKeyInfoRef;
use spki::der::asn1::{AnyRef, UintRef};
use spki::der::pem::PemLabel;
use spki::der::{Decode, Document};

use crate::algorithm::{Algorithm, KeyType, PublicKey};
use crate::families::KEYS;
use crate::verdicts::Verdicts;

/// Most bytes of a key id (AUTH-016).
pub(crate) const MAX_KID_BYTES: usize = 256;

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");

/// One verification key.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) kid: Option<String>,
    pub(crate) algorithm: Algorithm,
    pub(crate) public: PublicKey,
}

/// The public key in PEM: a `SubjectPublicKeyInfo` of the type that `algorithm` needs, and nothing else (AUTH-017).
pub(crate) fn from_pem(algorithm: Algorithm, pem: &str) -> Option<PublicKey> {
    let (label, document) = Document::from_pem(pem).ok()?;
    if label != SubjectPublicKeyInfoRef::PEM_LABEL {
        return None;
    }
    let info = SubjectPublicKeyInfoRef::from_der(document.as_bytes()).ok()?;
    let kind = algorithm.key_type();
    let (expected, curve) = match kind {
        KeyType::Rsa => (RSA, None),
        KeyType::P256 => (EC, Some(P256)),
        KeyType::P384 => (EC, Some(P384)),
        KeyType::Ed25519 => (ED25519, None),
    };
    let has_curve = match curve {
        Some(curve) => info.algorithm.parameters_oid().ok()? == curve,
        None => true,
    };
    if info.algorithm.oid != expected || !has_curve {
        return None;
    }
    let bits = info.subject_public_key.as_bytes()?;
    match kind {
        KeyType::Rsa => rsa_from_der(bits),
        kind => PublicKey::point(kind, bits),
    }
}

/// `RSAPublicKey` of RFC 8017: a sequence of modulus and exponent.
fn rsa_from_der(der: &[u8]) -> Option<PublicKey> {
    let (modulus, exponent) = AnyRef::from_der(der)
        .and_then(|any| {
            any.sequence(|reader| Ok((UintRef::decode(reader)?, UintRef::decode(reader)?)))
        })
        .ok()?;
    PublicKey::rsa(modulus.as_bytes(), exponent.as_bytes())
}

/// Keys that are valid at the same time, and what they have been found to sign: it is forgotten with them.
#[derive(Debug, Default)]
pub(crate) struct KeySet {
    keys: Vec<Key>,
    verdicts: Verdicts,
}

impl KeySet {
    pub(crate) fn new(keys: Vec<Key>) -> Self {
        Self {
            keys,
            verdicts: Verdicts::default(),
        }
    }

    pub(crate) fn keys(&self) -> &[Key] {
        &self.keys
    }

    pub(crate) fn verdicts(&self) -> &Verdicts {
        &self.verdicts
    }

    /// The one key for a token. With a key id, the one that has it, if it is for `algorithm`; without, the one for
    /// `algorithm`. `None` where there is no such key, or more than one.
    pub(crate) fn select(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<&Key> {
        let fits = |key: &&Key| match kid {
            Some(kid) => key.kid.as_deref() == Some(kid),
            None => key.algorithm == algorithm,
        };
        let mut candidates = self.keys.iter().filter(fits);
        let key = candidates.next()?;
        let is_only = candidates.next().is_none();
        (is_only && key.algorithm == algorithm).then_some(key)
    }
}

/// The set that is valid now. Cheap to clone; requests read it, and the refresh replaces it as a whole.
#[derive(Clone)]
pub(crate) struct CurrentKeys(Arc<RwLock<Arc<KeySet>>>);

impl CurrentKeys {
    pub(crate) fn new(keys: KeySet) -> Self {
        let current = Self(Arc::default());
        current.replace(keys);
        current
    }

    pub(crate) fn get(&self) -> Arc<KeySet> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn replace(&self, keys: KeySet) {
        // At most 64 of a JWKS, and no document lists more inline than fit a 32-bit number.
        let count = u32::try_from(keys.keys.len()).unwrap_or(u32::MAX);
        KEYS.set(&[], count.into());
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }
}

impl fmt::Debug for CurrentKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.get().keys.len())
    }
}
