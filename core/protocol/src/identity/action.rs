//! The actions of identity updates, read before anything is verified.

use super::{
    error::{AssociationError, IdentityError, SignatureError},
    identifier::Identifier,
};
use crate::proto::xmtp::identity::associations::{
    self as wire, IdentityAction, identity_action::Kind,
};

/// One change to an inbox, with signatures of the type `S`.
pub(super) enum Action<S> {
    /// Opens the inbox.
    Create {
        initial: Identifier,
        nonce: u64,
        signature: S,
    },
    /// Adds a member.
    Add {
        member: Identifier,
        by_existing: S,
        by_new: S,
    },
    /// Removes a member.
    Revoke { member: Identifier, by_recovery: S },
    /// Gives the recovery role to another identifier.
    ChangeRecovery { new: Identifier, by_recovery: S },
}

impl<S> Action<S> {
    /// Reads an action, its signatures with `signature`.
    pub(super) fn read(
        action: &IdentityAction,
        signature: impl Fn(Option<&wire::Signature>) -> Result<S, SignatureError>,
    ) -> Result<Self, IdentityError> {
        let kind = action.kind.as_ref().ok_or(AssociationError::ActionUnset)?;
        Ok(match kind {
            Kind::CreateInbox(create) => Self::Create {
                initial: Identifier::from_text(
                    &create.initial_identifier,
                    create.initial_identifier_kind,
                )?,
                nonce: create.nonce,
                signature: signature(create.initial_identifier_signature.as_ref())?,
            },
            Kind::Add(add) => Self::Add {
                member: Identifier::from_member(add.new_member_identifier.as_ref())?,
                by_existing: signature(add.existing_member_signature.as_ref())?,
                by_new: signature(add.new_member_signature.as_ref())?,
            },
            Kind::Revoke(revoke) => Self::Revoke {
                member: Identifier::from_member(revoke.member_to_revoke.as_ref())?,
                by_recovery: signature(revoke.recovery_identifier_signature.as_ref())?,
            },
            Kind::ChangeRecoveryAddress(change) => Self::ChangeRecovery {
                new: Identifier::from_text(
                    &change.new_recovery_identifier,
                    change.new_recovery_identifier_kind,
                )?,
                by_recovery: signature(change.existing_recovery_identifier_signature.as_ref())?,
            },
        })
    }

    /// Has `map` turn each signature into another.
    ///
    /// # Errors
    ///
    /// The first of `map`.
    pub(super) fn try_map<T, E>(
        self,
        mut map: impl FnMut(S) -> Result<T, E>,
    ) -> Result<Action<T>, E> {
        Ok(match self {
            Self::Create {
                initial,
                nonce,
                signature,
            } => Action::Create {
                initial,
                nonce,
                signature: map(signature)?,
            },
            Self::Add {
                member,
                by_existing,
                by_new,
            } => Action::Add {
                member,
                by_existing: map(by_existing)?,
                by_new: map(by_new)?,
            },
            Self::Revoke {
                member,
                by_recovery,
            } => Action::Revoke {
                member,
                by_recovery: map(by_recovery)?,
            },
            Self::ChangeRecovery { new, by_recovery } => Action::ChangeRecovery {
                new,
                by_recovery: map(by_recovery)?,
            },
        })
    }
}
