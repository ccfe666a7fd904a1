//! Generates the wire messages from `proto/` whenever the crate is built.
//!
//! The schemas are compiled by protox, a protobuf compiler in Rust, so that neither a checkout nor a
//! package build needs `protoc`, and no generated code has to be kept in step by hand.

use std::{
    env, fs,
    io::{Error, Result},
    path::{Path, PathBuf},
};

use heck::{ToSnakeCase, ToUpperCamelCase};
use prost::Message;
use prost_build::Config;
use protox::prost_reflect::prost_types::{DescriptorProto, FileDescriptorSet};

/// The files that nothing else here imports.
const ROOTS: [&str; 5] = [
    "backend/v1/backend.proto",
    "google/rpc/status.proto",
    "grpc/health/v1/health.proto",
    "identity/credential.proto",
    "mls/message_contents/commit_log.proto",
];

/// The packages whose messages hold what must stay out of logs.
const PRIVATE_PACKAGES: &str = "xmtp";

fn main() -> Result<()> {
    let schemas =
        Path::new(&env::var("CARGO_MANIFEST_DIR").map_err(Error::other)?).join("../../proto");
    println!("cargo::rerun-if-changed={}", schemas.display());
    let out = PathBuf::from(env::var("OUT_DIR").map_err(Error::other)?);

    let descriptors = protox::compile(ROOTS, [schemas]).map_err(Error::other)?;
    fs::write(
        out.join("descriptors.bin"),
        without_comments(&descriptors).encode_to_vec(),
    )?;
    fs::write(
        out.join("private_messages.rs"),
        private_messages(&descriptors),
    )?;

    let mut config = Config::new();
    config
        .bytes(["."])
        .skip_debug([format!(".{PRIVATE_PACKAGES}")])
        .include_file("wire.rs");
    #[cfg(feature = "client")]
    config.service_generator(
        tonic_prost_build::configure()
            .build_server(false)
            .build_transport(false)
            .service_generator(),
    );
    config.compile_fds(descriptors)
}

fn without_comments(descriptors: &FileDescriptorSet) -> FileDescriptorSet {
    let mut descriptors = descriptors.clone();
    for file in &mut descriptors.file {
        file.source_code_info = None;
    }
    descriptors
}

/// The input of the macro `hide_fields` in `src/proto.rs`: the generated types that get no derived
/// `Debug`, each with its protobuf name.
fn private_messages(descriptors: &FileDescriptorSet) -> String {
    let mut types = Vec::new();
    for file in &descriptors.file {
        let module = file.package().replace('.', "::");
        if module.split("::").next() == Some(PRIVATE_PACKAGES) {
            for message in &file.message_type {
                collect_types(&module, "", message, &mut types);
            }
        }
    }
    format!("hide_fields! {{ {} }}", types.join(", "))
}

/// Adds a message, its oneofs and the messages inside it. `module` is where the message is in Rust,
/// `scope` what stands before its name in protobuf.
fn collect_types(module: &str, scope: &str, message: &DescriptorProto, types: &mut Vec<String>) {
    let name = format!("{scope}{}", message.name());
    types.push(format!("{module}::{} = {name:?}", message.name()));

    let inner = format!("{module}::{}", message.name().to_snake_case());
    for oneof in real_oneofs(message) {
        let ty = oneof.to_upper_camel_case();
        types.push(format!("{inner}::{ty} = \"{name}.{oneof}\""));
    }
    for nested in &message.nested_type {
        collect_types(&inner, &format!("{name}."), nested, types);
    }
}

/// The names of the oneofs that are in Rust as well. An `optional` field has one of its own in the
/// descriptor alone.
fn real_oneofs(message: &DescriptorProto) -> impl Iterator<Item = &str> {
    (0_i32..)
        .zip(&message.oneof_decl)
        .filter_map(|(index, oneof)| {
            let mut members = message
                .field
                .iter()
                .filter(|field| field.oneof_index == Some(index));
            members
                .any(|field| !field.proto3_optional())
                .then(|| oneof.name())
        })
}
