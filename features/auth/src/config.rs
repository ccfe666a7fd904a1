//! The `[auth]` section. Its types take what a document may write; what has to hold is checked only where the section
//! is enabled, because one that is not is decoded and no more (CONF-066).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use url::{Host, Url};
use xmtp_server::config::checks::CheckError;
use xmtp_server::config::scalar::{Int, MAX_INTEGER};
use xmtp_server::config::text::Unshown;
use xmtp_server::config::{ConfigErrors, Document};

use crate::algorithm::Algorithm;
use crate::api_keys::ApiKeys;
use crate::claims::Policy;
use crate::fetch;
use crate::keys::{self, Key, MAX_KID_BYTES};
use crate::refresh::Schedule;

/// Path of the section.
pub(crate) const SECTION: &str = "auth";

/// Most API keys.
const MAX_API_KEYS: usize = 256;

/// Bytes of the value of an API key.
const API_KEY_BYTES: std::ops::RangeInclusive<usize> = 32..=8192;

/// Most bytes of the name of an API key.
const MAX_NAME_BYTES: usize = 64;

/// Most seconds of leeway.
const MAX_LEEWAY_SECONDS: u64 = 300;

/// Who may use the backend. Without this section, everybody may. With it, every request but those of health and of
/// `ConfigurationService` needs the header `authorization: Bearer CREDENTIAL`: an API key, or a JWT that a known key has
/// signed. At least one of `api_keys`, `keys` and `jwks_url` is needed (AUTH-029).
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// Whether credentials are asked for. False serves everybody, and the rest of the section is not checked
    /// (CONF-005, CONF-066).
    enabled: bool,
    /// API keys: for each name, a secret of 32 to 8192 bytes of visible ASCII, usually read from the environment. At
    /// most 256, no two of them equal; a name has 1 to 64 letters, digits, dots, underscores and hyphens and begins with
    /// a letter or digit. No scope, audience or issuer is asked of them. To replace a key, add the new one under
    /// another name, restart, move the clients, remove the old one, restart (AUTH-006, AUTH-030).
    #[serde(default)]
    #[schemars(extend(
        "default" = {},
        "maxProperties" = 256,
        "propertyNames" = { "pattern": r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}(?!\n)$" },
    ))]
    api_keys: BTreeMap<String, ApiKey>,
    /// Keys that sign JWTs, written here; not together with `jwks_url`.
    #[serde(default)]
    keys: Option<Vec<SigningKey>>,
    /// Where the keys that sign JWTs are published, as a JWKS: an `https` URL, or `http` on `localhost` or a loopback
    /// address. Redirects are not followed (AUTH-015).
    #[serde(default)]
    #[schemars(schema_with = "url_schema", example = &"https://issuer.example.org/.well-known/jwks.json")]
    jwks_url: Option<Unshown>,
    /// Values of which the claim `aud` of a JWT must have one. Absent asks for none (AUTH-012).
    #[serde(default)]
    #[schemars(with = "Option<Vec<String>>", length(min = 1), example = &["xmtp"])]
    audiences: Option<Vec<Unshown>>,
    /// Values of which the claim `iss` of a JWT must be one. Absent asks for none (AUTH-012).
    #[serde(default)]
    #[schemars(with = "Option<Vec<String>>", length(min = 1), example = &["https://issuer.example.org"])]
    issuers: Option<Vec<Unshown>>,
    /// Scopes that the claim `scope` of a JWT must all have (AUTH-013).
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    required_scopes: Vec<Unshown>,
    /// Seconds by which the clock of an issuer may differ, for the claims `exp` and `nbf` (AUTH-032).
    #[serde(default)]
    #[schemars(range(max = 300))]
    leeway_seconds: Int<0, MAX_INTEGER, 60>,
    /// Seconds between two fetches of the JWKS; up to a tenth of it is added at random (AUTH-018, AUTH-034).
    #[serde(default)]
    #[schemars(range(min = 1))]
    jwks_refresh_seconds: Int<0, MAX_INTEGER, 300>,
    /// Seconds that fetched keys stay valid when they cannot be fetched again; then the server drains and exits with an
    /// error. At least `jwks_refresh_seconds`, a tenth of it and 10 more (AUTH-019, AUTH-034).
    #[serde(default)]
    #[schemars(range(min = 12))]
    jwks_max_stale_seconds: Int<0, MAX_INTEGER, 3600>,
}

