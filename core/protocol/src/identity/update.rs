//! Identity updates with everything in them read, before anything is verified.

use std::{future::poll_fn, task::Poll};

use super::{
    action::Action,
    chain::ContractSignature,
    error::{AssociationError, IdentityError},
    signature::{Signature, SignedText, Verified},
    text::signature_text,
};
use crate::proto::xmtp::identity::associations::IdentityUpdate;

/// An update whose parts have all been read (contract of identities, section 3).
pub(super) struct Update<S> {
    /// As the update carries it.
    pub(super) inbox_id: String,
    pub(super) client_timestamp_ns: u64,
    /// At least one.
    pub(super) actions: Vec<Action<S>>,
}

impl Update<Signature> {
    /// Reads every part.
    ///
    /// # Errors
    ///
    /// No action, an action or member that is unset, an identifier that does not decode, or a signature
    /// that is missing or does not decode.
    pub(super) fn read(update: &IdentityUpdate) -> Result<Self, IdentityError> {
        if update.actions.is_empty() {
            return Err(AssociationError::EmptyUpdate.into());
        }
        Ok(Self {
            inbox_id: update.inbox_id.clone(),
            client_timestamp_ns: update.client_timestamp_ns,
            actions: update
                .actions
                .iter()
                .map(|action| Action::read(action, Signature::read))
                .collect::<Result<_, _>>()?,
        })
    }

    /// The text that is signed.
    pub(super) fn text(&self) -> String {
        signature_text(&self.inbox_id, self.client_timestamp_ns, &self.actions)
    }

    /// Verifies every signature that needs no chain; those that do are added to `contract`, and the
    /// result holds only if they are valid too.
    ///
    /// # Errors
    ///
    /// A signature that does not verify.
    pub(super) async fn verify(
        self,
        contract: &mut Vec<ContractSignature>,
    ) -> Result<Update<Verified>, IdentityError> {
        let text = SignedText::new(self.text());
        let mut actions = Vec::with_capacity(self.actions.len());
        for action in self.actions {
            actions.push(action.try_map(|signature| signature.verify(&text, contract))?);
            give_way().await;
        }
        Ok(Update {
            inbox_id: self.inbox_id,
            client_timestamp_ns: self.client_timestamp_ns,
            actions,
        })
    }
}

/// Lets other tasks of the thread run: an action takes a fraction of a millisecond, a full log or a long
/// update many of them.
async fn give_way() {
    let mut has_waited = false;
    poll_fn(|context| {
        if has_waited {
            return Poll::Ready(());
        }
        has_waited = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl<S> Update<S> {
    /// Every signature, in the order of the actions.
    pub(super) fn signatures(&self) -> impl Iterator<Item = &S> {
        self.actions
            .iter()
            .flat_map(|action| match action {
                Action::Create { signature, .. } => [Some(signature), None],
                Action::Add {
                    by_existing,
                    by_new,
                    ..
                } => [Some(by_existing), Some(by_new)],
                Action::Revoke { by_recovery, .. } | Action::ChangeRecovery { by_recovery, .. } => {
                    [Some(by_recovery), None]
                }
            })
            .flatten()
    }
}

/// The text that every signature of `update` signs (IDENT-020). Signatures need not be there yet.
///
/// # Errors
///
/// An action or member that is unset, or an identifier that does not decode.
pub fn signed_text(update: &IdentityUpdate) -> Result<String, IdentityError> {
    let actions: Vec<Action<()>> = update
        .actions
        .iter()
        .map(|action| Action::read(action, |_| Ok(())))
        .collect::<Result<_, _>>()?;
    Ok(signature_text(
        &update.inbox_id,
        update.client_timestamp_ns,
        &actions,
    ))
}
