//! The XMTP backend's server: configuration, gRPC services, transport, telemetry and lifecycle, and the
//! [`Subsystem`](subsystem::Subsystem) trait through which optional capabilities join.
//!
//! [`Server::configure`] takes a document apart, [`Server::start`] brings everything up, and
//! [`RunningServer::stop`] drains it. [`Server::examine`] and [`Server::inspect`] serve nothing: they tell an
//! operator how things are.

mod chains;
mod check;
mod codec;
pub mod config;
pub mod doctor;
mod frames;
mod lifecycle;
mod publish;
mod published;
mod readiness;
mod request;
mod services;
mod status;
pub mod subsystem;
pub mod telemetry;
mod transport;
mod wire;

pub use lifecycle::{RunningServer, Server, StartError};
