//! Newest envelopes, the inboxes of identifiers and streams, read from one physical standby of the primary
//! (ARC-060, OPS-009): `database.replica_url`.
//!
//! What is special about reading from a standby is in `xmtp_store`: its pool, the tailer's connection, and that both
//! lead to one server that is a standby of this primary. Here is when the server begins to read from it, and what
//! `doctor` says of it.

mod config;
mod examine;
mod source;

use xmtp_server::config::{ConfigErrors, OwnedSchema};
use xmtp_server::subsystem::{Configure, Subsystem};

use config::{KEY, ReplicaUrl};
use source::Replica;

/// The subsystem. It does nothing unless the document has `database.replica_url`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplicaSubsystem;

impl Subsystem for ReplicaSubsystem {
    fn name(&self) -> &'static str {
        "replica"
    }

    fn schemas(&self) -> Vec<OwnedSchema> {
        vec![OwnedSchema::section::<ReplicaUrl>(KEY)]
    }

    fn configure(&mut self, context: &mut Configure<'_>) -> Result<(), ConfigErrors> {
        if let Some(ReplicaUrl(url)) = context.document.take(KEY)? {
            context.read_source(Replica(url));
        }
        Ok(())
    }
}
