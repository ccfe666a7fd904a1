//! Contract wallets on a chain of a test's own (`contracts/Wallets.sol`), and who signs for them.

use bytes::Bytes;
use sha3::{Digest, Keccak256};
use xmtp_fixtures::signers::{ContractWallet, Signer, Wallet, personal_message_hash};
use xmtp_protocol::identity::Identifier;
use xmtp_protocol::proto::xmtp::identity::associations::{
    Signature, SmartContractWalletSignature, signature::Signature as Kind,
};

use crate::Anvil;

const WALLET: &str = include_str!("../contracts/Wallet.hex");
const ODD_WALLET: &str = include_str!("../contracts/OddWallet.hex");
const FACTORY: &str = include_str!("../contracts/Factory.hex");

/// Sixteen times the end of a signature that says how its wallet is deployed (ERC-6492).
const WRAPPED: [u8; 2] = [0x64, 0x92];

/// The one way in which an odd wallet answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it all")]
pub enum Way {
    Revert,
    BurnGas,
    ReturnNothing,
    ReturnFourBytes,
    ReturnGarbage,
    ReturnDirtyWord,
    RevertLong,
}

impl Way {
    /// Every one.
    pub const ALL: [Self; 7] = [
        Self::Revert,
        Self::BurnGas,
        Self::ReturnNothing,
        Self::ReturnFourBytes,
        Self::ReturnGarbage,
        Self::ReturnDirtyWord,
        Self::RevertLong,
    ];
}

/// Deploys a wallet of this owner.
pub async fn deploy_wallet(chain: &Anvil, owner: &Wallet) -> [u8; 20] {
    chain
        .deploy(&[code(WALLET), word(&owner.address())].concat())
        .await
}

/// Deploys a wallet that answers in one odd way.
pub async fn deploy_odd_wallet(chain: &Anvil, way: Way) -> [u8; 20] {
    chain
        .deploy(&[code(ODD_WALLET), word(&[way as u8])].concat())
        .await
}

/// Gives a wallet another owner.
pub async fn hand_over(chain: &Anvil, wallet: [u8; 20], owner: &Wallet) {
    let call = [selector("handOver(address)"), word(&owner.address())].concat();
    chain.send(wallet, &call).await;
}

/// A contract that deploys wallets, each where its owner says it will be.
#[derive(Clone, Copy, Debug)]
pub struct Factory(pub [u8; 20]);

impl Factory {
    /// Deploys one.
    pub async fn deploy(chain: &Anvil) -> Self {
        Self(chain.deploy(&code(FACTORY)).await)
    }

    /// Where the wallet of this owner is, or will be.
    ///
    /// # Panics
    /// Where the factory does not answer with a word.
    pub async fn address_of(&self, chain: &Anvil, owner: &Wallet) -> [u8; 20] {
        let call = [selector("addressOf(address)"), word(&owner.address())].concat();
        let answer = chain.call(self.0, &call).await;
        answer[12..].try_into().expect("an address in a word")
    }

    /// The call that deploys the wallet of this owner.
    pub fn call(owner: &Wallet) -> Vec<u8> {
        [selector("deploy(address)"), word(&owner.address())].concat()
    }

    /// A signature that says how its wallet is deployed (ERC-6492).
    pub fn wrap(&self, call: &[u8], signature: &[u8]) -> Vec<u8> {
        let call = dynamic(call);
        let second = 3 * 32 + call.len();
        [
            word(&self.0),
            word(&[3 * 32]),
            word(&second.to_be_bytes()),
            call,
            dynamic(signature),
            WRAPPED.repeat(16),
        ]
        .concat()
    }
}

/// Signs identity updates as a contract wallet that has an owner.
pub struct Owned {
    /// The account, and the block that its signatures name.
    pub account: ContractWallet,
    /// Whose key signs.
    pub owner: Wallet,
    /// What the wallet is deployed with, where it is not there yet.
    pub factory: Option<Factory>,
}

impl Owned {
    /// What the wallet accepts as its signature of `hash`.
    pub fn sign_hash(&self, hash: [u8; 32]) -> Vec<u8> {
        let signature = self.owner.sign_hash(hash);
        match &self.factory {
            Some(factory) => factory.wrap(&Factory::call(&self.owner), &signature),
            None => signature.to_vec(),
        }
    }
}

impl Signer for Owned {
    fn identifier(&self) -> Identifier {
        self.account.identifier()
    }

    fn sign(&self, text: &str) -> Signature {
        let signature = self.sign_hash(personal_message_hash(text));
        Signature {
            signature: Some(Kind::Erc6492(SmartContractWalletSignature {
                account_id: self.account.account_id(),
                block_number: self.account.block_number,
                signature: Bytes::from(signature),
            })),
        }
    }
}

fn code(hexadecimal: &str) -> Vec<u8> {
    hex::decode(hexadecimal.trim_end()).expect("the compiler writes hexadecimal digits")
}

/// The first four bytes of the hash of a function's name and types.
fn selector(function: &str) -> Vec<u8> {
    Keccak256::digest(function)[..4].to_vec()
}

/// A value at the end of 32 bytes.
fn word(value: &[u8]) -> Vec<u8> {
    [vec![0; 32 - value.len()], value.to_vec()].concat()
}

/// Bytes with their length before them and zeros after them.
fn dynamic(bytes: &[u8]) -> Vec<u8> {
    let padding = bytes.len().next_multiple_of(32) - bytes.len();
    [
        word(&bytes.len().to_be_bytes()),
        bytes.to_vec(),
        vec![0; padding],
    ]
    .concat()
}
