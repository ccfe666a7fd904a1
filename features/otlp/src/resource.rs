//! Whom everything that is exported comes from (OPS-013).

use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use uuid::Uuid;
use xmtp_server::config::Config;

use crate::attributes::text;

/// Tells the instances of a deployment apart, whose metrics would otherwise be taken for one's.
const INSTANCE: &str = "service.instance.id";

/// The process, as the collector is told of it.
#[derive(Clone)]
pub(crate) struct Origin {
    pub(crate) resource: Resource,
    pub(crate) scope: InstrumentationScope,
}

impl Origin {
    pub(crate) fn new(config: &Config, version: &str) -> Self {
        let telemetry = &config.telemetry;
        let own = [
            text("service.name", telemetry.service_name.as_str()),
            text("service.version", version),
            text("xmtp.backend.identifier", config.server.identifier.as_str()),
        ];
        let given = telemetry.resource_attributes.iter();
        let given = given.map(|(key, value)| text(key, &**value));
        let mut attributes: Vec<KeyValue> = own.into_iter().chain(given).collect();
        if !telemetry.resource_attributes.contains_key(INSTANCE) {
            attributes.push(text(INSTANCE, Uuid::new_v4()));
        }
        Self {
            resource: Resource {
                attributes,
                ..Resource::default()
            },
            scope: InstrumentationScope {
                name: "xmtp-backend".to_owned(),
                version: version.to_owned(),
                ..InstrumentationScope::default()
            },
        }
    }
}
