//! A JWKS document: which of its entries are keys for here (AUTH-016, RFC 7517).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::algorithm::{Algorithm, KeyType, PublicKey};
use crate::keys::{Key, KeySet, MAX_KID_BYTES};

/// Most keys that are kept.
const MAX_KEYS: usize = 64;

/// Most warnings of one document about single entries. It can have a hundred thousand.
const MAX_WARNINGS: usize = 8;

/// Most bytes of a key id in a warning.
const MAX_SHOWN_KID_BYTES: usize = 32;

#[derive(Deserialize)]
struct Document {
    keys: Vec<Value>,
}

/// The first 64 usable keys of a document; `None` where it is no JWKS. Warns of the first entries that are skipped one by
/// one, and of the rest by their number.
pub(crate) fn parse(document: &[u8]) -> Option<KeySet> {
    let Document { keys: entries } = serde_json::from_slice(document).ok()?;
    let mut keys = Vec::new();
    let (mut unusable, mut left_out) = (0_usize, 0_usize);
    for entry in &entries {
        match key(entry) {
            Some(key) if keys.len() < MAX_KEYS => keys.push(key),
            Some(_) => left_out += 1,
            None => {
                if unusable < MAX_WARNINGS {
                    let kid = entry.get("kid").and_then(Value::as_str).map(shown);
                    tracing::warn!(kid, "a key of the JWKS is not usable and is skipped");
                }
                unusable += 1;
            }
        }
    }
    let more = unusable.saturating_sub(MAX_WARNINGS);
    if more > 0 {
        tracing::warn!(more, "more keys of the JWKS are not usable and are skipped");
    }
    if left_out > 0 {
        let kept = MAX_KEYS;
        tracing::warn!(
            kept,
            left_out,
            "the JWKS has more usable keys than are kept"
        );
    }
    Some(KeySet::new(keys))
}

/// What a warning shows of a key id: its first 32 bytes, cut between characters.
fn shown(kid: &str) -> &str {
    &kid[..kid.floor_char_boundary(MAX_SHOWN_KID_BYTES)]
}

/// The key of an entry, if it is one for here.
fn key(entry: &Value) -> Option<Key> {
    let entry = entry.as_object()?;
    let algorithm = Algorithm::named(text(entry, "alg")?)?;
    if entry.get("use").is_some_and(|purpose| purpose != "sig") {
        return None;
    }
    let kid = match entry.get("kid") {
        None => None,
        Some(Value::String(kid)) if kid.len() <= MAX_KID_BYTES => Some(kid.clone()),
        Some(_) => return None,
    };
    let public = match algorithm.key_type() {
        KeyType::Rsa => {
            is(entry, "kty", "RSA")?;
            PublicKey::rsa(&bytes(entry, "n")?, &bytes(entry, "e")?)?
        }
        curve @ KeyType::P256 => point(entry, curve, "P-256")?,
        curve @ KeyType::P384 => point(entry, curve, "P-384")?,
        curve @ KeyType::Ed25519 => {
            is(entry, "kty", "OKP")?;
            is(entry, "crv", "Ed25519")?;
            PublicKey::point(curve, &bytes(entry, "x")?)?
        }
    };
    Some(Key {
        kid,
        algorithm,
        public,
    })
}

/// A point of an elliptic curve, whose coordinates have the full length.
fn point(entry: &Map<String, Value>, kind: KeyType, curve: &str) -> Option<PublicKey> {
    is(entry, "kty", "EC")?;
    is(entry, "crv", curve)?;
    let (x, y) = (bytes(entry, "x")?, bytes(entry, "y")?);
    let length = kind.coordinate_bytes()?;
    if x.len() != length || y.len() != length {
        return None;
    }
    PublicKey::point(kind, &[&[4], &x[..], &y[..]].concat())
}

fn text<'a>(entry: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    entry.get(name)?.as_str()
}

fn is(entry: &Map<String, Value>, name: &str, expected: &str) -> Option<()> {
    (text(entry, name)? == expected).then_some(())
}

