//! The five kinds of payload, each with what must be read out of it before it can be stored.

pub(crate) mod commit_log_entry;
pub(crate) mod group_message;
pub(crate) mod identity_update;
pub(crate) mod key_package;
pub(crate) mod welcome;
