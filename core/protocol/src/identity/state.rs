//! The association state: what a log of updates makes of an inbox.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fmt,
};

use super::{
    action::Action,
    error::AssociationError,
    identifier::{Identifier, IdentifierKey, inbox_id},
    signature::{ReplayKey, Verified},
    update::Update,
};

/// An inbox as a log of updates leaves it. `Debug` does not show it.
///
/// It has an id and a recovery identifier from the first update on. It may lose all its members.
#[derive(Clone, PartialEq, Eq)]
pub struct AssociationState {
    inbox_id: String,
    members: BTreeMap<Identifier, Member>,
    recovery: Recovery,
    /// The signatures of all updates applied, in their canonical form.
    seen: HashSet<ReplayKey>,
}

/// How a member came to be one.
#[derive(Clone, PartialEq, Eq)]
pub struct Member {
    /// Who added it; None for the one who opened the inbox.
    pub added_by: Option<Identifier>,
    /// The time that the adding update claims, in Unix nanoseconds; None for the one who opened the
    /// inbox.
    pub added_at_ns: Option<u64>,
    /// The chain of the contract wallet; None for a member that needs none.
    pub chain_id: Option<u64>,
}

/// Who may revoke, and hand on this role.
#[derive(Clone, PartialEq, Eq)]
struct Recovery {
    identifier: Identifier,
    chain_id: Option<u64>,
}

/// What an update changes in the projection of identifiers (ARC-022). Installations are not in it.
///
/// Both sets are sorted, and have no key in common. `Debug` shows kinds alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssociationChanges {
    /// These are associated from this update on: the association's sequence id becomes that of the
    /// update, and a revocation is cleared. A member that the update removes and adds again is here.
    pub associated: Vec<IdentifierKey>,
    /// These are not any more: the revocation's sequence id becomes that of the update.
    pub revoked: Vec<IdentifierKey>,
}

impl AssociationState {
    /// The inbox id: 64 lower-case hex characters.
    pub fn inbox_id(&self) -> &str {
        &self.inbox_id
    }

    /// The members, each once.
    pub const fn members(&self) -> &BTreeMap<Identifier, Member> {
        &self.members
    }

    /// Who may revoke members and hand on this role. It need not be a member.
    pub const fn recovery_identifier(&self) -> &Identifier {
        &self.recovery.identifier
    }

    /// The members that the projection has.
    fn keys(&self) -> BTreeSet<IdentifierKey> {
        self.members.keys().filter_map(Identifier::key).collect()
    }

    /// Applies an update to `state`, which is None before the first (IDENT-002, IDENT-004).
    pub(super) fn fold(
        state: Option<Self>,
        update: &Update<Verified>,
    ) -> Result<Self, AssociationError> {
        Self::fold_noting_removed(state, update, &mut BTreeSet::new())
    }

    /// Applies an update to `state`, and tells what it changes in the projection.
    pub(super) fn fold_with_changes(
        state: Option<Self>,
        update: &Update<Verified>,
    ) -> Result<(Self, AssociationChanges), AssociationError> {
        let before = state.as_ref().map(Self::keys).unwrap_or_default();
        let mut removed = BTreeSet::new();
        let state = Self::fold_noting_removed(state, update, &mut removed)?;
        let removed: BTreeSet<_> = removed.iter().filter_map(Identifier::key).collect();
        let after = state.keys();
        let changes = AssociationChanges {
            associated: after
                .iter()
                .filter(|key| !before.contains(key) || removed.contains(key))
                .cloned()
                .collect(),
            revoked: before.difference(&after).cloned().collect(),
        };
        Ok((state, changes))
    }

    /// Applies an update, and adds every member that it removes to `removed`, those added again
    /// included.
    fn fold_noting_removed(
        mut state: Option<Self>,
        update: &Update<Verified>,
        removed: &mut BTreeSet<Identifier>,
    ) -> Result<Self, AssociationError> {
        for action in &update.actions {
            state = Some(match (state, action) {
                (
                    None,
                    Action::Create {
                        initial,
                        nonce,
                        signature,
                    },
                ) => Self::create(initial, *nonce, signature)?,
                (Some(_), Action::Create { .. }) => return Err(AssociationError::AlreadyCreated),
                (None, _) => return Err(AssociationError::NotCreated),
                (
                    Some(mut state),
                    Action::Add {
                        member,
                        by_existing,
                        by_new,
                    },
                ) => {
                    state.add(member, by_existing, by_new, update.client_timestamp_ns)?;
                    state
                }
                (
                    Some(mut state),
                    Action::Revoke {
                        member,
                        by_recovery,
                    },
                ) => {
                    state.revoke(member, by_recovery, removed)?;
                    state
                }
                (Some(mut state), Action::ChangeRecovery { new, by_recovery }) => {
                    state.change_recovery(new, by_recovery)?;
                    state
                }
            });
        }
        let mut state = state.ok_or(AssociationError::EmptyUpdate)?;
        if state.inbox_id != update.inbox_id {
            return Err(AssociationError::WrongInboxId);
        }
        // Only now: one signature used twice inside one update is no replay.
        state.seen.extend(
            update
                .signatures()
                .map(|signature| signature.replay_key.clone()),
        );
        Ok(state)
    }

