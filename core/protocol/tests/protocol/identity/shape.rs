//! The shape of an update, which is looked at before any signature: contract of identities, section 3.

use xmtp_fixtures::envelope;
use xmtp_fixtures::signers::{ContractWallet, Installation, Passkey, Signer, Wallet};
use xmtp_protocol::{
    Content, ParsedEnvelope,
    identity::{AssociationError, Identifier, IdentityError, SignatureError},
    proto::xmtp::identity::associations::{
        IdentityUpdate, MemberIdentifier, Signature, identity_action::Kind,
        signature::Signature as SignatureKind,
    },
};

use super::{created, first_signature, judge, signatures_of, update_of};

/// One update with every action in it, and the log before it.
fn every_action() -> (Vec<IdentityUpdate>, IdentityUpdate) {
    let (owner, friend) = (Wallet::new("owner"), Wallet::new("friend"));
    let installation = Installation::new("phone");
    let update = update_of(&owner)
        .create(&owner, 0)
        .add(&owner, &friend)
        .add(&owner, &installation)
        .revoke(&owner, &installation.identifier())
        .change_recovery(&owner, &friend.identifier())
        .sign();
    (Vec::new(), update)
}

fn refused(update: &IdentityUpdate) -> Option<IdentityError> {
    judge(&every_action().0, update).err()
}

#[test]
fn ident_001_an_update_with_every_action_is_accepted() {
    assert_eq!(refused(&every_action().1), None);
}

#[test]
fn ident_001_an_update_has_an_action() {
    let owner = Wallet::new("owner");
    let empty = update_of(&owner).sign();
    assert_eq!(refused(&empty), Some(AssociationError::EmptyUpdate.into()));
    let later = judge(&[created(&owner)], &empty).err();
    assert_eq!(later, Some(AssociationError::EmptyUpdate.into()));
}

#[test]
fn ident_001_every_action_has_a_kind() {
    for index in 0..5 {
        let (_, mut update) = every_action();
        update.actions[index].kind = None;
        assert_eq!(refused(&update), Some(AssociationError::ActionUnset.into()));
    }
}

#[test]
fn ident_001_every_member_has_a_kind() {
    for index in 1..4 {
        for unset in [None, Some(MemberIdentifier { kind: None })] {
            let (_, mut update) = every_action();
            match update.actions[index].kind.as_mut() {
                Some(Kind::Add(add)) => add.new_member_identifier = unset,
                Some(Kind::Revoke(revoke)) => revoke.member_to_revoke = unset,
                _ => panic!("the action names a member"),
            }
            assert_eq!(refused(&update), Some(AssociationError::MemberUnset.into()));
        }
    }
}

#[test]
fn ident_001_every_signature_is_there() {
    for index in 0..7 {
        for unset in [None, Some(Signature { signature: None })] {
            let (_, mut update) = every_action();
            *signatures_of(&mut update)[index] = unset;
            assert_eq!(
                refused(&update),
                Some(SignatureError::Missing.into()),
                "signature {index}"
            );
        }
    }
}

#[test]
fn ident_013_an_address_is_lower_case_hex_with_0x() {
    let (lower, kind) = (Wallet::new("owner").identifier().text(), 1);
    assert!(Identifier::from_text(&lower, kind).is_ok());
    for text in [
        String::new(),
        "0x".to_owned(),
        lower.to_uppercase(),
        lower.replace("0x", "0X"),
        lower[2..].to_owned(),
        format!("{lower}0"),
        lower[..41].to_owned(),
        format!("0x{}", "g".repeat(40)),
        format!("0x{}", "A".repeat(40)),
        format!(" {}", &lower[..41]),
        format!("0x{}", "é".repeat(20)),
    ] {
        for kind in [0, 1, 3, 7, -1] {
            let identifier = Identifier::from_text(&text, kind);
            assert_eq!(
                identifier,
                Err(AssociationError::IdentifierForm),
                "{text:?}"
            );
        }
    }
}

