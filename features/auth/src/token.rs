//! A JWT in the compact form: its parts, read in the order in which they may be believed (RFC 7515, RFC 7519).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use crate::algorithm::Algorithm;
use crate::digest::Digest;
use crate::keys::{Key, KeySet, MAX_KID_BYTES};
use crate::reason::Reason;

/// The claims of `token`, whose digest is `digest`, if the one key for it has signed it. A signature that was not judged
/// of late waits for its `turn`.
///
/// # Errors
/// The first that fails of: what [`read`] reads, the signature (AUTH-010).
pub(crate) async fn verified(
    token: &str,
    digest: &Digest,
    keys: &KeySet,
    turn: impl Future,
) -> Result<Map<String, Value>, Reason> {
    let (key, claims) = read(token, keys)?;
    match keys.verdicts().known(digest) {
        Some(true) => return Ok(claims),
        Some(false) => return Err(Reason::Untrusted),
        // Many times larger than the text, and whoever waits may be many.
        None => drop(claims),
    }
    let _turn = turn.await;
    // Whoever connects again sends its token many times at once: the first of them may have had it judged.
    if keys.verdicts().of(digest, || is_signed(token, key)) {
        Ok(read(token, keys)?.1)
    } else {
        Err(Reason::Untrusted)
    }
}

/// The key that has to have signed `token`, and its claims.
///
/// # Errors
/// The first that fails of: the form of the token and of its header (AUTH-005), its algorithm (AUTH-008), the length
/// of its key id and the form of its claims, the choice of the key (AUTH-009).
fn read<'a>(token: &str, keys: &'a KeySet) -> Result<(&'a Key, Map<String, Value>), Reason> {
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
    Ok((key, claims))
}

/// Whether the last segment is a signature of the others by `key`.
fn is_signed(token: &str, key: &Key) -> bool {
    let Some((signed, signature)) = token.rsplit_once('.') else {
        return false;
    };
    let signature = URL_SAFE_NO_PAD.decode(signature);
    let verifies = |signature: Vec<u8>| {
        let (signed, algorithm) = (signed.as_bytes(), key.algorithm);
        key.public.verifies(algorithm, signed, &signature)
    };
    signature.is_ok_and(verifies)
}

/// A segment: a JSON object in base64url without padding.
fn decode(segment: &str) -> Option<Map<String, Value>> {
    let bytes = URL_SAFE_NO_PAD.decode(segment).ok()?;
    serde_json::from_slice(&bytes).ok()
}
