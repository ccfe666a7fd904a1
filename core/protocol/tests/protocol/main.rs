//! The crate against the wire contract, against what published clients send, and against garbage.

mod canonical;
#[cfg(feature = "client")]
mod clients;
mod corpus;
mod cursors;
mod data;
mod delivery;
mod fixtures;
mod identity;
mod key_packages;
mod payloads;
mod privacy;
mod push;
mod recorded;
mod robustness;
mod topics;
mod wire;