#[test]
fn ident_013_every_place_of_an_address_asks_for_its_form() {
    let mixed = "0xABcdefabcdefabcdefabcdefabcdefabcdefabcd";
    for index in [0, 1, 4] {
        let (_, mut update) = every_action();
        match update.actions[index].kind.as_mut().expect("a kind") {
            Kind::CreateInbox(create) => create.initial_identifier = mixed.to_owned(),
            Kind::ChangeRecoveryAddress(change) => {
                change.new_recovery_identifier = mixed.to_owned();
            }
            Kind::Add(add) => {
                use xmtp_protocol::proto::xmtp::identity::associations::member_identifier::Kind;
                let kind = Some(Kind::EthereumAddress(mixed.to_owned()));
                add.new_member_identifier = Some(MemberIdentifier { kind });
            }
            Kind::Revoke(_) => panic!("not here"),
        }
        assert_eq!(
            refused(&update),
            Some(AssociationError::IdentifierForm.into())
        );
    }
}

#[test]
fn ident_010_a_passkey_is_hex_in_either_case() {
    let lower = Identifier::from_text("0aff", 2);
    assert!(lower.is_ok());
    assert_eq!(lower, Identifier::from_text("0AFF", 2));
    assert_eq!(lower.map(|passkey| passkey.text()), Ok("0aff".to_owned()));
    for text in ["0", "0x0a", "zz"] {
        assert_eq!(
            Identifier::from_text(text, 2),
            Err(AssociationError::IdentifierForm)
        );
    }
}

#[test]
fn ident_001_a_key_of_an_installation_is_32_bytes_and_a_point() {
    let (owner, phone) = (Wallet::new("owner"), Installation::new("phone"));
    let update = || update_of(&owner).add(&phone, &owner).sign();
    for (key, error) in [
        (vec![7; 31], SignatureError::KeyLength),
        (vec![7; 33], SignatureError::KeyLength),
        (Vec::new(), SignatureError::KeyLength),
        // No point has this coordinate.
        ([&[2], &[0; 31][..]].concat(), SignatureError::Invalid),
    ] {
        let mut update = update();
        let SignatureKind::InstallationKey(installation) = first_signature(&mut update) else {
            panic!("the first signature is the installation's");
        };
        installation.public_key = key.into();
        assert_eq!(refused(&update), Some(error.into()));
    }
}

#[test]
fn ident_060_an_account_id_is_a_caip_10_account_on_an_ethereum_chain() {
    let wallet = ContractWallet::new(1, 0xab);
    let address = "0xabababababababababababababababababababab";
    for account_id in [
        "",
        address,
        &format!("1:{address}"),
        &format!("eip155:1:{address}:"),
        &format!("eip155::{address}"),
        &format!("cosmos:1:{address}"),
        &format!("EIP155:1:{address}"),
        &format!("eip155:-1:{address}"),
        &format!("eip155:0x1:{address}"),
        &format!("eip155:one:{address}"),
        // One route, one spelling.
        &format!("eip155:01:{address}"),
        // 2^64.
        &format!("eip155:18446744073709551616:{address}"),
        "eip155:1:abababababababababababababababababababab",
        "eip155:1:0xab",
        &format!("eip155:1:{address}ab"),
        "eip155:1:0xgbababababababababababababababababababab",
    ] {
        let mut update = created(&wallet);
        let SignatureKind::Erc6492(contract) = first_signature(&mut update) else {
            panic!("a contract wallet signed");
        };
        contract.account_id = account_id.to_owned();
        assert_eq!(
            refused(&update),
            Some(SignatureError::AccountIdForm.into()),
            "{account_id}"
        );
    }
}

#[test]
fn api_230_contract_wallet_signatures_are_counted_in_every_slot() {
    let wallet = ContractWallet::new(1, 0xab);
    let passkey = Passkey::new("passkey");
    let update = update_of(&wallet)
        .create(&wallet, 0)
        .add(&wallet, &passkey)
        .add(&passkey, &wallet)
        .add(&wallet, &wallet)
        .revoke(&wallet, &passkey.identifier())
        .change_recovery(&wallet, &passkey.identifier())
        .revoke(&passkey, &wallet.identifier())
        .sign();
    let parsed = ParsedEnvelope::parse(envelope(update)).expect("the update parses");
    let Content::IdentityUpdate {
        contract_wallet_signatures,
        ..
    } = parsed.content
    else {
        panic!("an identity update");
    };
    assert_eq!(contract_wallet_signatures, 7);
}