/// The value of an API key; `None` for what is no string. It is taken all the same, because a refusal while decoding
/// would show the name, which may be the secret.
#[derive(Clone)]
struct ApiKey(Option<SecretString>);

impl<'de> Deserialize<'de> for ApiKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match Value::deserialize(deserializer)? {
            Value::String(text) => Some(text.into()),
            _ => None,
        }))
    }
}

impl JsonSchema for ApiKey {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ApiKey".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "writeOnly": true,
            "pattern": r"^[!-~]{32,8192}(?!\n)$",
        })
    }
}

/// A key that signs JWTs.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct SigningKey {
    /// Id of the key, 1 to 256 bytes; no two keys have the same (AUTH-017).
    #[schemars(with = "String", length(min = 1), example = &"2026-01")]
    kid: Unshown,
    /// Algorithm that it signs with: `RS256`, `RS384`, `RS512`, `ES256`, `ES384` or `EdDSA` (AUTH-008).
    #[schemars(schema_with = "algorithm_schema", example = &"EdDSA")]
    alg: Unshown,
    /// The public key in PEM, with the label `PUBLIC KEY`, of the type that `alg` needs: RSA of 2048 to 8192 bits,
    /// P-256, P-384 or Ed25519 (AUTH-017).
    #[schemars(with = "String", example = &"env:XMTP_AUTH_PUBLIC_KEY")]
    public_key: Unshown,
}

fn algorithm_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": Algorithm::ALL.map(Algorithm::name) })
}

fn url_schema(_: &mut SchemaGenerator) -> Schema {
    let loopback = r"localhost|127(?:\.[0-9]{1,3}){3}|\[::1\]";
    let pattern = format!(r"^(?:https://\S+|http://(?:{loopback})(?:[:/?#]\S*)?)(?!\n)$");
    json_schema!({ "type": "string", "writeOnly": true, "pattern": pattern })
}

/// What an enabled section asks for, checked.
pub(crate) struct Mechanisms {
    pub(crate) api_keys: ApiKeys,
    pub(crate) source: Option<Source>,
    pub(crate) policy: Policy,
}

/// Where the keys come from that sign JWTs.
pub(crate) enum Source {
    Inline(Vec<Key>),
    Jwks { url: Url, schedule: Schedule },
}

impl Auth {
    /// Takes the section out of `document`. `None` where it is absent or not enabled.
    ///
    /// # Errors
    /// What does not decode; and, where the section is enabled, everything that does not hold.
    pub(crate) fn take(document: &mut Document) -> Result<Option<Mechanisms>, ConfigErrors> {
        match document.take::<Self>(SECTION)? {
            Some(section) if section.enabled => section.check(document).map(Some),
            _ => Ok(None),
        }
    }

    fn check(self, document: &Document) -> Result<Mechanisms, ConfigErrors> {
        let mut refusals = Refusals {
            document,
            errors: ConfigErrors::default(),
        };
        self.check_api_keys(&mut refusals);
        let keys = self.check_keys(&mut refusals);
        let url = self.check_url(&mut refusals);
        let lists = [("audiences", &self.audiences), ("issuers", &self.issuers)];
        for (name, list) in lists {
            let is_empty = list.as_ref().is_some_and(Vec::is_empty);
            refusals.require(
                !is_empty,
                name,
                "must not be empty: no token would be accepted",
            );
        }
        let schedule = self.check_numbers(&mut refusals);
        let (has_keys, has_url) = (self.keys.is_some(), self.jwks_url.is_some());
        if !(has_keys || has_url || !self.api_keys.is_empty()) {
            let reason = "enabled needs at least one of auth.api_keys, auth.keys and auth.jwks_url";
            refusals.refuse(SECTION, reason);
        }
        let reason = "auth.keys and auth.jwks_url exclude each other";
        refusals.require(!(has_keys && has_url), "jwks_url", reason);
        let source = match (has_keys, url) {
            (true, _) => Some(Source::Inline(keys)),
            (false, url) => url.map(|url| Source::Jwks { url, schedule }),
        };
        let owned = |list: &Vec<Unshown>| list.iter().map(|text| text.to_string()).collect();
        let api_keys = self.api_keys.iter();
        refusals.errors.or(Mechanisms {
            api_keys: ApiKeys::new(
                api_keys.filter_map(|(name, key)| Some((name.as_str(), key.0.as_ref()?))),
            ),
            source,
            policy: Policy {
                audiences: self.audiences.as_ref().map(owned),
                issuers: self.issuers.as_ref().map(owned),
                required_scopes: owned(&self.required_scopes),
                leeway: self.leeway_seconds.get(),
            },
        })
    }

