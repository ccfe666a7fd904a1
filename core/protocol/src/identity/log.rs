//! The association log: folding what is stored, admitting what is new.

use super::{
    chain::{ChainVerifier, ContractSignature, check_blocks, check_verdicts},
    error::IdentityError,
    signature::Verified,
    state::{AssociationChanges, AssociationState},
    update::Update,
};
use crate::proto::xmtp::identity::associations::IdentityUpdate;

/// An update that applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The inbox after the update.
    pub state: AssociationState,
    /// What the update changes in the projection of identifiers.
    pub changes: AssociationChanges,
}

/// Folds stored updates, ascending, onto the state before them, which is None at the start of a log.
///
/// # Errors
///
/// An update that does not apply, a signature that does not verify, or no verdict on one.
pub async fn fold(
    state: Option<AssociationState>,
    updates: &[IdentityUpdate],
    chain: &dyn ChainVerifier,
) -> Result<Option<AssociationState>, IdentityError> {
    let mut contract = Vec::new();
    let verified = verify_all(updates, &mut contract).await?;
    check_verdicts(chain, &contract).await?;
    fold_verified(state, &verified)
}

/// Judges a new update of the inbox whose log is `history`, ascending (IDENT-005).
///
/// What needs no chain is looked at first, and the update itself before its history. A refusal is
/// therefore found before anything is asked of a chain, unless only applying the update shows it.
///
/// # Errors
///
/// A malformed part, a signature that does not verify or names no recent block, an update that does not
/// apply, or no verdict on a signature, be it a stored one: see [`IdentityError`].
pub async fn admit(
    history: &[IdentityUpdate],
    update: &IdentityUpdate,
    chain: &dyn ChainVerifier,
) -> Result<Admission, IdentityError> {
    let mut new = Vec::new();
    let update = Update::read(update)?.verify(&mut new).await?;
    let mut contract = Vec::new();
    let stored = verify_all(history, &mut contract).await?;
    check_blocks(chain, &new).await?;
    contract.append(&mut new);
    check_verdicts(chain, &contract).await?;
    let state = fold_verified(None, &stored)?;
    let (state, changes) = AssociationState::fold_with_changes(state, &update)?;
    Ok(Admission { state, changes })
}

async fn verify_all(
    updates: &[IdentityUpdate],
    contract: &mut Vec<ContractSignature>,
) -> Result<Vec<Update<Verified>>, IdentityError> {
    let mut verified = Vec::with_capacity(updates.len());
    for update in updates {
        verified.push(Update::read(update)?.verify(contract).await?);
    }
    Ok(verified)
}

fn fold_verified(
    state: Option<AssociationState>,
    updates: &[Update<Verified>],
) -> Result<Option<AssociationState>, IdentityError> {
    let mut state = state;
    for update in updates {
        state = Some(AssociationState::fold(state, update)?);
    }
    Ok(state)
}
