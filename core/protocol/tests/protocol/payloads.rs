//! Crafted payloads: what must parse, and what must be refused as malformed (API-230).

use xmtp_protocol::{
    ParseError, ParsedEnvelope, TopicKind,
    proto::xmtp::{
        backend::v1::{
            ClientEnvelope,
            client_envelope::Payload,
            welcome_message::{V1, Version, WelcomePointer},
        },
        identity::associations::IdentityUpdate,
    },
};

use crate::data::{
    KeyPackageVerdict, commit_log_entry, crafted_commit_log_entries, crafted_group_messages,
    crafted_key_packages, envelope, group_message, group_message_data, key_package, parse_error,
    parsed, welcome,
};

#[test]
fn api_230_group_messages_parse_or_are_malformed_as_the_table_says() {
    for case in crafted_group_messages() {
        let result = ParsedEnvelope::parse(group_message(case.data));
        assert_eq!(result.is_ok(), case.accepted, "{}", case.name);
        if let Ok(parsed) = result {
            assert_eq!(
                parsed.topic.kind(),
                TopicKind::GroupMessage,
                "{}",
                case.name
            );
            assert_eq!(parsed.topic.identifier(), case.group_id, "{}", case.name);
            let is_handshake = ["proposal", "commit"].contains(&case.content_type.as_str());
            assert_eq!(parsed.is_commit_or_proposal, is_handshake, "{}", case.name);
        }
    }
}

#[test]
fn api_230_every_cut_of_a_group_message_is_malformed() {
    for name in ["private_commit", "public_proposal", "public_application"] {
        let data = group_message_data(name);
        for len in 0..data.len() {
            let error = parse_error(group_message(data[..len].to_vec()));
            assert_eq!(
                error,
                Some(ParseError::MlsMessage),
                "{name} cut to {len} bytes"
            );
        }
    }
}

#[test]
fn api_230_mls_messages_of_other_kinds_are_told_apart_from_garbage() {
    let error = |name| parse_error(group_message(group_message_data(name)));
    assert_eq!(error("welcome_message"), Some(ParseError::MlsWireFormat));
    assert_eq!(
        error("key_package_message"),
        Some(ParseError::MlsWireFormat)
    );
    assert_eq!(error("wire_format_6"), Some(ParseError::MlsMessage));
}

#[test]
fn api_230_key_packages_parse_or_are_malformed_as_the_table_says() {
    for case in crafted_key_packages() {
        let result = ParsedEnvelope::parse(key_package(case.key_package));
        match case.expected {
            KeyPackageVerdict::Accepted | KeyPackageVerdict::Invalid => {
                let topic = result.map(|parsed| parsed.topic).expect(&case.name);
                assert_eq!(topic.kind(), TopicKind::KeyPackage, "{}", case.name);
                assert_eq!(topic.identifier(), case.installation_key, "{}", case.name);
            }
            KeyPackageVerdict::Malformed => assert!(result.is_err(), "{}", case.name),
            KeyPackageVerdict::Either => {}
        }
    }
}

#[test]
fn api_230_a_key_package_fills_its_field() {
    let minimal = crafted_key_packages().swap_remove(0);
    assert_eq!(parse_error(key_package(minimal.key_package.clone())), None);
    for len in 0..minimal.key_package.len() {
        let cut = minimal.key_package[..len].to_vec();
        assert_eq!(
            parse_error(key_package(cut)),
            Some(ParseError::KeyPackage),
            "cut to {len} bytes"
        );
    }
    let longer = [minimal.key_package, vec![0]].concat();
    assert_eq!(
        parse_error(key_package(longer)),
        Some(ParseError::KeyPackage)
    );
}

#[test]
fn api_230_commit_log_entries_parse_or_are_malformed_as_the_table_says() {
    for case in crafted_commit_log_entries() {
        let result = ParsedEnvelope::parse(commit_log_entry(case.entry.clone()));
        assert_eq!(result.is_ok(), case.accepted, "{}", case.name);
        if let Ok(parsed) = result {
            assert_eq!(
                parsed.topic.kind(),
                TopicKind::CommitLogEntry,
                "{}",
                case.name
            );
            assert_eq!(parsed.topic.identifier(), case.group_id, "{}", case.name);
            assert!(
                parsed.payload.ends_with(&case.entry),
                "{}: the entry is kept as it was",
                case.name
            );
        }
    }
}

#[test]
fn api_230_welcomes_need_a_version_and_nothing_else_but_the_key() {
    assert_eq!(
        parse_error(welcome(None)),
        Some(ParseError::WelcomeVersionUnset)
    );
    for wrapper_algorithm in [-1, 0, 3, 77] {
        let v1 = V1 {
            installation_key: vec![7; 32].into(),
            wrapper_algorithm,
            ..Default::default()
        };
        assert_eq!(parse_error(welcome(Some(Version::V1(v1)))), None);
        let pointer = WelcomePointer {
            installation_key: vec![7; 32].into(),
            wrapper_algorithm,
            ..Default::default()
        };
        assert_eq!(
            parse_error(welcome(Some(Version::WelcomePointer(pointer)))),
            None
        );
    }
}

#[test]
fn api_230_an_identity_update_needs_only_its_inbox_id_to_parse() {
    let update = IdentityUpdate {
        inbox_id: "0f".repeat(32),
        ..Default::default()
    };
    assert_eq!(
        parsed(envelope(Payload::IdentityUpdate(update)))
            .topic
            .kind(),
        TopicKind::IdentityUpdate
    );
}

#[test]
fn api_223_an_unset_payload_is_malformed() {
    assert_eq!(
        parse_error(ClientEnvelope::default()),
        Some(ParseError::PayloadUnset)
    );
}
