//! The sections `[chains]` and `[validation]`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use url::Url;
use xmtp_server::config::scalar::AtLeastOne;
use xmtp_server::config::{ConfigErrors, Document};

/// Paths of the sections.
pub(crate) const CHAINS: &str = "chains";
pub(crate) const VALIDATION: &str = "validation";

/// What stands before the number of a chain (CAIP-2).
const ETHEREUM: &str = "eip155:";

/// The chains that are asked about contract wallets: for each CAIP-2 id, as `"eip155:8453"`, the URL of a JSON-RPC provider,
/// http or https, usually read from the environment because it holds a credential. The provider has to serve calls without
/// a recipient, and keep the state of old blocks (an archive): whenever an inbox changes, the signatures of its stored
/// updates are judged again, each at the block that it names, however long ago. Where that is pruned, an inbox with such
/// a signature cannot change any more once its verdicts are forgotten, at a restart at the latest. Published to clients,
/// without the URLs (CONF-070). A signature on a chain that is not listed cannot be judged, and what has it is
/// `UNAVAILABLE` (API-231).
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline, extend("default" = {}, "propertyNames" = { "pattern": name_pattern() }))]
pub struct Chains(BTreeMap<String, Endpoint>);

/// The URL of a provider; `None` for what is none. It is taken all the same, because a refusal while decoding would show
/// the name of the entry, which may be the URL.
#[derive(Clone)]
struct Endpoint(Option<SecretString>);

/// How signatures are judged.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Validation {
    /// Verdicts on contract-wallet signatures that an instance keeps, of some 100 bytes each; the one that was not used for
    /// longest goes first (SEC-042).
    #[serde(default)]
    max_scw_cache_entries: AtLeastOne<10_000>,
}

/// What a document asks for that has at least one chain.
pub(crate) struct Settings {
    /// The URLs, by chain id.
    pub(crate) providers: BTreeMap<u64, SecretString>,
    /// Verdicts to keep.
    pub(crate) most_verdicts: NonZeroUsize,
}

impl Settings {
    /// Takes the sections out of `document`. `None` where there is no chain.
    ///
    /// # Errors
    /// Everything in them that does not hold.
    pub(crate) fn take(document: &mut Document) -> Result<Option<Self>, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        let chains = errors.keep(document.take::<Chains>(CHAINS));
        let validation = errors.keep(document.take::<Validation>(VALIDATION));
        let Chains(chains) = chains.flatten().unwrap_or_default();
        let mut providers = BTreeMap::new();
        for (name, Endpoint(url)) in chains {
            let chain_id = chain_id(&name);
            let mut refuse = |reason| {
                let error = document.locate_entry(CHAINS, &name, chain_id.is_some(), reason);
                errors.extend([error]);
            };
            match (chain_id, url) {
                (None, _) => refuse(
                    "the name of an entry must be eip155: and the decimal number of a chain, as in eip155:8453",
                ),
                (Some(_), None) => refuse(
                    "must be an http or https URL with a host, special characters escaped with %",
                ),
                (Some(chain_id), Some(url)) => {
                    providers.insert(chain_id, url);
                }
            }
        }
        let validation = validation.flatten().unwrap_or_default();
        let most = validation.max_scw_cache_entries.to_usize();
        let settings = Self {
            providers,
            most_verdicts: NonZeroUsize::new(most).unwrap_or(NonZeroUsize::MIN),
        };
        errors.or((!settings.providers.is_empty()).then_some(settings))
    }
}

/// The number of a chain, without sign and leading zeros, as the accounts of signatures have it.
fn chain_id(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(ETHEREUM)?;
    let number: u64 = digits.parse().ok()?;
    (number.to_string() == digits).then_some(number)
}

/// The CAIP-2 id of a chain.
pub(crate) fn caip_2(chain_id: u64) -> String {
    format!("{ETHEREUM}{chain_id}")
}

