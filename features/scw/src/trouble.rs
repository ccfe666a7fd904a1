//! Why a provider gave no answer.

use thiserror::Error;

/// What went wrong between here and a chain. The word is all that is told: neither the URL nor what was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum Trouble {
    /// No connection, or no TLS.
    #[error("connect")]
    Connect,
    /// No answer in time, or no turn to ask.
    #[error("timeout")]
    Timeout,
    /// The provider sends elsewhere, which is not followed.
    #[error("redirect")]
    Redirect,
    /// Another status than a success.
    #[error("status")]
    Status,
    /// The answer is longer than any that is expected.
    #[error("too_large")]
    TooLarge,
    /// The connection failed under way.
    #[error("interrupted")]
    Interrupted,
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