    /// AUTH-030.
    fn check_api_keys(&self, refusals: &mut Refusals<'_>) {
        let within = self.api_keys.len() <= MAX_API_KEYS;
        refusals.require(within, "api_keys", "must have at most 256 entries");
        let mut values = BTreeSet::new();
        for (name, ApiKey(value)) in &self.api_keys {
            let is_name = is_api_key_name(name);
            let mut refuse = |reason| {
                let document = refusals.document;
                let error = document.locate_entry("auth.api_keys", name, is_name, reason);
                refusals.errors.extend([error]);
            };
            if !is_name {
                refuse(
                    "the name of an entry must have 1 to 64 letters, digits, dots, underscores and hyphens, and \
                     begin with a letter or digit",
                );
            }
            let value = value.as_ref().map(ExposeSecret::expose_secret);
            let sound = |value: &str| {
                API_KEY_BYTES.contains(&value.len())
                    && value.bytes().all(|byte| byte.is_ascii_graphic())
            };
            match value {
                Some(value) if sound(value) => {
                    if !values.insert(value) {
                        refuse("must not be equal to another key");
                    }
                }
                _ => refuse("must be 32 to 8192 bytes of visible ASCII without spaces"),
            }
        }
    }

    /// AUTH-017.
    fn check_keys(&self, refusals: &mut Refusals<'_>) -> Vec<Key> {
        let Some(entries) = &self.keys else {
            return Vec::new();
        };
        let reason = "must not be empty: no token would be accepted";
        refusals.require(!entries.is_empty(), "keys", reason);
        let mut kids = BTreeSet::new();
        let mut usable = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let mut refuse = |key: &str, reason| {
                refusals.refuse(format!("auth.keys[{index}].{key}"), reason);
            };
            if !(1..=MAX_KID_BYTES).contains(&entry.kid.len()) {
                refuse("kid", "must have 1 to 256 bytes");
            } else if !kids.insert(&*entry.kid) {
                refuse("kid", "repeats an earlier id");
            }
            let Some(algorithm) = Algorithm::named(&entry.alg) else {
                refuse("alg", "must be RS256, RS384, RS512, ES256, ES384 or EdDSA");
                continue;
            };
            match keys::from_pem(algorithm, &entry.public_key) {
                Some(public) => usable.push(Key {
                    kid: Some(entry.kid.to_string()),
                    algorithm,
                    public,
                }),
                None => refuse(
                    "public_key",
                    "must be one PEM block with the label PUBLIC KEY that holds a key of the type that alg needs",
                ),
            }
        }
        usable
    }

    /// AUTH-015.
    fn check_url(&self, refusals: &mut Refusals<'_>) -> Option<Url> {
        let text = self.jwks_url.as_ref()?;
        let url = Url::parse(text).ok().filter(is_fetchable);
        let reason =
            "must be an https URL, or an http URL whose host is localhost or a loopback address";
        refusals.require(url.is_some(), "jwks_url", reason);
        url
    }

    /// AUTH-032, AUTH-034.
    fn check_numbers(&self, refusals: &mut Refusals<'_>) -> Schedule {
        let leeway = self.leeway_seconds.get();
        refusals.require(
            leeway <= MAX_LEEWAY_SECONDS,
            "leeway_seconds",
            "must be at most 300",
        );
        let refresh = self.jwks_refresh_seconds.get();
        refusals.require(refresh >= 1, "jwks_refresh_seconds", "must be at least 1");
        let max_stale = self.jwks_max_stale_seconds.get();
        let least = refresh
            .checked_add(refresh.div_ceil(10))
            .and_then(|seconds| seconds.checked_add(fetch::MAX_DURATION.as_secs()));
        let reason =
            "must be at least auth.jwks_refresh_seconds, a tenth of it (rounded up) and 10 more";
        refusals.require(
            least.is_some_and(|least| max_stale >= least),
            "jwks_max_stale_seconds",
            reason,
        );
        let schedule = Schedule {
            refresh: Duration::from_secs(refresh),
            max_stale: Duration::from_secs(max_stale),
        };
        refusals.require(
            Instant::now().checked_add(schedule.max_stale).is_some(),
            "jwks_max_stale_seconds",
            "is beyond the monotonic clock",
        );
        schedule
    }
}

