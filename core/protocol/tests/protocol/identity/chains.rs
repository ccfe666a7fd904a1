//! Contract wallets: contract of identities, sections 4.4, 4.5 and 6.

use xmtp_fixtures::{
    Asked, IdentityUpdateBuilder, StubChain,
    signers::{ContractWallet, Installation, Signer, Wallet},
};
use xmtp_protocol::{
    identity::{
        AccountId, AssociationError, Block, ChainFault, EvmAccount, IdentityError,
        MAX_BLOCK_AGE_SECONDS, SignatureError,
    },
    proto::xmtp::identity::associations::{IdentityUpdate, signature::Signature as SignatureKind},
};

use super::{created, first_signature, judge, judge_on, update_of};

const HEAD: Block = Block {
    number: 5000,
    timestamp: 1_700_000_000,
};

fn refused(
    chain: &StubChain,
    history: &[IdentityUpdate],
    update: &IdentityUpdate,
) -> Option<IdentityError> {
    judge_on(chain, history, update).err()
}

/// A wallet on chain 1 whose signatures name this block.
fn wallet_at(block_number: u64) -> ContractWallet {
    ContractWallet {
        block_number,
        ..ContractWallet::new(1, 0xab)
    }
}

#[test]
fn api_231_without_a_verifier_there_is_no_verdict() {
    let wallet = wallet_at(1);
    let error = judge(&[], &created(&wallet)).err();
    assert_eq!(error, Some(ChainFault::NoVerifier.into()));
    // Nor on what the log of such a wallet goes on with.
    let phone = Installation::new("phone");
    let history = [update_of(&wallet)
        .create(&wallet, 0)
        .add(&wallet, &phone)
        .sign()];
    let next = update_of(&wallet)
        .add(&phone, &Wallet::new("friend"))
        .sign();
    assert_eq!(
        judge(&history, &next).err(),
        Some(ChainFault::NoVerifier.into())
    );
    let chain = StubChain::new([1]);
    assert_eq!(refused(&chain, &history, &next), None);
}

#[test]
fn api_231_faults_of_a_chain_are_never_invalid_signatures() {
    let update = created(&wallet_at(1));
    let elsewhere = StubChain::new([10]);
    assert_eq!(
        refused(&elsewhere, &[], &update),
        Some(ChainFault::NoRoute.into())
    );
    let down = StubChain::new([1]).with_head(None);
    assert_eq!(
        refused(&down, &[], &update),
        Some(ChainFault::Unreachable.into())
    );
}

#[test]
fn ident_061_a_chain_that_says_no_makes_the_signature_invalid() {
    let wallet = wallet_at(1);
    let mut chain = StubChain::new([1]);
    assert_eq!(refused(&chain, &[], &created(&wallet)), None);
    chain.refusing.insert(wallet.address);
    assert_eq!(
        refused(&chain, &[], &created(&wallet)),
        Some(SignatureError::Invalid.into())
    );
    // Also in a log.
    let next = update_of(&wallet)
        .at(2)
        .add(&wallet, &Wallet::new("friend"))
        .sign();
    let verdict = refused(&chain, &[created(&wallet)], &next);
    assert_eq!(verdict, Some(SignatureError::Invalid.into()));
}

#[test]
fn ident_061_what_needs_no_chain_is_refused_before_one_is_asked() {
    let wallet = wallet_at(1);
    let chain = StubChain::new([1]);
    let mut update = update_of(&wallet)
        .create(&wallet, 0)
        .add(&wallet, &Installation::new("phone"))
        .sign();
    *super::signatures_of(&mut update)[2] =
        Some(Installation::new("phone").sign_in_context("another text", b""));
    assert_eq!(
        refused(&chain, &[], &update),
        Some(SignatureError::Invalid.into())
    );
    let mut malformed = created(&wallet);
    let SignatureKind::Erc6492(signature) = first_signature(&mut malformed) else {
        panic!("a contract wallet signed");
    };
    signature.account_id.push(':');
    assert_eq!(
        refused(&chain, &[], &malformed),
        Some(SignatureError::AccountIdForm.into())
    );
    assert_eq!(chain.asked(), []);
}

