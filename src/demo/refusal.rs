//! What a server refuses of a sound recording, and may: it knows no chain, or the recording has aged.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use tonic::Code;
use xmtp_protocol::proto::xmtp::backend::v1::ClientEnvelope;
use xmtp_protocol::{Content, KeyPackageError, ParsedEnvelope, check_key_package};

/// A refusal that says nothing against the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Expected {
    ContractWallet,
    ExpiredKeyPackage,
}

impl Expected {
    /// Why a server may refuse `envelope` with `code`; `None` when it may not.
    pub(super) fn of(envelope: &ClientEnvelope, code: Code) -> Option<Self> {
        let content = ParsedEnvelope::parse(envelope.clone()).ok()?.content;
        match (code, content) {
            (
                Code::Unavailable,
                Content::IdentityUpdate {
                    contract_wallet_signatures: 1..,
                    ..
                },
            ) => Some(Self::ContractWallet),
            (Code::InvalidArgument, Content::KeyPackage { tls }) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
                (check_key_package(&tls, now) == Err(KeyPackageError::Lifetime))
                    .then_some(Self::ExpiredKeyPackage)
            }
            _ => None,
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ContractWallet => {
                "UNAVAILABLE, as expected: a contract wallet signed, and the server has no chain to ask"
            }
            Self::ExpiredKeyPackage => {
                "INVALID_ARGUMENT, as expected: its lifetime is over since it was recorded"
            }
        })
    }
}
