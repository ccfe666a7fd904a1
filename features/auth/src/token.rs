//! A JWT in the compact form: its parts, read in the order in which they may be believed (RFC 7515, RFC 7519).

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use crate::algorithm::{Algorithm, PublicKey};
use crate::digest::Digest;
use crate::keys::{KeySet, MAX_KID_BYTES};
use crate::rejection::Reason;
use crate::turns::Turns;

/// The claims of `token`, whose digest is `digest`, if the one key for it has signed it. A signature that was not judged
/// before waits for its turn.
///
/// # Errors
/// The first that fails of: the form of the token and of its header (AUTH-005), its algorithm (AUTH-008), the length
/// of its key id and the form of its claims, the choice of the key (AUTH-009), the signature (AUTH-010).
pub(crate) async fn verified(
    token: &str,
    digest: &Digest,
    keys: &Arc<KeySet>,
    turns: &Turns,
) -> Result<Map<String, Value>, Reason> {
    let mut segments = token.split('.');
    let (Some(header), Some(payload), Some(_), None) = (
        segments.next(),
        segments.next(),
        segments.next(),
        segments.next(),
    ) else {
        return Err(Reason::Malformed);
    };
    let header = decode(header).ok_or(Reason::Malformed)?;
    let algorithm = header.get("alg").and_then(Value::as_str);
    let algorithm = algorithm.ok_or(Reason::Malformed)?;
    let kid = match header.get("kid") {
        None => None,
        Some(kid) => Some(kid.as_str().ok_or(Reason::Malformed)?),
    };
    if header.contains_key("crit") {
        // No extension is understood here (RFC 7515, section 4.1.11).
        return Err(Reason::Malformed);
    }
    let algorithm = Algorithm::named(algorithm).ok_or(Reason::UnsupportedAlg)?;
    if kid.is_some_and(|kid| kid.len() > MAX_KID_BYTES) {
        return Err(Reason::Malformed);
    }
    let claims = decode(payload).ok_or(Reason::Malformed)?;
    let key = keys.select(kid, algorithm).ok_or(Reason::Untrusted)?;
    let is_good = if let Some(known) = keys.verdicts().known(digest) {
        known
    } else {
        let (public, token, digest) = (key.public.clone(), token.to_owned(), *digest);
        let keys = Arc::clone(keys);
        // Whoever connects again sends its token many times at once: it is judged for the first of them.
        let judge = move || {
            let is_signed = || is_signed(&token, &public, algorithm);
            keys.verdicts().of(&digest, is_signed)
        };
        turns.take(judge).await.unwrap_or(false)
    };
    if is_good {
        Ok(claims)
    } else {
        Err(Reason::Untrusted)
    }
}

/// Whether the last segment is a signature of the others.
fn is_signed(token: &str, key: &PublicKey, algorithm: Algorithm) -> bool {
    let Some((signed, signature)) = token.rsplit_once('.') else {
        return false;
    };
    let signature = URL_SAFE_NO_PAD.decode(signature);
    signature.is_ok_and(|signature| key.verifies(algorithm, signed.as_bytes(), &signature))
}

/// A segment: a JSON object in base64url without padding.
fn decode(segment: &str) -> Option<Map<String, Value>> {
    let bytes = URL_SAFE_NO_PAD.decode(segment).ok()?;
    serde_json::from_slice(&bytes).ok()
}
