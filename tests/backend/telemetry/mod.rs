//! What the backend tells about itself, and what it never does.

mod catalogue;
mod hygiene;
mod listener;
mod probe;
mod requests;
pub(crate) mod watch;

#[cfg(feature = "otlp")]
pub(crate) use listener::{free_address, get};