#[test]
fn ident_060_the_signer_is_the_account_in_lower_case() {
    let wallet = wallet_at(1);
    let mut update = created(&wallet);
    let SignatureKind::Erc6492(signature) = first_signature(&mut update) else {
        panic!("a contract wallet signed");
    };
    signature.account_id = signature.account_id.replace("ab", "AB");
    assert_eq!(refused(&StubChain::new([1]), &[], &update), None);
}

#[test]
fn ident_060_accounts_of_every_chain_parse_and_those_of_ethereum_sign() {
    fn of(text: &str) -> Option<AccountId<'_>> {
        AccountId::parse(text).ok()
    }
    let ethereum = of("eip155:8453:0xab16a96D359eC26a11e2C2b3d8f8B8942d5Bfcdb").expect("CAIP-10");
    assert_eq!(
        (ethereum.namespace(), ethereum.reference()),
        ("eip155", "8453")
    );
    let account = EvmAccount::try_from(ethereum).expect("an Ethereum account");
    assert_eq!(account.chain_id, 8453);
    assert_eq!(
        hex::encode(account.address),
        "ab16a96d359ec26a11e2c2b3d8f8b8942d5bfcdb"
    );
    for text in [
        "bip122:000000000019d6689c085ae165831e93:128Lkh3S7CkDTBZ8W7BbpsN3YYizJMp8p6",
        "cosmos:cosmoshub-3:cosmos1t2uflqwqe0fsj0shcfkrvpukewcw40yjj6hdc0",
        "starknet:SN_GOERLI:0x02dd1b492765c064eac4039e3841aa5f382773b598097a40073bd8b48170ab57",
        "hedera:mainnet:0.0.1234567890-zbhlt",
    ] {
        let account = of(text).expect(text);
        assert_eq!(
            EvmAccount::try_from(account),
            Err(SignatureError::AccountIdForm),
            "{text}"
        );
    }
    for text in [
        "eip/155:1:0xab16a96D359eC26a11e2C2b3d8f8B8942d5Bfcd",
        "ab:1:0x",
        "namespace:1:0x",
        "eip155:123456789012345678901234567890123:0x",
        "eip155:1:",
        "eip155:1",
        "eip155:1:0x:0",
        "eip155:1:é",
    ] {
        assert!(of(text).is_none(), "{text}");
    }
    assert!(of(&format!("eip155:1:{}", "a".repeat(128))).is_some());
    assert!(of(&format!("eip155:1:{}", "a".repeat(129))).is_none());
}

#[test]
fn ident_062_a_new_signature_names_a_recent_block() {
    let verdict = |number, timestamp| {
        let chain = StubChain::new([1])
            .with_head(Some(HEAD))
            .with_block(Block { number, timestamp });
        refused(&chain, &[], &created(&wallet_at(number)))
    };
    let oldest = HEAD.timestamp - MAX_BLOCK_AGE_SECONDS;
    assert_eq!(MAX_BLOCK_AGE_SECONDS, 1800);
    let stale = Some(SignatureError::StaleBlock.into());
    assert_eq!(verdict(HEAD.number, HEAD.timestamp), None);
    assert_eq!(verdict(HEAD.number - 1, oldest), None);
    assert_eq!(verdict(HEAD.number - 1, oldest - 1), stale);
    assert_eq!(verdict(HEAD.number - 1, HEAD.timestamp + 1), stale);
    assert_eq!(verdict(HEAD.number + 1, HEAD.timestamp), stale);
    // 0 is block 0.
    assert_eq!(verdict(0, 1_438_269_973), stale);
}

#[test]
fn ident_062_a_block_above_the_head_is_not_asked_for() {
    let chain = StubChain::new([1]).with_head(Some(HEAD));
    let update = created(&wallet_at(HEAD.number + 1));
    assert_eq!(
        refused(&chain, &[], &update),
        Some(SignatureError::StaleBlock.into())
    );
    assert_eq!(chain.asked(), [Asked::Block(1, None)]);
}

