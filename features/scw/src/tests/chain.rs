//! Contract wallets on a real chain.

use serde::Deserialize;
use serde_json::json;
use xmtp_fixtures::signers::Wallet;
use xmtp_protocol::identity::{
    ChainFault, ChainVerifier, ContractSignature, ContractVerdict, EvmAccount,
};
use xmtp_test_support::Anvil;
use xmtp_test_support::contracts::{
    Factory, Owned, Way, deploy_odd_wallet, deploy_wallet, hand_over,
};

use crate::testing::{owned, signed, verifier_of};
use crate::verifier::Verifier;

async fn judge(
    verifier: &Verifier,
    signature: &ContractSignature,
) -> Result<ContractVerdict, ChainFault> {
    let verdicts = verifier.verify(std::slice::from_ref(signature)).await?;
    assert_eq!(verdicts.len(), 1);
    Ok(verdicts[0])
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "it is compared with what a judgement gives"
)]
fn verdict(is_valid: bool, block_number: u64) -> Result<ContractVerdict, ChainFault> {
    Ok(ContractVerdict {
        is_valid,
        block_number,
    })
}

/// A line of the test data.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Code {
        account: String,
        code: String,
    },
    Case {
        name: String,
        account: String,
        hash: String,
        signature: String,
        expected: String,
    },
}

fn bytes<const LENGTH: usize>(hexadecimal: &str) -> [u8; LENGTH] {
    hex::decode(hexadecimal).unwrap().try_into().unwrap()
}

#[tokio::test]
async fn ident_061_the_validator_gives_every_known_answer() {
    let Some(chain) = Anvil::start(31337).await else {
        return;
    };
    let verifier = verifier_of(&chain);
    let data = include_str!("../../../../tests/data/contract-signatures.jsonl");
    let mut cases = 0;
    for line in data.lines() {
        match serde_json::from_str(line).expect("a line of the test data") {
            Line::Code { account, code } => {
                let parameters = json!([format!("0x{account}"), format!("0x{code}")]);
                chain.ask("anvil_setCode", parameters).await;
            }
            Line::Case {
                name,
                account,
                hash,
                signature,
                expected,
            } => {
                cases += 1;
                let signature = ContractSignature {
                    account: EvmAccount {
                        chain_id: chain.chain_id(),
                        address: bytes(&account),
                    },
                    hash: bytes(&hash),
                    signature: hex::decode(signature).unwrap().into(),
                    block_number: None,
                };
                let expected = match &*expected {
                    "valid" => verdict(true, 0),
                    "invalid" => verdict(false, 0),
                    "reverts" => Err(ChainFault::Unreachable),
                    _ => panic!("{name}: {expected}"),
                };
                assert_eq!(judge(&verifier, &signature).await, expected, "{name}");
            }
        }
    }
    assert_eq!(cases, 21);
}

#[tokio::test]
async fn ident_061_a_deployed_wallet_signs_with_the_key_of_its_owner() {
    let Some(chain) = Anvil::start(31337).await else {
        return;
    };
    let verifier = verifier_of(&chain);
    let address = deploy_wallet(&chain, &Wallet::new("owner")).await;
    let head = chain.head().await.number;
    let owner = owned(&chain, address, "owner");
    assert_eq!(
        judge(&verifier, &signed(&owner, Some(head))).await,
        verdict(true, head)
    );
    let stranger = owned(&chain, address, "stranger");
    assert_eq!(
        judge(&verifier, &signed(&stranger, Some(head))).await,
        verdict(false, head)
    );
    // One signature, of another hash.
    let mut other = signed(&owner, Some(head));
    other.hash[0] ^= 1;
    assert_eq!(judge(&verifier, &other).await, verdict(false, head));
    // Before it was there it is an account without code, whose key is not the owner's.
    assert_eq!(
        judge(&verifier, &signed(&owner, Some(head - 1))).await,
        verdict(false, head - 1)
    );
    // What says how to deploy it is no obstacle once it is there.
    let deployed = Owned {
        factory: Some(Factory::deploy(&chain).await),
        ..owner
    };
    let head = chain.head().await.number;
    assert_eq!(
        judge(&verifier, &signed(&deployed, Some(head))).await,
        verdict(true, head)
    );
}

#[tokio::test]
async fn ident_061_a_wallet_that_is_not_there_yet_is_judged_as_it_will_be() {
    let Some(chain) = Anvil::start(31337).await else {
        return;
    };
    let verifier = verifier_of(&chain);
    let factory = Factory::deploy(&chain).await;
    let address = factory.address_of(&chain, &Wallet::new("owner")).await;
    let head = chain.head().await.number;
    let owner = Owned {
        factory: Some(factory),
        ..owned(&chain, address, "owner")
    };
    assert_eq!(
        judge(&verifier, &signed(&owner, Some(head))).await,
        verdict(true, head)
    );
    // Nothing of it stays on the chain.
    let code = json!([format!("0x{}", hex::encode(address)), "latest"]);
    assert_eq!(chain.ask("eth_getCode", code).await, "0x");
    let wrapped = |call: &[u8], signer: &str| ContractSignature {
        signature: factory
            .wrap(call, &Wallet::new(signer).sign_hash([9; 32]))
            .into(),
        ..signed(&owner, Some(head))
    };
    let deploys = |owner: &str| Factory::call(&Wallet::new(owner));
    let stranger = wrapped(&deploys("owner"), "stranger");
    assert_eq!(judge(&verifier, &stranger).await, verdict(false, head));
    // The wallet of somebody else is deployed, or none.
    for call in [deploys("stranger"), b"\0\0\0\0".to_vec(), Vec::new()] {
        let elsewhere = wrapped(&call, "owner");
        assert_eq!(
            judge(&verifier, &elsewhere).await,
            Err(ChainFault::Unreachable)
        );
    }
    // Deployed in earnest, it signs without.
    chain.send(factory.0, &deploys("owner")).await;
    let head = chain.head().await.number;
    let deployed = owned(&chain, address, "owner");
    assert_eq!(
        judge(&verifier, &signed(&deployed, Some(head))).await,
        verdict(true, head)
    );
}

