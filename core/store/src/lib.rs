//! Durable state of the XMTP backend, in PostgreSQL 17 or later.
//!
//! Records and typed errors go in and out; no wire message and no transport status does (ARC-010).
//!
//! - [`Primary`] is the one writable database: migrations, the [publish transaction](publish), `Query`
//!   (which reads its caller's own writes), identity history, and the [allocation boundary](boundary).
//! - [`Reads`] answers what may lag (OPS-009): newest envelopes, the inboxes of identifiers, and the heads
//!   and ranges that streams catch up from. It may be the primary or one physical replica.
//! - [`Condition`] and [`Inspection`] say, to an operator, what a database is like and what it holds.
//! - [`Tail`] is the dedicated connection on which an instance follows new rows (ARC-070).
//!
//! Every sequence id here is a [`SequenceId`](xmtp_protocol::SequenceId): positive for a stored row,
//! zero for "none yet".

mod address;
mod answers;
mod associations;
pub mod boundary;
mod catch_up;
mod condition;
mod connection;
mod error;
mod inspect;
mod metrics;
mod migrate;
mod newest;
mod pool;
pub mod publish;
mod query;
mod record;
mod replica;
mod schema;
mod standby;
mod tail;

pub use address::{AddressError, check_address};
pub use associations::InboxId;
pub use catch_up::{CatchUpPage, CatchUpRange, CatchUpRow};
pub use condition::{Condition, Data, Durability};
pub use connection::{Primary, Reads, Settings};
pub use error::{ErrorKind, StoreError};
pub use inspect::{Inspection, KindCount, Position, PushBacklog, Size, Trouble};
pub use metrics::{FAMILIES, count_error};
pub use migrate::StartupCheckError;
pub use newest::NewestEnvelope;
pub use query::{Page, TopicPosition};
pub use record::{EnvelopeKey, Metadata, NewEnvelope, StoredEnvelope};
pub use replica::ReplicaCondition;
pub use schema::{MIGRATOR, SchemaProblem, SchemaState};
pub use tail::{GapRange, Tail, TailPage, TailRow};
