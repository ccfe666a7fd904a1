//! What the backend tells about itself, and what it never does.

mod catalogue;
mod hygiene;
mod listener;
mod probe;
mod requests;
pub(crate) mod watch;

#[cfg(any(feature = "otlp", feature = "replica"))]
pub(crate) use listener::{free_address, get};
