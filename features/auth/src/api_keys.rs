//! Named API keys (AUTH-006, AUTH-030). Only digests are compared, all of them every time and in constant time: how
//! long it takes tells neither whether a key is close nor which one it is.

use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};
use subtle::{ConditionallySelectable, ConstantTimeEq};

use crate::digest::{Digest, digest};

/// The configured keys.
pub(crate) struct ApiKeys(Vec<(Arc<str>, Digest)>);

impl ApiKeys {
    /// Of names and values.
    pub(crate) fn new<'a>(keys: impl IntoIterator<Item = (&'a str, &'a SecretString)>) -> Self {
        let entry = |(name, value): (&str, &SecretString)| {
            (Arc::from(name), digest(value.expose_secret().as_bytes()))
        };
        Self(keys.into_iter().map(entry).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The name of the key whose value has the digest `presented`.
    pub(crate) fn find(&self, presented: &Digest) -> Option<&Arc<str>> {
        // No place where there is no match; no two values are equal.
        let mut found = u32::MAX;
        for (place, (_, known)) in (0u32..).zip(&self.0) {
            found.conditional_assign(&place, presented.ct_eq(known));
        }
        let place = usize::try_from(found).ok()?;
        self.0.get(place).map(|(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auth_006_a_key_is_found_by_its_whole_value_and_by_nothing_else() {
        let values = ["a".repeat(32), "b".repeat(8192), "c".repeat(33)];
        let secrets = values.clone().map(SecretString::from);
        let keys = ApiKeys::new(["one", "two", "three"].into_iter().zip(&secrets));
        assert_eq!(keys.len(), 3);
        let find = |value: &str| keys.find(&digest(value.as_bytes())).map(|name| &**name);
        for (value, name) in values.iter().zip(["one", "two", "three"]) {
            assert_eq!(find(value), Some(name));
            let last = value.len() - 1;
            assert_eq!(find(&value[..last]), None);
            assert_eq!(find(&format!("{value}a")), None);
            assert_eq!(find(&format!("{}x", &value[..last])), None);
        }
        assert_eq!(find(""), None);
        assert_eq!(ApiKeys::new([]).find(&digest(b"a")), None);
    }
}
