//! Streams: how soon, how fast, how small.

pub(crate) mod barrier;
pub(crate) mod catch_up;
mod client;
pub(crate) mod fan_out;
pub(crate) mod hostile;
pub(crate) mod latency;
pub(crate) mod memory;
