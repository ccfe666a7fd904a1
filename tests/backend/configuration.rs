//! `GetConfiguration`: what a deployment tells its clients.

use xmtp_protocol::proto::xmtp::backend::v1::{
    ApplicationComponentDefinition, AuthConfiguration, GetConfigurationRequest,
    GetConfigurationResponse, LimitsConfiguration, MlsConfiguration, RetentionConfiguration,
};
use xmtp_protocol::proto::xmtp::mls::message_contents::metadata_policy::{
    Kind, MetadataBasePolicy,
};
use xmtp_protocol::proto::xmtp::mls::message_contents::{
    ComponentPermissions, ComponentType, MetadataPolicy,
};
use xmtp_test_support::TestDatabase;

use crate::harness::{Backend, configure};
use crate::raw::{self, frame};

const PATH: &str = "/xmtp.backend.v1.ConfigurationService/GetConfiguration";

/// No value is a default, and no two are the same.
const SETTINGS: &str = r#"
    server.identifier = "org.example.other"
    server.min_libxmtp_version = "1.2.3-rc.4"
    retention.group_message_seconds = 101
    retention.welcome_seconds = 102
    retention.key_package_seconds = 103
    limits.max_envelope_bytes = 1001
    limits.max_request_bytes = 2002
    limits.max_response_bytes = 3003
    limits.max_publish_topics = 4
    limits.max_query_topics = 5
    limits.max_query_limit = 77
    limits.default_query_limit = 66
    limits.max_newest_metadata_topics = 8
    limits.max_newest_full_topics = 9
    limits.max_update_adds = 10
    limits.max_update_removes = 11
    limits.max_stream_topics = 12
    limits.max_static_topics = 13
    limits.max_lookup_identifiers = 14
    limits.max_scw_signatures = 15
    limits.max_identity_entries = 16
    limits.max_update_frames_per_second = 17
    limits.max_update_burst = 18
    limits.max_ping_frames_per_second = 19
    limits.max_ping_burst = 20
    mls.max_group_members = 21
    mls.max_installations_per_inbox = 22
    mls.commit_log_enabled = false
"#;

fn component(id: u32, name: &str) -> String {
    format!(
        "{{ component_id = {id}, name = \"{name}\", component_type = \"tls_map_inbox_id_string\", \
         insert_policy = \"allow\", update_policy = \"allow_if_admin\", \
         delete_policy = \"allow_if_self_or_non_member\", in_groups = true, in_dms = false }}"
    )
}

fn policy(base: MetadataBasePolicy) -> MetadataPolicy {
    MetadataPolicy {
        kind: Some(Kind::Base(base.into())),
    }
}

fn definition(id: u32, name: &str) -> ApplicationComponentDefinition {
    ApplicationComponentDefinition {
        component_id: id,
        name: name.to_owned(),
        component_type: ComponentType::TlsMapInboxIdString.into(),
        permissions: Some(ComponentPermissions {
            insert_policy: Some(policy(MetadataBasePolicy::Allow)),
            update_policy: Some(policy(MetadataBasePolicy::AllowIfAdmin)),
            delete_policy: Some(policy(MetadataBasePolicy::AllowIfSelfOrNonMember)),
        }),
        in_groups: true,
        in_dms: false,
    }
}

async fn get(backend: &Backend) -> GetConfigurationResponse {
    let request = GetConfigurationRequest::default();
    let answer = backend.configuration().get_configuration(request).await;
    answer.expect("always answered").into_inner()
}

#[tokio::test]
async fn conf_069_every_field_is_what_is_configured() {
    let components = [component(0xC002, "SECOND"), component(0xC001, "FIRST")].join(", ");
    let settings = format!("{SETTINGS}\napplication_components = [{components}]");
    let backend = Backend::with(&settings).await;
    let expected = GetConfigurationResponse {
        identifier: "org.example.other".to_owned(),
        server_version: env!("CARGO_PKG_VERSION").to_owned(),
        min_libxmtp_version: "1.2.3-rc.4".to_owned(),
        auth: Some(AuthConfiguration::default()),
        retention: Some(RetentionConfiguration {
            group_message_seconds: 101,
            welcome_seconds: 102,
            key_package_seconds: 103,
        }),
        limits: Some(LimitsConfiguration {
            max_envelope_bytes: 1001,
            max_request_bytes: 2002,
            max_response_bytes: 3003,
            max_publish_topics: 4,
            max_query_topics: 5,
            max_query_limit: 77,
            default_query_limit: 66,
            max_newest_metadata_topics: 8,
            max_newest_full_topics: 9,
            max_update_adds: 10,
            max_update_removes: 11,
            max_stream_topics: 12,
            max_static_topics: 13,
            max_lookup_identifiers: 14,
            max_scw_signatures: 15,
            max_identity_entries: 16,
            max_update_frames_per_second: 17,
            max_update_burst: 18,
            max_ping_frames_per_second: 19,
            max_ping_burst: 20,
        }),
        mls: Some(MlsConfiguration {
            max_group_members: 21,
            max_installations_per_inbox: 22,
            commit_log_enabled: Some(false),
        }),
        smart_contract_wallet_chains: Vec::new(),
        attachments: None,
        application_components: vec![definition(0xC001, "FIRST"), definition(0xC002, "SECOND")],
    };
    assert_eq!(get(&backend).await, expected);
}

#[tokio::test]
async fn conf_012_the_answer_is_the_same_bytes_over_either_transport() {
    let backend = Backend::start().await;
    let first = raw::native(backend.address, PATH, frame(b""), &[]).await;
    assert_eq!(first.messages.len(), 1);
    let second = raw::native(backend.address, PATH, frame(b""), &[]).await;
    assert_eq!(second.messages, first.messages);
    let web = raw::web(backend.address, PATH, frame(b""), &[]).await;
    assert_eq!(web.messages, first.messages);
    assert_eq!(get(&backend).await.min_libxmtp_version, "");
}

fn catalogue(entries: u32) -> String {
    let entries: Vec<String> = (0..entries)
        .map(|number| component(0xC000 + number, &format!("{number:0>100}")))
        .collect();
    format!("application_components = [{}]", entries.join(", "))
}

#[tokio::test]
async fn conf_009_an_answer_above_64_kib_keeps_the_server_from_starting() {
    let database = TestDatabase::create().await;
    let errors = configure(&database, &catalogue(600))
        .err()
        .expect("refused");
    let keys: Vec<&str> = errors.iter().map(|error| error.key.as_str()).collect();
    assert_eq!(keys, ["application_components"]);
    let text = errors.to_string();
    assert!(text.contains("configuration response"), "{text}");
    assert!(text.contains("65536"), "{text}");

    // What fits is served, and `max_response_bytes` does not bound it.
    let small = "limits.max_envelope_bytes = 1\nlimits.max_response_bytes = 1000\n";
    let backend = Backend::on(database, &format!("{small}{}", catalogue(400))).await;
    assert_eq!(get(&backend).await.application_components.len(), 400);
}
