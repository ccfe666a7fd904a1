//! Identities: the log of signed updates that says who belongs to an inbox.
//!
//! A log is folded from its first update on, and each update applies whole or not at all. Whether one is
//! admitted depends on the log before it and on nothing else, but for the signatures of contract wallets,
//! which only a chain can judge: for those a [`ChainVerifier`] is asked. Nothing here keeps a state from
//! one call to the next (ARC-093).
//!
//! The signatures are verified with k256, ed25519-dalek and p256, which share one generation of hash and
//! curve traits, run natively and as WebAssembly, and are what the known answers were made with. The
//! rest is small enough to be written here, so that every refusal has a type of its own.
//!
//! The delegated keys of XMTP V2 (field 4 of a signature) are retired: such a signature decodes to none.

mod account_id;
mod action;
mod chain;
mod error;
mod identifier;
mod log;
mod signature;
mod state;
mod text;
mod update;

pub use account_id::{AccountId, EvmAccount};
pub use chain::{
    Block, ChainAnswer, ChainVerifier, ContractSignature, ContractVerdict, MAX_BLOCK_AGE_SECONDS,
    NoChainVerifier,
};
pub use error::{AssociationError, ChainFault, IdentityError, SignatureError};
pub use identifier::{Identifier, IdentifierKey, LookupError, LookupKind, inbox_id};
pub use log::{Admission, admit, fold};
pub use state::{AssociationChanges, AssociationState, Member};
pub use update::signed_text;
