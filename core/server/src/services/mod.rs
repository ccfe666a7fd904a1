//! Core's gRPC services: wire in, typed calls, wire out.

pub(crate) mod configuration;
pub(crate) mod health;
pub(crate) mod identity;
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
pub(crate) use generated::xmtp::backend::v1::identity_service_server::IdentityServiceServer;
pub(crate) use generated::xmtp::backend::v1::publish_service_server::PublishServiceServer;
pub(crate) use generated::xmtp::backend::v1::query_service_server::QueryServiceServer;
use generated::{grpc, xmtp};

use prost::Message;
use tonic::Status;

use crate::request::Encoded;
use crate::status;

/// Refuses a list that is too long before it is decoded.
fn within<M: Message + Default>(
    request: &Encoded<M>,
    field: u32,
    max: usize,
) -> Result<(), Status> {
    if request.count(&[field]).map_err(status::undecodable)? > max {
        return Err(too_many());
    }
    Ok(())
}

fn decode<M: Message + Default>(request: Encoded<M>) -> Result<M, Status> {
    request.decode().map_err(status::undecodable)
}

fn too_many() -> Status {
    Status::invalid_argument("request exceeds item limit")
}
