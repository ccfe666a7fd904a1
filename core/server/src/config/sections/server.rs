use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::str::FromStr;

use schemars::JsonSchema;
use semver::Version;
use serde::de::IntoDeserializer;
use serde::{Deserialize, Serialize};

use crate::config::scalar::{AtLeastOne, Flag};
use crate::config::socket;
use crate::config::text::{Form, Unshown};
use crate::text_keys;

/// The process: who it is to its clients, where it listens, what it logs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Name of this deployment, 1 to 256 bytes without whitespace and control characters, by convention in reverse
    /// DNS order; published to clients and attached to telemetry. Every client database binds to the first one that it sees, so it
    /// must never change once clients have connected (CONF-002, CONF-003).
    #[schemars(example = &"org.example.xmtp")]
    pub identifier: Identifier,
    /// Lowest client version that this deployment admits, in Semantic Versioning; published to
    /// clients, which compare major, minor and patch. Absent admits all (CONF-067).
    #[serde(default)]
    #[schemars(example = &"1.2.3")]
    pub min_libxmtp_version: Option<ClientVersion>,
    /// Address of the plaintext listener for gRPC and gRPC-Web: a numeric IP address and a port,
    /// IPv6 in brackets (ARC-002).
    #[serde(default)]
    pub listen: ListenAddress,
    /// Least severe level that is logged. The command line's `--log-level` overrides it (ARC-094).
    #[serde(default)]
    pub log_level: LogLevel,
    /// How log records are written to standard output (ARC-094).
    #[serde(default)]
    pub log_format: LogFormat,
    /// Whether each request, a long-lived stream included, logs one event when it ends
    /// (OPS-018, ARC-095).
    #[serde(default)]
    pub request_logger: Flag<true>,
    /// Milliseconds that a shutdown waits for unary requests in flight. Open streams end at once
    /// (ARC-003).
    #[serde(default)]
    pub max_drain_duration_ms: AtLeastOne<10_000>,
}

/// `server.identifier` (CONF-002).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identifier(Unshown);

impl Identifier {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Form for Identifier {
    const EXPECTED: &'static str =
        "1 to 256 bytes of text without whitespace and control characters";

    fn pattern() -> String {
        let spaces = r"\u0000-\u0020\u007f-\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000";
        format!("^[^{spaces}]{{1,256}}$")
    }

    fn parse(text: &str) -> Option<Self> {
        let unfit = |c: char| c.is_whitespace() || c.is_control();
        ((1..=256).contains(&text.len()) && !text.contains(unfit)).then(|| Self(text.into()))
    }
}

/// `server.min_libxmtp_version` (CONF-067).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientVersion(Version);

impl Deref for ClientVersion {
    type Target = Version;

    fn deref(&self) -> &Version {
        &self.0
    }
}

impl Form for ClientVersion {
    const EXPECTED: &'static str = "a Semantic Versioning 2.0.0 version";

    fn pattern() -> String {
        let number = "(?:0|[1-9][0-9]*)";
        let word = format!("(?:{number}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)");
        let build = "[0-9A-Za-z-]+";
        format!(
            r"^{number}\.{number}\.{number}(?:-{word}(?:\.{word})*)?(?:\+{build}(?:\.{build})*)?(?!\n)$"
        )
    }

    fn parse(text: &str) -> Option<Self> {
        Version::parse(text).ok().map(Self)
    }
}

/// `server.listen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ListenAddress(pub SocketAddr);

impl Default for ListenAddress {
    fn default() -> Self {
        Self(([0, 0, 0, 0], 5050).into())
    }
}

impl Form for ListenAddress {
    const EXPECTED: &'static str = "a numeric IP address and a port, such as 0.0.0.0:5050";

    fn pattern() -> String {
        format!(r"^(?:{})(?!\n)$", socket::pattern())
    }

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }
}

/// `server.log_level`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What needs an operator.
    Error,
    /// What may come to need one.
    Warn,
    /// What happens in the life of the process and its requests.
    #[default]
    Info,
    /// What helps to find a fault.
    Debug,
    /// Everything.
    Trace,
}

/// `--log-level` names none of the six levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected off, error, warn, info, debug or trace")]
pub struct UnknownLogLevel;

impl FromStr for LogLevel {
    type Err = UnknownLogLevel;

    fn from_str(text: &str) -> Result<Self, UnknownLogLevel> {
        let level: Result<Self, serde::de::value::Error> =
            Self::deserialize(text.into_deserializer());
        level.map_err(|_| UnknownLogLevel)
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// `server.log_format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

text_keys!(Identifier, ClientVersion, ListenAddress);
