//! Why a provider gave no answer.

use thiserror::Error;
use xmtp_https::Fault;

/// What went wrong between here and a chain. The word is all that is told: neither the URL nor what was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum Trouble {
    /// The exchange failed, or there was no turn to ask in time.
    #[error(transparent)]
    Http(#[from] Fault),
    /// The answer is not one to what was asked.
    #[error("malformed")]
    Malformed,
    /// The provider serves another chain than the one configured.
    #[error("wrong_chain")]
    WrongChain,
    /// The provider answers with an error, which a call that reverts is as well: nodes do not agree on how to say so.
    #[error("rpc_error")]
    RpcError,
}