#[test]
fn ident_062_stored_signatures_may_be_old() {
    let wallet = wallet_at(7);
    let chain = StubChain::new([1]).with_head(Some(HEAD)).with_block(Block {
        number: 7,
        timestamp: 1,
    });
    let history = [created(&wallet)];
    let current = wallet_at(HEAD.number);
    let next = IdentityUpdateBuilder::new(&history[0].inbox_id)
        .add(&current, &Wallet::new("friend"))
        .sign();
    assert_eq!(refused(&chain, &history, &next), None);
    assert!(!chain.asked().contains(&Asked::Block(1, Some(7))));
}

#[test]
fn ident_062_heads_and_blocks_are_read_once_and_verdicts_asked_for_together() {
    let chain = StubChain::new([1, 10]).with_head(Some(HEAD));
    let (one, other) = (wallet_at(4999), ContractWallet::new(10, 0xcd));
    let history = [created(&one)];
    let update = update_of(&one)
        .at(2)
        .add(&one, &other)
        .add(&one, &Wallet::new("friend"))
        .revoke(&wallet_at(5000), &other.identifier())
        .sign();
    assert_eq!(refused(&chain, &history, &update), None);
    assert_eq!(
        chain.asked(),
        [
            Asked::Block(1, None),
            Asked::Block(1, Some(4999)),
            Asked::Block(10, None),
            Asked::Block(10, Some(1)),
            Asked::Block(1, Some(5000)),
            Asked::Verdicts(5),
        ]
    );
}

#[test]
fn ident_045_a_member_signs_on_the_chain_that_it_was_added_with() {
    let chain = StubChain::new([1, 8453]);
    let (here, there) = (
        ContractWallet::new(1, 0xab),
        ContractWallet::new(8453, 0xab),
    );
    let mismatch = Some(AssociationError::ChainMismatch.into());
    let add = |signer| {
        update_of(&here)
            .at(2)
            .add(signer, &Wallet::new("friend"))
            .sign()
    };
    assert_eq!(refused(&chain, &[created(&here)], &add(&here)), None);
    assert_eq!(refused(&chain, &[created(&here)], &add(&there)), mismatch);
    let revoke = update_of(&here)
        .at(2)
        .revoke(&there, &here.identifier())
        .sign();
    assert_eq!(refused(&chain, &[created(&here)], &revoke), mismatch);
    let change = update_of(&here)
        .at(2)
        .change_recovery(&there, &Wallet::new("friend").identifier())
        .sign();
    assert_eq!(refused(&chain, &[created(&here)], &change), mismatch);
}

#[test]
fn ident_045_a_key_does_not_turn_into_a_contract() {
    let chain = StubChain::new([1]);
    let owner = Wallet::new("owner");
    let contract = ContractWallet {
        address: owner.address(),
        ..ContractWallet::new(1, 0)
    };
    let update = update_of(&owner)
        .at(2)
        .add(&contract, &Wallet::new("friend"))
        .sign();
    let mismatch = Some(AssociationError::ChainMismatch.into());
    assert_eq!(refused(&chain, &[created(&owner)], &update), mismatch);
    // Nor the other way around.
    let update = update_of(&owner)
        .at(2)
        .add(&owner, &Wallet::new("friend"))
        .sign();
    assert_eq!(refused(&chain, &[created(&contract)], &update), mismatch);
}

