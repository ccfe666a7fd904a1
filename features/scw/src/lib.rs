//! Asks Ethereum chains whether a contract wallet made a signature (ERC-1271, ERC-6492; contract of identities, section
//! 6). Without a chain in `[chains]`, nothing of this runs.
//!
//! A `route` leads to one chain, through a provider that speaks JSON-RPC and that nothing is believed of which can be
//! checked. The judge is the `validator`, a contract of our own that runs there in a call and is never deployed. The
//! `verifier` puts them together, and keeps verdicts in a `cache`.
//!
//! A verdict is an answer; everything else is a fault, which says that the caller may try again, and is never kept.
//!
//! The URL of a provider may hold a credential. It is in no log, error or `Debug`, and neither is what a provider says.

mod cache;
mod config;
mod families;
mod monitoring;
mod route;
mod rpc;
mod subsystem;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod trouble;
mod validator;
mod verifier;

pub use config::{Chains, Validation};
pub use subsystem::ScwSubsystem;
