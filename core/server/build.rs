//! Generates the server side of core's gRPC services from `proto/`.
//!
//! Messages are those of `xmtp-protocol`, except the responses that carry stored envelopes: those are
//! written out in `src/wire.rs`, with the envelope as the bytes that are stored.

use std::env;
use std::io::{Error, Result};
use std::path::Path;

/// Services that core serves; the others belong to subsystems.
const SERVICES: [&str; 5] = [
    "ConfigurationService",
    "Health",
    "PublishService",
    "QueryService",
    "SubscriptionService",
];

/// Responses that carry stored envelopes.
const STORED: [&str; 4] = [
    "QueryResponse",
    "QueryNewestResponse",
    "SubscribeResponse",
    "SubscribeStaticResponse",
];

fn main() -> Result<()> {
    // Asked for when it runs: a checkout that shares the target folder may have compiled this program.
    let folder = env::var("CARGO_MANIFEST_DIR").map_err(Error::other)?;
    let schemas = Path::new(&folder).join("../../proto");
    println!("cargo::rerun-if-changed={}", schemas.display());
    let mut descriptors = protox::compile(
        ["backend/v1/backend.proto", "grpc/health/v1/health.proto"],
        [schemas],
    )
    .map_err(Error::other)?;
    for file in &mut descriptors.file {
        file.service
            .retain(|service| SERVICES.contains(&service.name()));
    }
    let services = tonic_prost_build::configure()
        .build_client(false)
        .build_transport(false);
    let mut config = prost_build::Config::new();
    config
        .service_generator(services.service_generator())
        .extern_path(".xmtp", "::xmtp_protocol::proto::xmtp")
        .extern_path(".grpc", "::xmtp_protocol::proto::grpc")
        .include_file("services.rs");
    for response in STORED {
        config.extern_path(
            format!(".xmtp.backend.v1.{response}"),
            format!("crate::wire::{response}"),
        );
    }
    config.compile_fds(descriptors)
}