/// What does not hold, so far.
struct Refusals<'d> {
    document: &'d Document,
    errors: ConfigErrors,
}

impl Refusals<'_> {
    /// Refuses a key of the section unless something holds.
    fn require(&mut self, holds: bool, name: &str, reason: &'static str) {
        if !holds {
            self.refuse(format!("{SECTION}.{name}"), reason);
        }
    }

    fn refuse(&mut self, key: impl Into<Cow<'static, str>>, reason: &'static str) {
        let check = CheckError::new(key, reason);
        self.errors.extend([self.document.locate(&check)]);
    }
}

fn is_api_key_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    name.len() <= MAX_NAME_BYTES
        && bytes
            .next()
            .is_some_and(|first| first.is_ascii_alphanumeric())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// Whether keys may be fetched from there: nobody on the way can replace them.
fn is_fetchable(url: &Url) -> bool {
    let is_loopback = match url.host() {
        None => return false,
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
    };
    match url.scheme() {
        "https" => true,
        "http" => is_loopback,
        _ => false,
    }
}

/// Shows the mode, counts and the required scopes.
impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let modes = [
            (!self.api_keys.is_empty(), "api keys"),
            (self.keys.is_some(), "inline"),
            (self.jwks_url.is_some(), "jwks"),
        ];
        let modes = modes.iter().filter(|(is_on, _)| *is_on);
        let modes: Vec<&str> = modes.map(|(_, mode)| *mode).collect();
        let scopes: Vec<&str> = self.required_scopes.iter().map(|scope| &**scope).collect();
        f.debug_struct("Auth")
            .field("enabled", &self.enabled)
            .field("mode", &modes)
            .field("api_keys", &self.api_keys.len())
            .field("keys", &self.keys.as_ref().map_or(0, Vec::len))
            .field("required_scopes", &scopes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use xmtp_server::config::Build;

    use super::*;
    use crate::testing::{Issuer, pem};

    /// Planted in every value that must not be shown.
    const SECRET: &str = "planted-planted-planted-planted-";

    fn take(text: &str) -> Result<Option<Mechanisms>, ConfigErrors> {
        let mut document = Document::parse(text, Build::default(), |_| None).unwrap();
        Auth::take(&mut document)
    }

    /// An enabled section with these lines.
    fn enabled(lines: &str) -> Result<Option<Mechanisms>, ConfigErrors> {
        take(&format!("[auth]\nenabled = true\n{lines}"))
    }

    fn api_key() -> String {
        format!("api_keys = {{ mobile = \"{SECRET}\" }}\n")
    }

    /// The keys that are refused. What is planted is in no text of it.
    #[track_caller]
    fn refused(result: Result<Option<Mechanisms>, ConfigErrors>) -> Vec<String> {
        let errors = result.err().expect("refused");
        let text = format!("{errors} {errors:?}");
        assert!(!text.contains("planted"), "{text}");
        errors.iter().map(|error| error.key.clone()).collect()
    }

    fn inline(kid: &str, alg: &str, pem: &str) -> String {
        format!("[[auth.keys]]\nkid = {kid:?}\nalg = {alg:?}\npublic_key = {pem:?}\n")
    }

    #[test]
    fn conf_005_conf_066_only_an_enabled_section_switches_authentication_on() {
        assert!(take("").unwrap().is_none());
        assert_eq!(refused(take("[auth]\n")), ["auth.enabled"]);
        assert_eq!(
            refused(take(&format!("[auth]\n{}", api_key()))),
            ["auth.enabled"]
        );
        // What would be refused is not looked at.
        let invalid = "[auth]\nenabled = false\naudiences = []\nleeway_seconds = 9999\n\
                       jwks_refresh_seconds = 0\njwks_url = \"http://example.org\"\n\
                       api_keys = { \"-\" = \"short\" }\n";
        assert!(take(invalid).unwrap().is_none());
        let keys = inline("", "HS256", "planted");
        assert!(take(&format!("{invalid}{keys}")).unwrap().is_none());
        // What nobody knows is refused in any case.
        let unknown = take(&format!("{invalid}planted = 1\n"));
        assert_eq!(unknown.err().unwrap().iter().count(), 1);
        assert!(enabled(&api_key()).unwrap().is_some());
        // References are resolved all the same (CFG-004).
        let referring = "[auth]\nenabled = false\njwks_url = \"env:PLANTED\"\n";
        let resolved = Document::parse(referring, Build::default(), |_| Some("x".to_owned()));
        assert!(Auth::take(&mut resolved.unwrap()).unwrap().is_none());
        let errors = Document::parse(referring, Build::default(), |_| None).err();
        let errors = errors.expect("the variable is not set");
        let keys: Vec<&str> = errors.iter().map(|error| &*error.key).collect();
        assert_eq!(keys, ["auth.jwks_url"]);
    }

    #[test]
    fn auth_017_s34_line_ends_of_a_pem_are_those_of_any_system_and_no_other() {
        let pem = Issuer::new(Algorithm::EdDsa, "x").pem();
        for good in [
            pem.clone(),
            pem.replace('\n', "\r\n"),
            pem.trim().to_owned(),
        ] {
            let mechanisms = enabled(&inline("one", "EdDSA", &good)).unwrap();
            assert!(mechanisms.is_some(), "{good:?}");
        }
        for bad in [
            pem.replace('\n', "\\n"),
            pem.replace('\n', " "),
            format!("{pem:?}"),
        ] {
            let refused = refused(enabled(&inline("one", "EdDSA", &bad)));
            assert_eq!(refused, ["auth.keys[0].public_key"], "{bad:?}");
        }
    }

    #[test]
    fn auth_029_one_mechanism_is_needed_and_one_source_of_keys_allowed() {
        assert_eq!(refused(enabled("")), ["auth"]);
        assert_eq!(refused(enabled("api_keys = {}\n")), ["auth"]);
        assert_eq!(refused(enabled("keys = []\n")), ["auth.keys"]);
        let key = inline("one", "EdDSA", &Issuer::new(Algorithm::EdDsa, "one").pem());
        let url = "jwks_url = \"https://planted.example.org/\"\n";
        assert_eq!(refused(enabled(&format!("{url}{key}"))), ["auth.jwks_url"]);
        for (lines, has_source) in [
            (api_key(), false),
            (format!("{}{url}", api_key()), true),
            (format!("{}{key}", api_key()), true),
            (url.to_owned(), true),
            (key, true),
        ] {
            let mechanisms = enabled(&lines).unwrap().expect("on");
            assert_eq!(mechanisms.source.is_some(), has_source);
        }
    }

    #[test]
    fn auth_030_names_and_values_of_api_keys_have_their_form() {
        let of =
            |name: &str, value: &str| enabled(&format!("api_keys = {{ {name:?} = {value:?} }}\n"));
        for name in ["a", "0", "a.b-c_D9", &"n".repeat(64)] {
            for value in [SECRET.to_owned(), "~".repeat(32), "!".repeat(8192)] {
                assert!(of(name, &value).is_ok(), "{name}");
            }
        }
        let long_name = "planted".repeat(10);
        for name in [
            "",
            "-planted",
            ".planted",
            "_planted",
            "planted planted",
            "plantéd-planted",
            &long_name,
        ] {
            assert_eq!(
                refused(of(name, &"v".repeat(32))),
                ["auth.api_keys"],
                "{name}"
            );
        }
        for value in [
            "planted".to_owned(),
            "p".repeat(31),
            "p".repeat(8193),
            format!("{SECRET} "),
            format!("{SECRET}é"),
            format!("{SECRET}\t"),
        ] {
            assert_eq!(refused(of("mobile", &value)), ["auth.api_keys.mobile"]);
        }
        // A name in place of the value, which is then no string: only the place is told.
        let swapped = enabled(&format!("api_keys = {{ \"{SECRET} \" = 1 }}\n"));
        let errors = swapped.err().unwrap();
        assert!(errors.to_string().contains("line 3, column 14"), "{errors}");
        assert!(!errors.to_string().contains("planted"));
        let equal = format!("[auth.api_keys]\na = \"{SECRET}\"\nb = \"{SECRET}\"\n");
        assert_eq!(refused(enabled(&equal)), ["auth.api_keys.b"]);
        let many = |count: u32| {
            let entries = (0..count).map(|number| format!("k{number} = \"{SECRET}{number}\"\n"));
            enabled(&format!("[auth.api_keys]\n{}", entries.collect::<String>()))
        };
        assert_eq!(many(256).unwrap().unwrap().api_keys.len(), 256);
        assert_eq!(refused(many(257)), ["auth.api_keys"]);
    }

    #[test]
    fn auth_017_inline_keys_have_an_id_an_algorithm_and_a_key_for_it() {
        let issuers = Algorithm::ALL.map(|algorithm| Issuer::new(algorithm, "x"));
        for issuer in &issuers {
            for other in &issuers {
                let lines = inline("one", other.algorithm.name(), &issuer.pem());
                let fits = issuer.algorithm.key_type() == other.algorithm.key_type();
                if fits {
                    let source = enabled(&lines).unwrap().unwrap().source;
                    assert!(matches!(source, Some(Source::Inline(keys)) if keys.len() == 1));
                } else {
                    assert_eq!(refused(enabled(&lines)), ["auth.keys[0].public_key"]);
                }
            }
        }
        let sound = Issuer::new(Algorithm::EdDsa, "x").pem();
        let good = inline("one", "EdDSA", &sound);
        for (lines, key) in [
            (inline("", "EdDSA", &sound), "kid"),
            (inline(&"planted".repeat(37), "EdDSA", &sound), "kid"),
            (good.clone(), "kid"),
            (inline("two", "HS256", &sound), "alg"),
            (inline("two", "planted", &sound), "alg"),
            (inline("two", "EdDSA", "planted"), "public_key"),
            (inline("two", "EdDSA", ""), "public_key"),
            (
                inline("two", "EdDSA", &format!("{sound}{sound}")),
                "public_key",
            ),
            (
                inline("two", "EdDSA", &pem("PUBLIC KEY", b"planted")),
                "public_key",
            ),
            (
                inline("two", "EdDSA", &sound.replace("PUBLIC", "PRIVATE")),
                "public_key",
            ),
            (
                inline("two", "EdDSA", &sound.replace("PUBLIC KEY", "CERTIFICATE")),
                "public_key",
            ),
        ] {
            let result = enabled(&format!("{good}{lines}"));
            assert_eq!(refused(result), [format!("auth.keys[1].{key}")], "{lines}");
        }
        assert_eq!(
            refused(enabled("keys = [{ kid = \"one\" }]\n")),
            ["auth.keys[0].alg", "auth.keys[0].public_key"]
        );
    }

    #[test]
    fn auth_015_keys_are_fetched_over_https_or_from_this_machine() {
        let of = |url: &str| enabled(&format!("jwks_url = {url:?}\n"));
        for url in [
            "https://issuer.example.org/keys",
            "HTTPS://issuer.example.org:8443",
            "http://localhost/keys",
            "http://localhost:8080/",
            "http://127.0.0.1/",
            "http://127.9.9.9:1/",
            "http://[::1]:80/",
        ] {
            assert!(of(url).is_ok(), "{url}");
        }
        for url in [
            "",
            "planted",
            "/planted",
            "http://planted.example.org/",
            "http://localhost.planted.org/",
            "http://127.0.0.1.planted.org/",
            "http://128.0.0.1/planted",
            "http://[::2]/planted",
            "http://0.0.0.0/planted",
            "file:///planted",
            "ftp://localhost/planted",
            "https://",
        ] {
            assert_eq!(refused(of(url)), ["auth.jwks_url"], "{url}");
        }
    }

    #[test]
    fn auth_012_empty_lists_of_audiences_and_issuers_are_refused() {
        for name in ["audiences", "issuers"] {
            let lines = format!("{}{name} = []\n", api_key());
            assert_eq!(refused(enabled(&lines)), [format!("auth.{name}")]);
        }
        let lists = "audiences = [\"a\"]\nissuers = [\"i\"]\nrequired_scopes = []\n";
        let mechanisms = enabled(&format!("{}{lists}", api_key())).unwrap().unwrap();
        assert_eq!(mechanisms.policy.audiences, Some(vec!["a".to_owned()]));
        assert_eq!(mechanisms.policy.issuers, Some(vec!["i".to_owned()]));
    }

    #[test]
    fn auth_032_auth_034_numbers_have_their_bounds() {
        let of = |lines: &str| enabled(&format!("{}{lines}", api_key()));
        for leeway in [0, 300] {
            let mechanisms = of(&format!("leeway_seconds = {leeway}\n"))
                .unwrap()
                .unwrap();
            assert_eq!(mechanisms.policy.leeway, leeway);
        }
        assert_eq!(of("").unwrap().unwrap().policy.leeway, 60);
        assert_eq!(
            refused(of("leeway_seconds = 301\n")),
            ["auth.leeway_seconds"]
        );
        assert_eq!(
            refused(of("leeway_seconds = -1\n")),
            ["auth.leeway_seconds"]
        );
        assert_eq!(
            refused(of("jwks_refresh_seconds = 0\n")),
            ["auth.jwks_refresh_seconds"]
        );
        let stale = |refresh: u64, stale: u64| {
            of(&format!(
                "jwks_refresh_seconds = {refresh}\njwks_max_stale_seconds = {stale}\n"
            ))
        };
        // Least: the interval, a tenth of it rounded up, and ten seconds.
        for (refresh, least) in [(1, 12), (10, 21), (11, 23), (300, 340)] {
            assert!(stale(refresh, least).is_ok(), "{refresh}");
            let refused = refused(stale(refresh, least - 1));
            assert_eq!(refused, ["auth.jwks_max_stale_seconds"], "{refresh}");
        }
        // Neither sum nor deadline can be held.
        for refresh in [1, MAX_INTEGER] {
            let refused = refused(stale(refresh, MAX_INTEGER));
            assert!(
                refused
                    .iter()
                    .all(|key| key == "auth.jwks_max_stale_seconds")
            );
        }
    }

    #[test]
    fn arc_101_debug_shows_the_mode_counts_and_required_scopes() {
        let key = inline("planted", "planted", "planted");
        let text = format!(
            "[auth]\nenabled = true\naudiences = [\"planted\"]\nrequired_scopes = [\"read\"]\n\
             jwks_url = \"planted\"\n{}{key}",
            api_key().replace("mobile", "planted")
        );
        let mut document = Document::parse(&text, Build::default(), |_| None).unwrap();
        let section: Auth = document.take(SECTION).unwrap().unwrap();
        assert_eq!(
            format!("{section:?}"),
            "Auth { enabled: true, mode: [\"api keys\", \"inline\", \"jwks\"], api_keys: 1, keys: 1, \
             required_scopes: [\"read\"], .. }"
        );
    }
}
