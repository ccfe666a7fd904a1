//! The schemas against the table of the wire contract.

use std::fmt::Write;

use prost_reflect::{
    DescriptorPool, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor,
    ServiceDescriptor,
};
use xmtp_protocol::proto::FILE_DESCRIPTOR_SET;

use crate::data::wire_contract;

fn descriptors() -> DescriptorPool {
    DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("the descriptor set of the crate")
}

/// Everything that a peer can see of the schemas, in the form of the table.
fn rendered() -> String {
    let pool = descriptors();
    let mut blocks: Vec<String> = pool
        .all_messages()
        .filter(|message| !message.is_map_entry() && message.package_name() != "google.protobuf")
        .map(|message| render_message(&message))
        .chain(
            pool.all_enums()
                .filter(|e| e.package_name() != "google.protobuf")
                .map(|e| render_enum(&e)),
        )
        .chain(pool.services().map(|service| render_service(&service)))
        .collect();
    blocks.sort_unstable();
    blocks.join("\n")
}

fn render_message(message: &MessageDescriptor) -> String {
    let mut rows: Vec<(u32, String)> = message
        .fields()
        .map(|field| {
            (
                field.number(),
                format!(
                    "{} {} {}",
                    field.name(),
                    render_type(&field),
                    render_presence(&field)
                ),
            )
        })
        .collect();
    let reserved = message.reserved_ranges().flatten();
    rows.extend(
        reserved
            .zip(message.reserved_names())
            .map(|(number, name)| (number, format!("{name} reserved"))),
    );
    assert_eq!(
        message.reserved_ranges().flatten().count(),
        message.reserved_names().count()
    );
    rows.sort_unstable();
    block(
        &format!("message {}", message.full_name()),
        rows.iter().map(|(number, row)| format!("{number} {row}")),
    )
}

fn render_type(field: &FieldDescriptor) -> String {
    match field.kind() {
        Kind::Message(entry) if field.is_map() => {
            let key = kind_name(&entry.map_entry_key_field().kind());
            let value = kind_name(&entry.map_entry_value_field().kind());
            format!("map<{key}, {value}>")
        }
        kind => kind_name(&kind),
    }
}

fn kind_name(kind: &Kind) -> String {
    match kind {
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(values) => values.full_name().to_owned(),
        scalar => format!("{scalar:?}"),
    }
}

fn render_presence(field: &FieldDescriptor) -> String {
    match field.containing_oneof() {
        Some(oneof) if oneof.is_synthetic() => "optional".to_owned(),
        Some(oneof) => format!("oneof {}", oneof.name()),
        None if field.is_map() => "map".to_owned(),
        None if field.is_list() => "repeated".to_owned(),
        None if field.supports_presence() => "message".to_owned(),
        None => "implicit".to_owned(),
    }
}

fn render_enum(values: &EnumDescriptor) -> String {
    let mut rows: Vec<(i32, String)> = values
        .values()
        .map(|value| (value.number(), value.name().to_owned()))
        .collect();
    rows.sort_unstable();
    block(
        &format!("enum {}", values.full_name()),
        rows.iter().map(|(number, name)| format!("{number} {name}")),
    )
}

fn render_service(service: &ServiceDescriptor) -> String {
    let mut rows: Vec<String> = service
        .methods()
        .map(|method| render_method(&method))
        .collect();
    rows.sort_unstable();
    block(&format!("service {}", service.full_name()), rows)
}

fn render_method(method: &MethodDescriptor) -> String {
    let side = |is_stream: bool, message: MessageDescriptor| {
        format!(
            "{}{}",
            if is_stream { "stream " } else { "" },
            message.full_name()
        )
    };
    let request = side(method.is_client_streaming(), method.input());
    let response = side(method.is_server_streaming(), method.output());
    format!("{}: {request} -> {response}", method.name())
}

fn block(title: &str, rows: impl IntoIterator<Item = String>) -> String {
    let mut block = format!("{title}\n");
    for row in rows {
        writeln!(block, "  {row}").expect("writing to a string");
    }
    block
}

#[test]
fn every_message_enum_and_service_is_as_the_contract_says() {
    let rendered = rendered();
    for (ours, contract) in rendered.lines().zip(wire_contract().lines()) {
        assert_eq!(ours, contract);
    }
    assert_eq!(rendered, wire_contract());
}

#[test]
fn schemas_lie_where_clients_import_them_from() {
    let mut files: Vec<_> = descriptors()
        .files()
        .map(|file| (file.name().to_owned(), file.package_name().to_owned()))
        .collect();
    files.sort_unstable();
    let files: Vec<_> = files
        .iter()
        .map(|(name, package)| (name.as_str(), package.as_str()))
        .collect();
    assert_eq!(
        files,
        [
            ("backend/v1/backend.proto", "xmtp.backend.v1"),
            ("google/protobuf/any.proto", "google.protobuf"),
            ("google/rpc/status.proto", "google.rpc"),
            ("grpc/health/v1/health.proto", "grpc.health.v1"),
            (
                "identity/associations/association.proto",
                "xmtp.identity.associations"
            ),
            (
                "identity/associations/signature.proto",
                "xmtp.identity.associations"
            ),
            ("identity/credential.proto", "xmtp.identity"),
            (
                "mls/message_contents/commit_log.proto",
                "xmtp.mls.message_contents"
            ),
            (
                "mls/message_contents/component_permissions.proto",
                "xmtp.mls.message_contents"
            ),
            (
                "mls/message_contents/group_permissions.proto",
                "xmtp.mls.message_contents"
            ),
            (
                "mls/message_contents/welcome_pointer.proto",
                "xmtp.mls.message_contents"
            ),
            (
                "mls/message_contents/wrapper_encryption.proto",
                "xmtp.mls.message_contents"
            ),
        ]
    );
}

#[test]
fn api_211_no_list_can_be_packed_in_two_ways() {
    for message in descriptors().all_messages() {
        for field in message.fields().filter(FieldDescriptor::is_list) {
            let is_length_delimited =
                matches!(field.kind(), Kind::Message(_) | Kind::String | Kind::Bytes);
            assert!(
                is_length_delimited,
                "{} is a list of numbers",
                field.full_name()
            );
        }
    }
}
