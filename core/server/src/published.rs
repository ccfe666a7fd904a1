//! The public configuration: what `GetConfiguration` answers (configuration contract, section 7).

use prost::Message;
use xmtp_protocol::proto::xmtp::backend::v1::{
    ApplicationComponentDefinition, AuthConfiguration, GetConfigurationResponse,
    LimitsConfiguration, MlsConfiguration, RetentionConfiguration,
};
use xmtp_protocol::proto::xmtp::mls::message_contents::metadata_policy::{
    Kind, MetadataBasePolicy,
};
use xmtp_protocol::proto::xmtp::mls::message_contents::{
    ComponentPermissions, ComponentType as WireType, MetadataPolicy,
};

use crate::config::sections::{ApplicationComponent, ComponentType, Policy};
use crate::config::{Config, ConfigError, Refusal};

/// Most bytes of the encoded answer (CONF-009).
const MAX_BYTES: usize = 65536;

/// Builds the answer. Numbers are those that are enforced, none of them zero (CONF-069).
///
/// # Errors
/// An answer that would not fit its cap (CONF-065).
pub(crate) fn published(config: &Config) -> Result<GetConfigurationResponse, ConfigError> {
    let Config {
        server,
        retention,
        limits,
        mls,
        ..
    } = config;
    let mut application_components: Vec<_> = config
        .application_components
        .iter()
        .map(component)
        .collect();
    application_components.sort_unstable_by_key(|component| component.component_id);
    let response = GetConfigurationResponse {
        identifier: server.identifier.as_str().to_owned(),
        server_version: env!("CARGO_PKG_VERSION").to_owned(),
        min_libxmtp_version: server
            .min_libxmtp_version
            .as_ref()
            .map(|version| version.to_string())
            .unwrap_or_default(),
        auth: Some(AuthConfiguration::default()),
        retention: Some(RetentionConfiguration {
            group_message_seconds: retention.group_message_seconds.get(),
            welcome_seconds: retention.welcome_seconds.get(),
            key_package_seconds: retention.key_package_seconds.get(),
        }),
        limits: Some(LimitsConfiguration {
            max_envelope_bytes: limits.max_envelope_bytes.get(),
            max_request_bytes: limits.max_request_bytes.get(),
            max_response_bytes: limits.max_response_bytes.get(),
            max_publish_topics: limits.max_publish_topics.to_u32(),
            max_query_topics: limits.max_query_topics.to_u32(),
            max_query_limit: limits.max_query_limit.to_u32(),
            default_query_limit: limits.default_query_limit.to_u32(),
            max_newest_metadata_topics: limits.max_newest_metadata_topics.to_u32(),
            max_newest_full_topics: limits.max_newest_full_topics.to_u32(),
            max_update_adds: limits.max_update_adds.to_u32(),
            max_update_removes: limits.max_update_removes.to_u32(),
            max_stream_topics: limits.max_stream_topics.to_u32(),
            max_static_topics: limits.max_static_topics.to_u32(),
            max_lookup_identifiers: limits.max_lookup_identifiers.to_u32(),
            max_scw_signatures: limits.max_scw_signatures.to_u32(),
            max_identity_entries: limits.max_identity_entries.to_u32(),
            max_update_frames_per_second: limits.max_update_frames_per_second.to_u32(),
            max_update_burst: limits.max_update_burst.to_u32(),
            max_ping_frames_per_second: limits.max_ping_frames_per_second.to_u32(),
            max_ping_burst: limits.max_ping_burst.to_u32(),
        }),
        mls: Some(MlsConfiguration {
            max_group_members: mls.max_group_members.to_u32(),
            max_installations_per_inbox: mls.max_installations_per_inbox.to_u32(),
            commit_log_enabled: Some(mls.commit_log_enabled.0),
        }),
        smart_contract_wallet_chains: Vec::new(),
        attachments: None,
        application_components,
    };
    if !is_within_cap(&response) {
        return Err(too_long("application_components"));
    }
    Ok(response)
}

/// Whether the answer still fits its cap with what subsystems have added to it (CONF-009).
///
/// # Errors
/// It does not.
pub(crate) fn fits(response: &GetConfigurationResponse) -> Result<(), ConfigError> {
    if is_within_cap(response) {
        Ok(())
    } else {
        Err(too_long(""))
    }
}

fn is_within_cap(response: &GetConfigurationResponse) -> bool {
    response.encoded_len() <= MAX_BYTES
}

fn too_long(key: &str) -> ConfigError {
    let reason =
        "the configuration response exceeds 65536 bytes: configure fewer or shorter entries";
    ConfigError {
        key: key.to_owned(),
        position: None,
        refusal: Refusal::Check(reason),
    }
}

fn component(component: &ApplicationComponent) -> ApplicationComponentDefinition {
    let component_type = match component.component_type {
        ComponentType::Bytes => WireType::Bytes,
        ComponentType::String => WireType::String,
        ComponentType::TlsMapBytesBytes => WireType::TlsMapBytesBytes,
        ComponentType::TlsMapInboxIdBytes => WireType::TlsMapInboxIdBytes,
        ComponentType::TlsSetBytes => WireType::TlsSetBytes,
        ComponentType::TlsSetInboxId => WireType::TlsSetInboxId,
        ComponentType::TlsMapInboxIdString => WireType::TlsMapInboxIdString,
    };
    ApplicationComponentDefinition {
        component_id: component.component_id.to_u32(),
        name: component.name.as_str().to_owned(),
        component_type: component_type.into(),
        permissions: Some(ComponentPermissions {
            insert_policy: Some(policy(component.insert_policy)),
            update_policy: Some(policy(component.update_policy)),
            delete_policy: Some(policy(component.delete_policy)),
        }),
        in_groups: component.in_groups,
        in_dms: component.in_dms,
    }
}

fn policy(policy: Policy) -> MetadataPolicy {
    let base = match policy {
        Policy::Allow => MetadataBasePolicy::Allow,
        Policy::Deny => MetadataBasePolicy::Deny,
        Policy::AllowIfAdmin => MetadataBasePolicy::AllowIfAdmin,
        Policy::AllowIfSuperAdmin => MetadataBasePolicy::AllowIfSuperAdmin,
        Policy::AllowIfSelfOrNonMember => MetadataBasePolicy::AllowIfSelfOrNonMember,
    };
    MetadataPolicy {
        kind: Some(Kind::Base(base.into())),
    }
}
