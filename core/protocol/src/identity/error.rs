//! Why an identity update is refused, or cannot be judged now.

use thiserror::Error;

/// Why an identity update cannot be admitted, or a stored log not be folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum IdentityError {
    /// A signature cannot be read as one, or does not verify: `REASON_INVALID_SIGNATURE`.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// The update does not apply: `REASON_INVALID_IDENTITY_UPDATE`.
    #[error(transparent)]
    Association(#[from] AssociationError),
    /// No verdict can be reached now: `UNAVAILABLE`, and never an invalid signature (API-231, ARC-091).
    #[error(transparent)]
    Chain(#[from] ChainFault),
}

/// Why a signature is refused (contract of identities, sections 3, 4 and 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SignatureError {
    /// A required signature is absent, or of no kind (IDENT-001).
    #[error("signature is missing")]
    Missing,
    /// The key of an installation is not 32 bytes.
    #[error("signature key has the wrong length")]
    KeyLength,
    /// The signature has not the length of its kind.
    #[error("signature has the wrong length")]
    Length,
    /// What a passkey signed is not JSON with the challenge of this update and an origin.
    #[error("client data does not carry the challenge")]
    PasskeyClientData,
    /// The account of a contract wallet is not a CAIP-10 `eip155` account (IDENT-060).
    #[error("account id is malformed")]
    AccountIdForm,
    /// The block of a contract-wallet signature is too old, or not there yet (IDENT-062).
    #[error("block of the signature is not recent")]
    StaleBlock,
    /// It does not verify.
    #[error("signature does not verify")]
    Invalid,
}

/// Why an update does not apply to the state of its inbox (contract of identities, sections 3 and 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AssociationError {
    /// The update has no action (IDENT-001).
    #[error("update has no action")]
    EmptyUpdate,
    /// An action is of no kind (IDENT-001).
    #[error("action is unset")]
    ActionUnset,
    /// A member identifier is absent or of no kind (IDENT-001).
    #[error("member identifier is unset")]
    MemberUnset,
    /// An identifier has not the form of its kind (IDENT-013).
    #[error("identifier is malformed")]
    IdentifierForm,
    /// There is no inbox to act on.
    #[error("inbox is not created")]
    NotCreated,
    /// There is an inbox already.
    #[error("inbox is created already")]
    AlreadyCreated,
    /// The inbox is created in another name than its signer's.
    #[error("signer is not the initial identifier")]
    SignerMismatch,
    /// A signature of this kind cannot stand for an identifier of that kind (IDENT-031).
    #[error("kind of signature is not allowed here")]
    SignatureNotAllowed,
    /// The member to add is not the one who signed.
    #[error("signer is not the new member")]
    NewMemberMismatch,
    /// A member adds itself.
    #[error("member adds itself")]
    AddSelf,
    /// The member to add is one already (IDENT-040).
    #[error("new member is a member already")]
    AlreadyMember,
    /// The one who adds is neither a member nor the recovery identifier.
    #[error("signer is not a member")]
    NotAMember,
    /// An installation adds an installation.
    #[error("member of this kind cannot be added by its signer")]
    MemberNotAllowed,
    /// Only the recovery identifier may do this.
    #[error("signer is not the recovery identifier")]
    NotRecovery,
    /// The account signs on another chain than the one on record (IDENT-045, IDENT-046).
    #[error("signature is from another chain")]
    ChainMismatch,
    /// The log holds this signature already (IDENT-050).
    #[error("signature was used before")]
    Replay,
    /// The update names another inbox than the one that it applies to (IDENT-003).
    #[error("update names another inbox")]
    WrongInboxId,
}

/// Why there is no verdict. The caller may try again (API-231, ARC-091).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ChainFault {
    /// Nothing here can ask a chain.
    #[error("no verifier of contract-wallet signatures")]
    NoVerifier,
    /// There is no route to this chain.
    #[error("no route to the chain")]
    NoRoute,
    /// The chain did not answer, or not with a verdict.
    #[error("the chain gave no verdict")]
    Unreachable,
}