#[test]
fn ident_046_a_recovery_identifier_that_is_no_member_signs_on_the_chain_of_its_role() {
    let chain = StubChain::new([1, 8453]);
    let owner = Wallet::new("owner");
    let contract = ContractWallet::new(1, 0xab);
    let mismatch = Some(AssociationError::ChainMismatch.into());
    // Nothing is on record of a stranger.
    let history = [
        created(&owner),
        update_of(&owner)
            .change_recovery(&owner, &contract.identifier())
            .sign(),
    ];
    for update in [
        update_of(&owner)
            .add(&contract, &Wallet::new("friend"))
            .sign(),
        update_of(&owner)
            .revoke(&contract, &owner.identifier())
            .sign(),
    ] {
        assert_eq!(refused(&chain, &history, &update), mismatch);
    }
    // Of a member its chain is, also once it has left.
    let history = [
        created(&owner),
        update_of(&owner)
            .add(&owner, &contract)
            .change_recovery(&owner, &contract.identifier())
            .sign(),
        update_of(&owner)
            .revoke(&contract, &contract.identifier())
            .sign(),
    ];
    for (signer, verdict) in [
        (contract.clone(), None),
        (ContractWallet::new(8453, 0xab), mismatch),
    ] {
        let add = update_of(&owner)
            .at(5)
            .add(&signer, &Wallet::new("friend"))
            .sign();
        assert_eq!(refused(&chain, &history, &add), verdict);
        let revoke = update_of(&owner)
            .at(5)
            .revoke(&signer, &owner.identifier())
            .sign();
        assert_eq!(refused(&chain, &history, &revoke), verdict);
    }
}

#[test]
fn ident_046_the_chain_of_the_role_does_not_follow_a_later_membership() {
    let chain = StubChain::new([1]);
    let owner = Wallet::new("owner");
    let contract = ContractWallet::new(1, 0xab);
    let history = [
        created(&owner),
        update_of(&owner)
            .change_recovery(&owner, &contract.identifier())
            .sign(),
        update_of(&owner).at(2).add(&owner, &contract).sign(),
    ];
    let mismatch = Some(AssociationError::ChainMismatch.into());
    let revoke = update_of(&owner)
        .at(3)
        .revoke(&contract, &owner.identifier())
        .sign();
    assert_eq!(refused(&chain, &history, &revoke), mismatch);
    // As a member it adds.
    let add = update_of(&owner)
        .at(3)
        .add(&contract, &Wallet::new("friend"))
        .sign();
    assert_eq!(refused(&chain, &history, &add), None);
}

#[test]
fn ident_046_a_recovery_identifier_signs_on_the_chain_of_its_membership_as_well() {
    let chain = StubChain::new([1]);
    let (owner, key) = (Wallet::new("owner"), Wallet::new("key"));
    let contract = ContractWallet {
        address: key.address(),
        ..ContractWallet::new(1, 0)
    };
    // The role was given with no chain on record, the membership with one.
    let history = [
        created(&owner),
        update_of(&owner)
            .change_recovery(&owner, &key.identifier())
            .sign(),
        update_of(&owner).at(2).add(&owner, &contract).sign(),
    ];
    let revoke = update_of(&owner)
        .at(3)
        .revoke(&key, &owner.identifier())
        .sign();
    assert_eq!(
        refused(&chain, &history[..2], &revoke),
        None,
        "before it is a member"
    );
    assert_eq!(
        refused(&chain, &history, &revoke),
        Some(AssociationError::ChainMismatch.into())
    );
}

#[test]
fn ident_050_the_replay_key_of_a_contract_wallet_is_its_signature() {
    let chain = StubChain::new([1]);
    let wallet = wallet_at(1);
    let friend = Wallet::new("friend");
    let history = [
        created(&wallet),
        update_of(&wallet).at(2).add(&wallet, &friend).sign(),
        update_of(&wallet)
            .at(3)
            .revoke(&wallet, &friend.identifier())
            .sign(),
    ];
    let mut replayed = history[2].clone();
    assert_eq!(
        refused(&chain, &history, &replayed),
        Some(AssociationError::Replay.into())
    );
    // Another block is no other signature.
    let SignatureKind::Erc6492(signature) = first_signature(&mut replayed) else {
        panic!("a contract wallet signed");
    };
    signature.block_number += 1;
    assert_eq!(
        refused(&chain, &history, &replayed),
        Some(AssociationError::Replay.into())
    );
}
