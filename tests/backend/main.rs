//! The backend as its clients see it: real gRPC over sockets, real PostgreSQL.

#[cfg(feature = "auth")]
mod auth;
mod boot;
mod cli;
mod configuration;
mod crash;
mod drain;
mod harness;
mod health;
mod http2;
mod identity;
mod judge;
mod leaks;
#[cfg(target_os = "linux")]
mod memory;
mod newest;
#[cfg(feature = "otlp")]
mod otlp;
mod process;
mod publish;
mod query;
mod raw;
#[cfg(feature = "replica")]
mod replica;
#[cfg(feature = "scw")]
mod scw;
mod smoke;
mod start;
mod storage;
mod streams;
mod telemetry;
mod tools;
mod transport;
