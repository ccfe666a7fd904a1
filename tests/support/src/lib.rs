//! What the tests of every crate share.
//!
//! Everything here panics with a text instead of answering an error: a test that has no database has failed.

mod anvil;
pub mod contracts;
mod database;
mod eventually;
pub mod payloads;
mod random;
mod server;

pub use anvil::{Anvil, Head};
pub use database::{SERVER_VARIABLE, TestDatabase};
pub use eventually::{PATIENCE, eventually};
pub use random::Random;
pub use server::PostgresServer;
