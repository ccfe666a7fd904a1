//! What takes more than an envelope to judge: histories, chains, and the time.

use std::{pin::Pin, sync::Arc};

use bytes::Bytes;
use prost::Message;
use thiserror::Error;

use crate::{
    identity::{
        self, AssociationChanges, AssociationError, ChainFault, ChainVerifier, IdentityError,
        NoChainVerifier, SignatureError,
    },
    key_package::{KeyPackageError, check_key_package},
    proto::xmtp::{
        backend::v1::{ClientEnvelope, client_envelope::Payload},
        identity::associations::IdentityUpdate,
    },
};

/// Why a parsed payload is not valid (ARC-090).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ValidationError {
    /// `REASON_INVALID_KEY_PACKAGE`.
    #[error("invalid key package")]
    KeyPackage(#[source] KeyPackageError),
    /// `REASON_INVALID_IDENTITY_UPDATE`.
    #[error("invalid identity update")]
    IdentityUpdate(#[source] AssociationError),
    /// `REASON_INVALID_SIGNATURE`.
    #[error("invalid signature")]
    Signature(#[source] SignatureError),
    /// A verdict cannot be reached now: the caller may try again (API-231).
    #[error("signature verifier unavailable")]
    Unavailable(#[source] ChainFault),
    /// What is stored is not what was put there: `INTERNAL`.
    #[error("stored identity update does not decode")]
    StoredHistory,
}

impl From<IdentityError> for ValidationError {
    fn from(error: IdentityError) -> Self {
        match error {
            IdentityError::Association(error) => Self::IdentityUpdate(error),
            IdentityError::Signature(error) => Self::Signature(error),
            IdentityError::Chain(fault) => Self::Unavailable(fault),
        }
    }
}

/// A verdict on an identity update, which may have to wait for a chain: what the update changes in the
/// projection of identifiers once it is stored, or why it must not be.
pub type IdentityVerdict<'a> =
    Pin<Box<dyn Future<Output = Result<AssociationChanges, ValidationError>> + Send + 'a>>;

/// Judges the payloads that parsing alone does not (API-230).
pub trait Validator: Send + Sync {
    /// Judges an MLS key package, TLS encoded.
    ///
    /// # Errors
    ///
    /// [`ValidationError::KeyPackage`].
    fn key_package(&self, tls: &Bytes) -> Result<(), ValidationError>;

    /// Judges an identity update against the stored envelopes of its inbox, ascending. Its errors are
    /// all but [`ValidationError::KeyPackage`].
    ///
    /// The verdict holds for this history alone. Whoever stores the update has to see that the log has
    /// not grown since.
    fn identity_update<'a>(
        &'a self,
        history: &'a [Bytes],
        update: &'a IdentityUpdate,
    ) -> IdentityVerdict<'a>;
}

/// Judges as the network does (ARC-013), with a chain verifier and a clock from outside.
pub struct NetworkValidator {
    chain: Arc<dyn ChainVerifier>,
    unix_seconds: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl NetworkValidator {
    /// A validator that knows no chain: contract wallets get no verdict, and never a refusal.
    ///
    /// `unix_seconds` is the clock that lifetimes of key packages are held against.
    pub fn new(unix_seconds: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self {
            chain: Arc::new(NoChainVerifier),
            unix_seconds: Arc::new(unix_seconds),
        }
    }

    /// The same validator, with something to ask chains.
    #[must_use]
    pub fn with_chain(self, chain: Arc<dyn ChainVerifier>) -> Self {
        Self { chain, ..self }
    }
}

impl Validator for NetworkValidator {
    fn key_package(&self, tls: &Bytes) -> Result<(), ValidationError> {
        check_key_package(tls, (self.unix_seconds)()).map_err(ValidationError::KeyPackage)
    }

    fn identity_update<'a>(
        &'a self,
        history: &'a [Bytes],
        update: &'a IdentityUpdate,
    ) -> IdentityVerdict<'a> {
        Box::pin(async move {
            let history: Vec<IdentityUpdate> = history
                .iter()
                .map(stored_update)
                .collect::<Option<_>>()
                .ok_or(ValidationError::StoredHistory)?;
            let admission = identity::admit(&history, update, &*self.chain).await?;
            Ok(admission.changes)
        })
    }
}

/// Reads an update out of a stored envelope.
fn stored_update(envelope: &Bytes) -> Option<IdentityUpdate> {
    match ClientEnvelope::decode(envelope.clone()).ok()?.payload? {
        Payload::IdentityUpdate(update) => Some(update),
        _ => None,
    }
}