fn bytes(entry: &Map<String, Value>, name: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text(entry, name)?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::Issuer;

    fn parsed(entries: &[Value]) -> Vec<Key> {
        let document = json!({ "keys": entries, "more": 1 }).to_string();
        parse(document.as_bytes()).unwrap().keys().to_vec()
    }

    /// The entry of `issuer` with some members replaced, and those that are null left out.
    fn with(issuer: &Issuer, changes: &Value) -> Value {
        let mut entry = issuer.jwk();
        for (name, value) in changes.as_object().unwrap() {
            match value {
                Value::Null => drop(entry.as_object_mut().unwrap().remove(name)),
                value => entry[name] = value.clone(),
            }
        }
        entry
    }

    #[test]
    fn auth_016_keys_of_every_algorithm_are_usable_and_verify() {
        for algorithm in Algorithm::ALL {
            let issuer = Issuer::new(algorithm, "one");
            let keys = parsed(&[issuer.jwk()]);
            let [key] = &keys[..] else {
                panic!("{algorithm:?} is usable")
            };
            assert_eq!(key.kid.as_deref(), Some("one"));
            let signature = issuer.signature(b"message");
            assert!(key.public.verifies(algorithm, b"message", &signature));
            assert!(!key.public.verifies(algorithm, b"massage", &signature));
            let shown = format!("{key:?}");
            assert!(shown.contains("PublicKey(..)"), "{shown}");
        }
    }

    #[test]
    fn auth_016_s20_what_is_not_usable_is_skipped_and_the_rest_is_kept() {
        let (ec, rsa, okp) = (
            Issuer::new(Algorithm::Es256, "ec"),
            Issuer::new(Algorithm::Rs256, "rsa"),
            Issuer::new(Algorithm::EdDsa, "okp"),
        );
        let long = "k".repeat(257);
        let x = ec.jwk()["x"].clone();
        let unusable = [
            json!(1),
            json!(null),
            json!("key"),
            json!([]),
            json!({}),
            json!({ "kty": "oct", "k": "AAAA", "alg": "HS256" }),
            with(&ec, &json!({ "alg": null })),
            with(&ec, &json!({ "alg": "ES384" })),
            with(&ec, &json!({ "alg": "RS256" })),
            with(&ec, &json!({ "alg": "ECDH-ES" })),
            with(&ec, &json!({ "alg": 1 })),
            with(&ec, &json!({ "kty": "OKP" })),
            with(&ec, &json!({ "kty": null })),
            with(&ec, &json!({ "crv": "P-384" })),
            with(&ec, &json!({ "crv": null })),
            with(&ec, &json!({ "use": "enc" })),
            with(&ec, &json!({ "use": 1 })),
            with(&ec, &json!({ "kid": 1 })),
            with(&ec, &json!({ "kid": long })),
            with(&ec, &json!({ "x": null })),
            with(&ec, &json!({ "x": "AAAA" })),
            with(&ec, &json!({ "y": format!("{}AA", x.as_str().unwrap()) })),
            with(&ec, &json!({ "y": "not base64" })),
            with(&rsa, &json!({ "n": null })),
            with(&rsa, &json!({ "n": "AAAA" })),
            with(&rsa, &json!({ "e": "AQ" })),
            with(&rsa, &json!({ "e": "Ag" })),
            with(&rsa, &json!({ "alg": "PS256" })),
            with(&okp, &json!({ "crv": "Ed448" })),
            with(&okp, &json!({ "crv": "X25519" })),
            with(&okp, &json!({ "x": "AAAA" })),
        ];
        for entry in &unusable {
            assert!(parsed(std::slice::from_ref(entry)).is_empty(), "{entry}");
        }
        let usable = [
            ec.jwk(),
            with(&rsa, &json!({ "use": null })),
            with(&okp, &json!({ "kid": null, "key_ops": ["verify"] })),
            with(&ec, &json!({ "kid": &long[..256] })),
        ];
        let mixed: Vec<Value> = unusable.iter().chain(&usable).cloned().collect();
        let kids: Vec<Option<String>> = parsed(&mixed).into_iter().map(|key| key.kid).collect();
        let expected = [Some("ec"), Some("rsa"), None, Some(&long[..256])];
        assert_eq!(kids, expected.map(|kid| kid.map(str::to_owned)));
    }

    #[test]
    fn auth_016_the_first_64_usable_keys_are_kept_with_their_duplicates() {
        let issuer = Issuer::new(Algorithm::EdDsa, "same");
        let mut entries = vec![json!({}); 3];
        entries.extend((0..65).map(|number| match number {
            64 => with(&issuer, &json!({ "kid": "last" })),
            _ => issuer.jwk(),
        }));
        let keys = parsed(&entries);
        assert_eq!(keys.len(), 64);
        assert!(keys.iter().all(|key| key.kid.as_deref() == Some("same")));
    }

    #[test]
    fn what_is_no_jwks_is_told_apart_from_an_empty_one() {
        for document in [
            &b""[..],
            b"{",
            b"[]",
            b"{}",
            b"{\"keys\":{}}",
            b"<html>",
            b"\xff",
        ] {
            assert!(parse(document).is_none());
        }
        assert!(parse(b"{\"keys\":[]}").unwrap().keys().is_empty());
    }

    #[test]
    fn auth_016_a_warning_shows_at_most_32_bytes_of_a_key_id() {
        assert_eq!(shown("short"), "short");
        assert_eq!(shown(&"k".repeat(40)), "k".repeat(32));
        // Cut between characters of two bytes.
        let accents = format!("k{}", "é".repeat(20));
        assert_eq!(shown(&accents), format!("k{}", "é".repeat(15)));
    }
}
