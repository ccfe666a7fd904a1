use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::scalar::Ratio;
use crate::config::socket;
use crate::config::text::{Form, Unshown};
use crate::text_keys;

/// Metrics and traces, as far as core has them: what they are called, and where metrics are read.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Telemetry {
    /// Address of the listener for Prometheus: a numeric IP address and a port. Empty runs no
    /// listener (OPS-022).
    pub metrics_listen: MetricsAddress,
    /// Name of the service in telemetry; not blank (OPS-013).
    pub service_name: ServiceName,
    /// Share of the traces that is recorded (ARC-097).
    pub sample_ratio: Ratio,
    /// Attributes of the process in telemetry, in addition to `service.name`, `service.version`
    /// and `xmtp.backend.identifier`, which are set and cannot be given (OPS-013).
    pub resource_attributes: ResourceAttributes,
}

/// `telemetry.metrics_listen`: `None` where there is no listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MetricsAddress(pub Option<SocketAddr>);

impl Default for MetricsAddress {
    fn default() -> Self {
        Self(Some(([0, 0, 0, 0], 9464).into()))
    }
}

impl Form for MetricsAddress {
    const EXPECTED: &'static str =
        "a numeric IP address and a port, such as 0.0.0.0:9464, or an empty string";

    fn pattern() -> String {
        format!(r"^(?:{})?(?!\n)$", socket::pattern())
    }

    fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            Some(Self(None))
        } else {
            text.parse().ok().map(Some).map(Self)
        }
    }
}

/// `telemetry.service_name`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServiceName(Unshown);

impl ServiceName {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for ServiceName {
    fn default() -> Self {
        Self("xmtp-backend".into())
    }
}

impl Form for ServiceName {
    const EXPECTED: &'static str = "a name that is not blank";

    fn pattern() -> String {
        r"^[\s\S]*\S[\s\S]*$".to_owned()
    }

    fn parse(text: &str) -> Option<Self> {
        (!text.trim().is_empty()).then(|| Self(text.into()))
    }
}

/// `telemetry.resource_attributes`.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct ResourceAttributes(
    #[schemars(
        with = "BTreeMap<String, String>",
        extend("additionalProperties" = { "type": "string", "writeOnly": true }),
        extend("propertyNames" = { "not": { "enum": ResourceAttributes::RESERVED } })
    )]
    BTreeMap<String, Unshown>,
);

impl ResourceAttributes {
    /// The attributes that the process sets itself.
    pub const RESERVED: [&str; 3] = ["service.name", "service.version", "xmtp.backend.identifier"];
}

impl Deref for ResourceAttributes {
    type Target = BTreeMap<String, Unshown>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// Shows how many there are.
impl fmt::Debug for ResourceAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} attributes", self.len())
    }
}

text_keys!(MetricsAddress, ServiceName);
