use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::{ExposeSecret, SecretString};
use serde::de::{Deserialize, Deserializer};

use crate::config::document::Build;
use crate::config::error::Refusal;
use crate::config::scalar::{Count, Int};

/// The primary database.
#[derive(Clone, Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Database {
    /// Address of the primary, with its credentials; usually read from the environment (ARC-100, ARC-101).
    #[schemars(example = &"env:XMTP_DATABASE_URL")]
    pub url: DatabaseUrl,
    /// Connections in one request pool. The tailer has one more (ARC-060).
    #[serde(default)]
    pub max_connections: Count<20>,
    /// Milliseconds that any one statement may run (ARC-051).
    #[serde(default)]
    pub max_statement_timeout_ms: Int<1, 2_147_483_647, 5000>,
}

/// `database.url`: a secret, shown by no `Debug` (ARC-101).
#[derive(Clone, Debug)]
pub struct DatabaseUrl(SecretString);

impl DatabaseUrl {
    /// The schemes that core connects to.
    pub const SCHEMES: [&str; 2] = ["postgres", "postgresql"];

    /// What stands before the first colon: one of [`Self::SCHEMES`], or a scheme that a subsystem
    /// of this build owns.
    pub fn scheme(&self) -> &str {
        self.0
            .expose_secret()
            .split_once(':')
            .map_or("", |(scheme, _)| scheme)
    }

    /// The address, to connect with.
    pub fn secret(&self) -> &SecretString {
        &self.0
    }

    /// Why this build cannot use the address, if it cannot. What follows a subsystem's scheme is
    /// the subsystem's to judge.
    pub(in crate::config) fn refusal(&self, build: &Build) -> Option<Refusal> {
        let scheme = self.scheme();
        if build.url_schemes.contains(&scheme) {
            return None;
        }
        if let Some(absent) = build
            .absent
            .iter()
            .find(|it| it.url_schemes.contains(&scheme))
        {
            return Some(absent.refusal());
        }
        let text = self.0.expose_secret();
        let sound = Self::SCHEMES.contains(&scheme)
            && text[scheme.len()..].starts_with("://")
            && !text.contains(char::is_whitespace)
            && text.split('%').skip(1).all(is_escape)
            && xmtp_store::is_usable_address(text);
        let expected = "a postgres:// or postgresql:// address, special characters escaped with %, and of its \
             parameters only those that the driver knows";
        (!sound).then(|| Refusal::Expected(expected.to_owned()))
    }
}

/// Whether what follows a percent sign starts with two hexadecimal digits.
fn is_escape(rest: &str) -> bool {
    rest.as_bytes()
        .get(..2)
        .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}

impl<'de> Deserialize<'de> for DatabaseUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(text.into()))
    }
}

/// The schemes of the build's subsystems are added when the schema is put together. `writeOnly` is what marks
/// a secret there.
impl JsonSchema for DatabaseUrl {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "DatabaseUrl".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "writeOnly": true })
    }
}
