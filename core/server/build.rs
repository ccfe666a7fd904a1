//! Generates the server side of core's gRPC services from `proto/`.
//!
//! Messages are those of `xmtp-protocol`, with two exceptions. Responses that carry stored envelopes are
//! written out in `src/wire.rs`, with the envelope as the bytes that are stored. Requests that hold lists
//! stay encoded until their service has looked at them: `src/request.rs`. Streams are served without generated
//! code, since their frames are sent as they are stored: `src/services/subscription.rs`.

use std::env;
use std::io::{Error, Result};
use std::path::Path;

use prost_build::{Service, ServiceGenerator};

/// Services that core serves by generated code.
const SERVICES: [&str; 5] = [
    "ConfigurationService",
    "Health",
    "IdentityService",
    "PublishService",
    "QueryService",
];

/// Responses that carry stored envelopes.
const STORED: [&str; 2] = ["QueryResponse", "QueryNewestResponse"];

/// Services whose requests hold lists.
const ENCODED: [&str; 3] = ["IdentityService", "PublishService", "QueryService"];

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
    let mut config = prost_build::Config::new();
    config
        .service_generator(Box::new(Services::new()))
        .extern_path(".xmtp", "::xmtp_protocol::proto::xmtp")
        .extern_path(".grpc", "::xmtp_protocol::proto::grpc")
        .include_file("services.rs");
    for response in STORED {
        config.extern_path(
            format!(".xmtp.backend.v1.{response}"),
            format!("crate::wire::{response}"),
        );
    }
    for file in &descriptors.file {
        for service in &file.service {
            if ENCODED.contains(&service.name()) {
                for method in &service.method {
                    let request = method.input_type();
                    let name = request.rsplit('.').next().unwrap_or_default();
                    config.extern_path(request, format!("crate::request::{name}"));
                }
            }
        }
    }
    config.compile_fds(descriptors)
}

/// Generates each service with the codec of its requests.
struct Services {
    decoded: Box<dyn ServiceGenerator>,
    encoded: Box<dyn ServiceGenerator>,
}

impl Services {
    fn new() -> Self {
        let services = || {
            tonic_prost_build::configure()
                .build_client(false)
                .build_transport(false)
        };
        Self {
            decoded: services()
                .codec_path("crate::codec::DecodedCodec")
                .service_generator(),
            encoded: services()
                .codec_path("crate::codec::EncodedCodec")
                .service_generator(),
        }
    }
}

impl ServiceGenerator for Services {
    fn generate(&mut self, service: Service, out: &mut String) {
        let generator = if ENCODED.contains(&service.proto_name.as_str()) {
            &mut self.encoded
        } else {
            &mut self.decoded
        };
        // Each writes what it was given, and nothing in `finalize` that the other does not.
        generator.generate(service, out);
        generator.finalize(out);
    }
}
