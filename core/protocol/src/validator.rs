//! The seam between parsing and what takes more than an envelope to judge.

use std::pin::Pin;

use bytes::Bytes;

use crate::proto::xmtp::identity::associations::IdentityUpdate;

/// Why a parsed payload is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValidationError {
    /// A key package fails a check of RFC 9420.
    #[error("invalid key package")]
    KeyPackage,
    /// An identity update does not apply to the history of its inbox.
    #[error("invalid identity update")]
    IdentityUpdate,
    /// A signature of an identity update does not verify.
    #[error("invalid signature")]
    Signature,
    /// A verdict cannot be reached now: the caller may try again (API-231).
    #[error("signature verifier unavailable")]
    Unavailable,
}

/// A verdict that may have to wait for a chain.
pub type Verdict<'a> = Pin<Box<dyn Future<Output = Result<(), ValidationError>> + Send + 'a>>;

/// Judges the payloads that parsing alone does not (API-230).
pub trait Validator: Send + Sync {
    /// Judges an MLS key package, TLS encoded.
    fn key_package<'a>(&'a self, tls: &'a Bytes) -> Verdict<'a>;

    /// Judges an identity update against the stored envelopes of its inbox, ascending.
    fn identity_update<'a>(
        &'a self,
        history: &'a [Bytes],
        update: &'a IdentityUpdate,
    ) -> Verdict<'a>;
}

/// Accepts whatever parses.
#[derive(Clone, Copy, Debug, Default)]
pub struct ParseOnly;

impl Validator for ParseOnly {
    fn key_package<'a>(&'a self, _tls: &'a Bytes) -> Verdict<'a> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn identity_update<'a>(
        &'a self,
        _history: &'a [Bytes],
        _update: &'a IdentityUpdate,
    ) -> Verdict<'a> {
        Box::pin(std::future::ready(Ok(())))
    }
}
