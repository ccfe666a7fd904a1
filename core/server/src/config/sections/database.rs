use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::{ExposeSecret, SecretString};
use serde::de::{Deserialize, Deserializer};

use crate::config::document::Build;
use crate::config::error::Refusal;
use crate::config::scalar::{Count, Int};
use crate::config::text::{self, Form};

/// The primary database.
#[derive(Clone, Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Database {
    /// Address of the primary, with its credentials; usually read from the environment (ARC-100, ARC-101).
    #[schemars(example = &"env:XMTP_DATABASE_URL")]
    pub url: DatabaseUrl,
    /// Connections in one request pool: with a replica there are two pools. The tailer has one more (ARC-060).
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
        PostgresUrl::check(text).err().map(Refusal::Expected)
    }
}

/// The address of a PostgreSQL server: a secret, shown by no `Debug` (ARC-101).
#[derive(Clone, Debug)]
pub struct PostgresUrl(SecretString);

impl PostgresUrl {
    /// The address, to connect with.
    pub fn secret(&self) -> &SecretString {
        &self.0
    }

    /// What was expected of `text` where it is no address that can be connected with.
    fn check(text: &str) -> Result<(), String> {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        if !scheme.is_some_and(|scheme| DatabaseUrl::SCHEMES.contains(&scheme)) {
            return Err(Self::EXPECTED.to_owned());
        }
        if text.trim_end() != text {
            return Err(
                "an address without white space at its end, such as a line break".to_owned(),
            );
        }
        if text.contains(char::is_whitespace) {
            return Err("an address without white space: a space is %20".to_owned());
        }
        if !text.split('%').skip(1).all(is_escape) {
            return Err("two hexadecimal digits after every %: % itself is %25".to_owned());
        }
        xmtp_store::check_address(text).map_err(|error| error.to_string())
    }

    /// A regular expression for an address of one of the schemes that core connects to.
    pub(in crate::config) fn patterns() -> impl Iterator<Item = String> {
        let rest = r"://(?:[^\s%]|%[0-9A-Fa-f]{2})*";
        DatabaseUrl::SCHEMES
            .iter()
            .map(move |scheme| format!("{scheme}{rest}"))
    }
}

impl Form for PostgresUrl {
    const EXPECTED: &str = "a postgres:// or postgresql:// address, special characters escaped with %, and of its \
        parameters only those that the driver knows";

    fn pattern() -> String {
        let forms: Vec<String> = Self::patterns().collect();
        format!(r"^(?:{})(?!\n)$", forms.join("|"))
    }

    fn parse(text: &str) -> Option<Self> {
        Self::check(text).is_ok().then(|| Self(text.into()))
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

impl<'de> Deserialize<'de> for PostgresUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::decode(deserializer)
    }
}

impl JsonSchema for PostgresUrl {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "PostgresUrl".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "writeOnly": true, "pattern": Self::pattern() })
    }
}
