//! What the clients and the server of an XMTP backend share: the messages of the wire, topics and
//! cursors, the canonical encoding of envelopes with its hash, and the parsing of payloads.
//!
//! Nothing here does I/O, knows a database or a transport, or needs an operating system: the crate
//! builds for `wasm32-unknown-unknown` (ARC-010, ARC-011).
//!
//! # From bytes to a row, and back
//!
//! ```
//! use prost::Message;
//! use xmtp_protocol::{
//!     ParsedEnvelope, TopicKind,
//!     proto::xmtp::backend::v1::{ClientEnvelope, WelcomeMessage, client_envelope, welcome_message},
//! };
//!
//! let welcome = welcome_message::V1 { installation_key: vec![7; 32].into(), ..Default::default() };
//! let sent = ClientEnvelope {
//!     payload: Some(client_envelope::Payload::WelcomeMessage(WelcomeMessage {
//!         version: Some(welcome_message::Version::V1(welcome)),
//!     })),
//! };
//!
//! let parsed = ParsedEnvelope::parse(sent.clone())?;
//! assert_eq!(parsed.topic.kind(), TopicKind::Welcome);
//! assert_eq!(parsed.topic.identifier(), [7; 32]);
//! assert!(parsed.push_eligible);
//! assert!(ClientEnvelope::decode(parsed.payload)? == sent);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Clients
//!
//! The feature `client` adds `client`: the gRPC clients of every service, over a transport of the
//! caller's choice. Without it the crate knows nothing of gRPC.
//!
//! # Privacy
//!
//! Topics, cursors, hashes and messages do not show their content in `Debug`, and errors carry none
//! of it, so that no log line can.

#[cfg(feature = "client")]
pub mod client;
mod cursor;
mod delivery;
mod envelope;
pub mod identity;
mod key_package;
mod payload;
pub mod proto;
mod topic;
mod validator;
pub mod wire;

pub use cursor::{SequenceId, SequenceIdError};
pub use delivery::{MAX_DELIVERY_OVERHEAD_BYTES, StoredEnvelope};
pub use envelope::{Content, MessageHash, ParseError, ParsedEnvelope, canonical_len};
pub use key_package::{KeyPackageError, check_key_package};
pub use topic::{Topic, TopicError, TopicKind};
pub use validator::{IdentityVerdict, NetworkValidator, ValidationError, Validator};
