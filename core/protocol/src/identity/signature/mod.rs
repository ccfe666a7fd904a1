//! Signatures of identity updates, by kind (contract of identities, section 4).

mod erc_191;
mod installation;
mod passkey;

use bytes::Bytes;

use super::{
    account_id::{AccountId, EvmAccount},
    chain::ContractSignature,
    error::SignatureError,
    identifier::Identifier,
};
use crate::proto::xmtp::identity::associations::{self as wire, signature::Signature as Kind};
use erc_191::{Erc191, personal_message_hash};
use installation::InstallationSignature;
use passkey::PasskeySignature;

/// A signature whose parts have been read, and that nothing has verified yet.
pub(super) enum Signature {
    Erc191(Erc191),
    Contract {
        account: EvmAccount,
        block_number: u64,
        signature: Bytes,
    },
    Installation(InstallationSignature),
    Passkey(PasskeySignature),
}

/// A signature that verifies, or that will if a chain says so.
pub(super) struct Verified {
    pub(super) signer: Identifier,
    /// The chain on which the signer signs; None for a signer that needs none.
    pub(super) chain_id: Option<u64>,
    pub(super) replay_key: ReplayKey,
}

/// What all encodings of one signature have in common (IDENT-050).
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct ReplayKey(Bytes);

/// A text to verify signatures of, with what is computed from it once for all of them.
pub(super) struct SignedText {
    text: String,
    personal_message_hash: [u8; 32],
}

impl SignedText {
    pub(super) fn new(text: String) -> Self {
        Self {
            personal_message_hash: personal_message_hash(&text),
            text,
        }
    }
}

impl Signature {
    /// Reads the parts of a required signature.
    pub(super) fn read(signature: Option<&wire::Signature>) -> Result<Self, SignatureError> {
        let kind = signature.and_then(|signature| signature.signature.as_ref());
        Ok(match kind.ok_or(SignatureError::Missing)? {
            Kind::Erc191(signature) => Self::Erc191(Erc191::read(&signature.bytes)?),
            Kind::Erc6492(signature) => Self::Contract {
                account: AccountId::parse(&signature.account_id)?.try_into()?,
                block_number: signature.block_number,
                signature: signature.signature.clone(),
            },
            Kind::InstallationKey(signature) => {
                Self::Installation(InstallationSignature::read(signature)?)
            }
            Kind::Passkey(signature) => Self::Passkey(PasskeySignature::read(signature)?),
        })
    }

    /// Verifies the signature, or adds it to `contract` where a chain has to.
    pub(super) fn verify(
        self,
        text: &SignedText,
        contract: &mut Vec<ContractSignature>,
    ) -> Result<Verified, SignatureError> {
        let (signer, chain_id, replay_key) = match self {
            Self::Erc191(signature) => {
                let address = signature.recover(&text.personal_message_hash)?;
                let signer = Identifier::Ethereum(address);
                (signer, None, signature.canonical())
            }
            Self::Contract {
                account,
                block_number,
                signature,
            } => {
                contract.push(ContractSignature {
                    account,
                    hash: text.personal_message_hash,
                    signature: signature.clone(),
                    block_number: Some(block_number),
                });
                let signer = Identifier::Ethereum(account.address);
                (signer, Some(account.chain_id), signature)
            }
            Self::Installation(signature) => {
                signature.verify(&text.text)?;
                let signer = Identifier::Installation(signature.public_key());
                (signer, None, signature.canonical())
            }
            Self::Passkey(signature) => {
                signature.verify(&text.text)?;
                let signer = Identifier::Passkey(signature.public_key());
                (signer, None, signature.canonical())
            }
        };
        Ok(Verified {
            signer,
            chain_id,
            replay_key: ReplayKey(replay_key),
        })
    }
}
