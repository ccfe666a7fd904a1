//! Why a publish, or one of its inputs, fails.

use xmtp_protocol::proto::xmtp::backend::v1::publish_error::Reason;
use xmtp_store::StoreError;

use crate::request::Undecodable;

/// Why an input is refused. The texts are constant and free of request data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The request is too long when encoded again.
    #[error("publish request exceeds byte limit")]
    RequestTooLarge,
    /// The request names too many topics.
    #[error("publish exceeds topic limit")]
    TooManyTopics,
    /// The envelope is too long when encoded again.
    #[error("envelope exceeds byte limit")]
    EnvelopeTooLarge,
    /// The payload is unset, does not parse, or gives no legal topic.
    #[error("envelope validation failed")]
    Malformed,
    /// A second, different update for one inbox (API-233).
    #[error("distinct updates address one inbox")]
    SecondUpdate,
    /// Too many contract-wallet signatures in one update.
    #[error("identity update exceeds signature limit")]
    TooManySignatures,
    /// The inbox has as many updates as it may have (API-234).
    #[error("identity history limit reached")]
    HistoryFull,
    /// The key package fails a check.
    #[error("envelope validation failed")]
    KeyPackage,
    /// The update does not apply to its history.
    #[error("envelope validation failed")]
    IdentityUpdate,
    /// A signature of the update is wrong.
    #[error("envelope validation failed")]
    Signature,
}

impl Refusal {
    /// The class that clients act on.
    pub(crate) const fn reason(self) -> Reason {
        match self {
            Self::RequestTooLarge
            | Self::TooManyTopics
            | Self::EnvelopeTooLarge
            | Self::TooManySignatures => Reason::TooLarge,
            Self::Malformed => Reason::MalformedPayload,
            Self::KeyPackage => Reason::InvalidKeyPackage,
            Self::SecondUpdate | Self::HistoryFull | Self::IdentityUpdate => {
                Reason::InvalidIdentityUpdate
            }
            Self::Signature => Reason::InvalidSignature,
        }
    }
}

/// Why a publish stored nothing, or may have stored everything without saying so.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PublishFailure {
    /// The request, or one of its envelopes, is no encoded message; nothing is stored.
    #[error(transparent)]
    Undecodable(#[from] Undecodable),
    /// An input, or the whole request, is refused; nothing is stored.
    #[error("{refusal}")]
    Refused {
        /// Position of the input; `None` when the whole request is at fault.
        index: Option<u32>,
        /// Why.
        refusal: Refusal,
    },
    /// A signature cannot be judged now (API-231); nothing is stored.
    #[error("signature verifier unavailable")]
    VerifierUnavailable,
    /// An inbox's history grew between its validation and the locks (API-232); nothing is stored.
    #[error("identity history changed during validation")]
    HistoryMoved,
    /// The lifetime ran out; whether anything is stored is unknown.
    #[error("publish timed out")]
    TimedOut,
    /// Storage failed; whether anything is stored is unknown unless an invariant broke.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A verdict on one input that could not be given before the locks.
#[derive(Clone, Copy)]
pub(super) enum Verdict {
    Refused(Refusal),
    Unavailable,
}
