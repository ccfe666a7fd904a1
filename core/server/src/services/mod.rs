//! Core's gRPC services: wire in, typed calls, wire out.

pub(crate) mod configuration;
pub(crate) mod health;
pub(crate) mod publish;
pub(crate) mod query;
pub(crate) mod subscription;

/// The generated server traits.
#[expect(
    unreachable_pub,
    unused_qualifications,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::pedantic,
    reason = "tonic generates the services"
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/services.rs"));
}

pub(crate) use generated::grpc::health::v1::health_server::HealthServer;
pub(crate) use generated::xmtp::backend::v1::configuration_service_server::ConfigurationServiceServer;
pub(crate) use generated::xmtp::backend::v1::publish_service_server::PublishServiceServer;
pub(crate) use generated::xmtp::backend::v1::query_service_server::QueryServiceServer;
use generated::{grpc, xmtp};