/// Whether `text` is the URL of a provider. Stricter than parsers of URLs, which repair what they are given.
fn is_endpoint(text: &str) -> bool {
    let Some(rest) = ["http://", "https://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme))
    else {
        return false;
    };
    let mut escapes = rest.split('%').skip(1).map(|rest| rest.as_bytes().get(..2));
    let is_escape = |digits: Option<&[u8]>| {
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    rest.bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'\\')
        && escapes.all(is_escape)
        && !rest.starts_with(['/', '?', '#', ':', '@'])
        && Url::parse(text).is_ok_and(|url| url.has_host())
}

impl<'de> Deserialize<'de> for Endpoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match Value::deserialize(deserializer)? {
            Value::String(text) => {
                Some(SecretString::from(text)).filter(|text| is_endpoint(text.expose_secret()))
            }
            _ => None,
        }))
    }
}

/// `writeOnly` is what marks a secret.
impl JsonSchema for Endpoint {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Endpoint".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // Letters, digits and signs, but neither a backslash nor a percent sign that escapes nothing.
        let character = r"[!-$&-\[\]-~]|%[0-9A-Fa-f]{2}";
        json_schema!({
            "type": "string",
            "writeOnly": true,
            "pattern": format!(r"^https?://(?![/?#:@])(?:{character})+(?!\n)$"),
        })
    }
}

/// A regular expression of the names that [`chain_id`] reads.
fn name_pattern() -> String {
    format!(r"^{ETHEREUM}(?:{})(?!\n)$", up_to(u64::MAX))
}

/// A regular expression of the decimal numbers from 0 to `most`, without leading zeros.
fn up_to(most: u64) -> String {
    let digits = most.to_string();
    let shorter = digits.len() - 2;
    let mut forms = vec![format!("0|[1-9][0-9]{{0,{shorter}}}|{digits}")];
    for (place, digit) in digits.bytes().enumerate() {
        let (least, rest) = (
            if place == 0 { b'1' } else { b'0' },
            digits.len() - place - 1,
        );
        if digit > least {
            let (below, least) = (char::from(digit - 1), char::from(least));
            forms.push(format!(
                "{}[{least}-{below}][0-9]{{{rest}}}",
                &digits[..place]
            ));
        }
    }
    forms.join("|")
}