    fn create(
        initial: &Identifier,
        nonce: u64,
        signature: &Verified,
    ) -> Result<Self, AssociationError> {
        check_stands_for(signature, initial, AssociationError::SignerMismatch)?;
        let member = Member {
            added_by: None,
            added_at_ns: None,
            chain_id: signature.chain_id,
        };
        Ok(Self {
            inbox_id: inbox_id(initial, nonce),
            members: BTreeMap::from([(initial.clone(), member)]),
            recovery: Recovery {
                identifier: initial.clone(),
                chain_id: signature.chain_id,
            },
            seen: HashSet::new(),
        })
    }

    fn add(
        &mut self,
        member: &Identifier,
        by_existing: &Verified,
        by_new: &Verified,
        client_timestamp_ns: u64,
    ) -> Result<(), AssociationError> {
        self.check_unseen(by_existing)?;
        self.check_unseen(by_new)?;
        check_stands_for(by_new, member, AssociationError::NewMemberMismatch)?;
        let adder = &by_existing.signer;
        if *adder == by_new.signer {
            return Err(AssociationError::AddSelf);
        }
        if self.members.contains_key(member) {
            return Err(AssociationError::AlreadyMember);
        }
        let chain_id = match self.members.get(adder) {
            Some(existing) => existing.chain_id,
            None if *adder == self.recovery.identifier => self.recovery.chain_id,
            None => return Err(AssociationError::NotAMember),
        };
        if by_existing.chain_id != chain_id {
            return Err(AssociationError::ChainMismatch);
        }
        if adder.is_installation() && member.is_installation() {
            return Err(AssociationError::MemberNotAllowed);
        }
        let details = Member {
            added_by: Some(adder.clone()),
            added_at_ns: Some(client_timestamp_ns),
            chain_id: by_new.chain_id,
        };
        self.members.insert(member.clone(), details);
        Ok(())
    }

    /// Removes `member` and the installations that it added. Wallets and passkeys that it added stay,
    /// and so does the recovery role, whoever is removed. A member that is none is no error: there may be
    /// installations that it added as recovery identifier alone.
    fn revoke(
        &mut self,
        member: &Identifier,
        by_recovery: &Verified,
        removed: &mut BTreeSet<Identifier>,
    ) -> Result<(), AssociationError> {
        self.check_recovery(by_recovery)?;
        self.members.retain(|identifier, details| {
            let is_child =
                identifier.is_installation() && details.added_by.as_ref() == Some(member);
            let is_removed = identifier == member || is_child;
            if is_removed {
                removed.insert(identifier.clone());
            }
            !is_removed
        });
        Ok(())
    }

    /// Gives the role away. The new identifier signs nothing; what is on record of its chain is what it
    /// became a member with.
    fn change_recovery(
        &mut self,
        new: &Identifier,
        by_recovery: &Verified,
    ) -> Result<(), AssociationError> {
        self.check_recovery(by_recovery)?;
        self.recovery = Recovery {
            identifier: new.clone(),
            chain_id: self.members.get(new).and_then(|member| member.chain_id),
        };
        Ok(())
    }

    /// Checks that the recovery identifier signs, on the chain of its role, and on the one that it is a
    /// member with if it is one (IDENT-045, IDENT-046).
    fn check_recovery(&self, signature: &Verified) -> Result<(), AssociationError> {
        self.check_unseen(signature)?;
        if signature.signer != self.recovery.identifier {
            return Err(AssociationError::NotRecovery);
        }
        let member = self.members.get(&signature.signer);
        if signature.chain_id != self.recovery.chain_id
            || member.is_some_and(|member| member.chain_id != signature.chain_id)
        {
            return Err(AssociationError::ChainMismatch);
        }
        Ok(())
    }

    fn check_unseen(&self, signature: &Verified) -> Result<(), AssociationError> {
        if self.seen.contains(&signature.replay_key) {
            return Err(AssociationError::Replay);
        }
        Ok(())
    }
}

/// Checks that the signer is `identifier`, and first that it can be: a kind of signature stands for one
/// kind of identifier (IDENT-031).
fn check_stands_for(
    signature: &Verified,
    identifier: &Identifier,
    mismatch: AssociationError,
) -> Result<(), AssociationError> {
    if !signature.signer.is_kind_of(identifier) {
        return Err(AssociationError::SignatureNotAllowed);
    }
    if signature.signer != *identifier {
        return Err(mismatch);
    }
    Ok(())
}

impl fmt::Debug for AssociationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AssociationState(..)")
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Member(..)")
    }
}
