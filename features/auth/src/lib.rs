//! Who may use the backend: named API keys, and JWTs that a known key has signed, either or both (authentication
//! contract). Without an `[auth]` section that says `enabled = true`, nothing of this runs.
//!
//! A request is judged by its path and its `authorization` header alone, in the stages of `gate`, of which the first
//! that fails answers. No request fetches a key: inline keys are there from the start, and those of a JWKS are
//! replaced as a whole by `refresh`.
//!
//! Nothing here shows a token, the value of an API key, a claim or the URL of a JWKS.

mod algorithm;
mod api_keys;
mod bearer;
mod claims;
mod config;
mod digest;
mod families;
mod fetch;
mod gate;
mod jwks;
mod keys;
mod monitoring;
mod principal;
mod reason;
mod refresh;
mod rejection;
mod subsystem;
#[cfg(test)]
mod testing;
mod token;
mod turns;
mod verdicts;

pub use claims::Claims;
pub use config::Auth;
pub use principal::Principal;
pub use subsystem::AuthSubsystem;