/// Shows how many there are.
impl fmt::Debug for Chains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chains({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use xmtp_server::config::{Build, OwnedSchema, schema};

    use super::*;

    fn take(text: &str) -> Result<Option<Settings>, ConfigErrors> {
        let mut document = Document::parse(text, Build::default(), |_| None).unwrap();
        Settings::take(&mut document)
    }

    /// The keys that are refused. What is planted is in no text of it.
    #[track_caller]
    fn refused(text: &str) -> Vec<String> {
        let errors = take(text).err().expect("refused");
        let text = format!("{errors} {errors:?}");
        assert!(!text.contains("planted"), "{text}");
        errors.iter().map(|error| error.key.clone()).collect()
    }

    fn of(name: &str, url: &str) -> String {
        format!("[chains]\n{name:?} = {url:?}\n")
    }

    /// Whether the published schema takes a document with these chains.
    fn schema_takes(name: &str, url: &str) -> bool {
        let schema = schema(&[OwnedSchema::section::<Chains>(CHAINS)], &[]);
        let chains = &schema["properties"][CHAINS];
        jsonschema::is_valid(chains, &serde_json::json!({ name: url }))
    }

    #[test]
    fn api_231_without_a_chain_there_is_nothing_to_do() {
        for text in [
            "",
            "[chains]\n",
            "[validation]\nmax_scw_cache_entries = 5\n",
        ] {
            assert!(take(text).unwrap().is_none(), "{text}");
        }
        // What is wrong is refused all the same.
        assert_eq!(
            refused("[validation]\nmax_scw_cache_entries = 0\n"),
            ["validation.max_scw_cache_entries"]
        );
        assert_eq!(
            refused("[validation]\nunknown = 1\n"),
            ["validation.unknown"]
        );
    }

    #[test]
    fn conf_070_a_chain_is_named_by_its_caip_2_id() {
        let url = "https://rpc.example.org/v2/planted";
        for (name, chain_id) in [
            ("eip155:1", 1),
            ("eip155:0", 0),
            ("eip155:8453", 8453),
            ("eip155:18446744073709551615", u64::MAX),
        ] {
            let settings = take(&of(name, url)).unwrap().expect("a chain");
            let (found, found_url) = settings.providers.first_key_value().unwrap();
            assert_eq!((*found, found_url.expose_secret()), (chain_id, url));
            assert_eq!(caip_2(*found), name);
            assert!(schema_takes(name, url), "{name}");
        }
        for name in [
            "",
            "1",
            "eip155",
            "eip155:",
            "eip155:01",
            "eip155:+1",
            "eip155:-1",
            "eip155:0x1",
            "eip155: 1",
            "eip155:1:0x0",
            "eip155:18446744073709551616",
            "eip155:99999999999999999999",
            "eip155:one",
            "EIP155:1",
            "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp",
            "https://planted.example.org/",
        ] {
            assert_eq!(refused(&of(name, url)), ["chains"], "{name}");
            assert!(!schema_takes(name, url), "{name}");
        }
    }

    #[test]
    fn conf_070_a_provider_is_an_http_url_and_a_refusal_names_its_chain() {
        for url in [
            "http://127.0.0.1:8545",
            "https://rpc.example.org",
            "https://rpc.example.org/v2/key?a=b#c",
            "https://user:pass%40word@rpc.example.org:8443/",
            "https://[2001:db8::1]:8545/",
        ] {
            assert!(take(&of("eip155:1", url)).unwrap().is_some(), "{url}");
            assert!(schema_takes("eip155:1", url), "{url}");
        }
        for url in [
            "",
            "planted",
            "ws://planted.example.org",
            "file:///planted",
            "HTTPS://planted.example.org",
            "https:planted.example.org",
            "https:///planted",
            "https://",
            "https://?planted",
            "https://#planted",
            "https://:8545/planted",
            "https://planted example.org",
            "https://planted.example.org/%",
            "https://planted.example.org/%4",
            "https://planted.example.org/%zz",
            "https://planted.example.org\\a",
            "https://planted.example.org/\u{e9}",
            " https://planted.example.org/",
            "https://planted.example.org/\n",
        ] {
            assert_eq!(
                refused(&of("eip155:1", url)),
                ["chains.\"eip155:1\""],
                "{url}"
            );
            assert!(!schema_takes("eip155:1", url), "{url}");
        }
        // Beyond what a pattern can say.
        for url in [
            "https://planted:99999/",
            "https://planted@",
            "https://[planted]/",
        ] {
            assert_eq!(
                refused(&of("eip155:1", url)),
                ["chains.\"eip155:1\""],
                "{url}"
            );
        }
        assert_eq!(
            refused("[chains]\n\"eip155:1\" = 1\n\"eip155:2\" = [\"planted\"]\n"),
            ["chains.\"eip155:1\"", "chains.\"eip155:2\""]
        );
    }

    #[test]
    fn arc_101_no_debug_shows_a_url() {
        let mut document = Document::parse(
            &of("eip155:1", "https://planted.example.org/"),
            Build::default(),
            |_| None,
        )
        .unwrap();
        let chains: Chains = document.take(CHAINS).unwrap().unwrap();
        assert_eq!(format!("{chains:?}"), "Chains(1)");
    }

    #[test]
    fn sec_042_verdicts_are_kept_as_configured() {
        let url = of("eip155:1", "https://rpc.example.org");
        let most = |text: &str| take(text).unwrap().expect("a chain").most_verdicts.get();
        assert_eq!(most(&url), 10_000);
        let lines = format!("{url}[validation]\nmax_scw_cache_entries = 7\n");
        assert_eq!(most(&lines), 7);
    }
}