#[tokio::test]
async fn ident_061_an_owner_who_was_removed_signed_while_it_was_one() {
    let Some(chain) = Anvil::start(31337).await else {
        return;
    };
    let verifier = verifier_of(&chain);
    let address = deploy_wallet(&chain, &Wallet::new("first")).await;
    let before = chain.head().await.number;
    hand_over(&chain, address, &Wallet::new("second")).await;
    let after = chain.head().await.number;
    let (first, second) = (
        owned(&chain, address, "first"),
        owned(&chain, address, "second"),
    );
    for (signer, block, is_valid) in [
        (&first, before, true),
        (&first, after, false),
        (&second, before, false),
        (&second, after, true),
    ] {
        assert_eq!(
            judge(&verifier, &signed(signer, Some(block))).await,
            verdict(is_valid, block)
        );
    }
}

#[tokio::test]
async fn sec_044_a_verdict_at_the_latest_block_is_never_kept() {
    let Some(chain) = Anvil::start(31337).await else {
        return;
    };
    let verifier = verifier_of(&chain);
    let address = deploy_wallet(&chain, &Wallet::new("first")).await;
    let signature = signed(&owned(&chain, address, "first"), None);
    let before = chain.head().await.number;
    assert_eq!(judge(&verifier, &signature).await, verdict(true, before));
    hand_over(&chain, address, &Wallet::new("second")).await;
    let after = chain.head().await.number;
    assert_eq!(judge(&verifier, &signature).await, verdict(false, after));
    // Nor is one read that was kept for a block which is the latest now.
    let named = ContractSignature {
        block_number: Some(after),
        ..signature.clone()
    };
    assert_eq!(judge(&verifier, &named).await, verdict(false, after));
    chain.stop().await;
    assert_eq!(judge(&verifier, &named).await, verdict(false, after));
    assert_eq!(
        judge(&verifier, &signature).await,
        Err(ChainFault::Unreachable)
    );
}

#[tokio::test]
async fn ident_061_an_odd_wallet_has_no_verdict_or_a_wrong_word_but_never_a_valid_one() {
    let Some(chain) = Anvil::start(31337).await else {
        return;
    };
    let verifier = verifier_of(&chain);
    for way in Way::ALL {
        let address = deploy_odd_wallet(&chain, way).await;
        let head = chain.head().await.number;
        let expected = match way {
            Way::ReturnGarbage | Way::ReturnDirtyWord => verdict(false, head),
            Way::Revert
            | Way::RevertLong
            | Way::BurnGas
            | Way::ReturnNothing
            | Way::ReturnFourBytes => Err(ChainFault::Unreachable),
        };
        let signature = signed(&owned(&chain, address, "owner"), Some(head));
        assert_eq!(judge(&verifier, &signature).await, expected, "{way:?}");
    }
}

#[tokio::test]
async fn ident_061_a_key_signs_for_an_account_without_code() {
    let Some(chain) = Anvil::start(31337).await else {
        return;
    };
    let verifier = verifier_of(&chain);
    let address = Wallet::new("owner").address();
    let owner = signed(&owned(&chain, address, "owner"), Some(0));
    assert_eq!(judge(&verifier, &owner).await, verdict(true, 0));
    let stranger = signed(&owned(&chain, address, "stranger"), Some(0));
    assert_eq!(judge(&verifier, &stranger).await, verdict(false, 0));
}

#[tokio::test]
async fn api_231_a_block_that_the_chain_does_not_have_is_no_verdict() {
    let Some(chain) = Anvil::start(31337).await else {
        return;
    };
    let verifier = verifier_of(&chain);
    let signature = signed(&owned(&chain, [1; 20], "owner"), Some(1000));
    assert_eq!(
        judge(&verifier, &signature).await,
        Err(ChainFault::Unreachable)
    );
    let missing = verifier.block(chain.chain_id(), Some(1000)).await;
    assert_eq!(missing, Err(ChainFault::Unreachable));
    chain.mine(3, 12).await;
    let head = chain.head().await;
    let block = verifier.block(chain.chain_id(), None).await.unwrap();
    assert_eq!(
        (block.number, block.timestamp),
        (head.number, head.timestamp)
    );
    let earlier = verifier
        .block(chain.chain_id(), Some(head.number - 1))
        .await;
    assert_eq!(earlier.unwrap().timestamp, head.timestamp - 12);
}

#[tokio::test]
async fn ident_061_signatures_that_are_judged_together_have_their_own_verdicts() {
    let Some(chain) = Anvil::start(31337).await else {
        return;
    };
    let verifier = verifier_of(&chain);
    let address = deploy_wallet(&chain, &Wallet::new("owner")).await;
    let head = chain.head().await.number;
    let owner = signed(&owned(&chain, address, "owner"), None);
    let stranger = signed(&owned(&chain, address, "stranger"), Some(head));
    let signatures: Vec<ContractSignature> =
        [owner, stranger].into_iter().cycle().take(99).collect();
    let verdicts = verifier.verify(&signatures).await.expect("verdicts");
    for (index, judged) in verdicts.iter().enumerate() {
        assert_eq!(Ok(*judged), verdict(index % 2 == 0, head), "{index}");
    }
    assert_eq!(verdicts.len(), 99);
}
