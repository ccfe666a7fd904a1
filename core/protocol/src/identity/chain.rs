//! The seam to Ethereum chains, which alone can judge the signature of a contract wallet.

use std::{collections::HashMap, fmt, pin::Pin};

use bytes::Bytes;

use super::{
    account_id::EvmAccount,
    error::{ChainFault, IdentityError, SignatureError},
};

/// The greatest age of the block that a new signature names, against the head of its chain, in seconds
/// (IDENT-062).
pub const MAX_BLOCK_AGE_SECONDS: u64 = 1800;

/// A signature that only a chain can judge (ERC-1271, ERC-6492). `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ContractSignature {
    /// The wallet.
    pub account: EvmAccount,
    /// What it signed.
    pub hash: [u8; 32],
    /// The signature, as it was given.
    pub signature: Bytes,
    /// The block at which it is judged. None is the latest, which is never what an identity update asks:
    /// there 0 is block 0.
    pub block_number: Option<u64>,
}

impl fmt::Debug for ContractSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ContractSignature(..)")
    }
}

/// What a chain says of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContractVerdict {
    /// Whether the wallet made it.
    pub is_valid: bool,
    /// The block at which it was judged.
    pub block_number: u64,
}

/// A block of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its number.
    pub number: u64,
    /// Its time, in Unix seconds.
    pub timestamp: u64,
}

/// An answer that waits for a chain.
pub type ChainAnswer<'a, T> = Pin<Box<dyn Future<Output = Result<T, ChainFault>> + Send + 'a>>;

/// Asks chains. What runs here is I/O, and the only part of validation that can wait.
pub trait ChainVerifier: Send + Sync {
    /// Judges `signatures` and answers in their order. One fault is a fault of all: who has to have
    /// every verdict gains nothing by the others.
    fn verify<'a>(
        &'a self,
        signatures: &'a [ContractSignature],
    ) -> ChainAnswer<'a, Vec<ContractVerdict>>;

    /// Reads a block of the chain `eip155:<chain_id>`; None is the head.
    fn block(&self, chain_id: u64, number: Option<u64>) -> ChainAnswer<'_, Block>;
}

/// Knows no chain: every question is a fault that may pass, and no signature is called invalid.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoChainVerifier;

impl ChainVerifier for NoChainVerifier {
    fn verify<'a>(
        &'a self,
        _signatures: &'a [ContractSignature],
    ) -> ChainAnswer<'a, Vec<ContractVerdict>> {
        Box::pin(std::future::ready(Err(ChainFault::NoVerifier)))
    }

    fn block(&self, _chain_id: u64, _number: Option<u64>) -> ChainAnswer<'_, Block> {
        Box::pin(std::future::ready(Err(ChainFault::NoVerifier)))
    }
}

/// Checks that every signature names a recent block of its chain (IDENT-062): not above the head, not
/// stamped after it, and at most [`MAX_BLOCK_AGE_SECONDS`] older.
///
/// Each head is read once, each distinct block once. This is a condition of admission: stored signatures
/// are old by nature and are not checked.
pub(super) async fn check_blocks(
    chain: &dyn ChainVerifier,
    signatures: &[ContractSignature],
) -> Result<(), IdentityError> {
    let mut heads: HashMap<u64, Block> = HashMap::new();
    let mut blocks: HashMap<(u64, u64), Block> = HashMap::new();
    for signature in signatures {
        let chain_id = signature.account.chain_id;
        let Some(number) = signature.block_number else {
            continue;
        };
        let head = match heads.get(&chain_id) {
            Some(head) => *head,
            None => *heads
                .entry(chain_id)
                .or_insert(chain.block(chain_id, None).await?),
        };
        // A node that is asked for a block it does not have gives a fault, which is no verdict.
        if number > head.number {
            return Err(SignatureError::StaleBlock.into());
        }
        let block = match blocks.get(&(chain_id, number)) {
            Some(block) => *block,
            None => *blocks
                .entry((chain_id, number))
                .or_insert(chain.block(chain_id, Some(number)).await?),
        };
        let age = head.timestamp.checked_sub(block.timestamp);
        if age.is_none_or(|age| age > MAX_BLOCK_AGE_SECONDS) {
            return Err(SignatureError::StaleBlock.into());
        }
    }
    Ok(())
}

/// Asks for the verdicts; every one has to be valid.
pub(super) async fn check_verdicts(
    chain: &dyn ChainVerifier,
    signatures: &[ContractSignature],
) -> Result<(), IdentityError> {
    if signatures.is_empty() {
        return Ok(());
    }
    let verdicts = chain.verify(signatures).await?;
    // A verifier that leaves one out has not judged it.
    if verdicts.len() != signatures.len() {
        return Err(ChainFault::Unreachable.into());
    }
    if verdicts.iter().any(|verdict| !verdict.is_valid) {
        return Err(SignatureError::Invalid.into());
    }
    Ok(())
}
