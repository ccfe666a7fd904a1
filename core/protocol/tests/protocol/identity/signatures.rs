//! Signatures by kind: contract of identities, section 4.

use bytes::Bytes;
use xmtp_fixtures::signers::{Installation, Passkey, Signer, Wallet};
use xmtp_protocol::{
    identity::{AssociationError, IdentityError, SignatureError, signed_text},
    proto::xmtp::identity::associations::{IdentityUpdate, signature::Signature as SignatureKind},
};

use super::{created, first_signature, judge, update_of};

/// The order of secp256k1.
const SECP256K1_ORDER: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe,
    0xba, 0xae, 0xdc, 0xe6, 0xaf, 0x48, 0xa0, 0x3b, 0xbf, 0xd2, 0x5e, 0x8c, 0xd0, 0x36, 0x41, 0x41,
];

fn refused(history: &[IdentityUpdate], update: &IdentityUpdate) -> Option<IdentityError> {
    judge(history, update).err()
}

/// A wallet's first update, with its signature changed.
fn wallet_update(change: impl FnOnce(&mut Vec<u8>)) -> IdentityUpdate {
    let mut update = created(&Wallet::new("owner"));
    let SignatureKind::Erc191(signature) = first_signature(&mut update) else {
        panic!("a wallet signed");
    };
    let mut bytes = signature.bytes.to_vec();
    change(&mut bytes);
    signature.bytes = bytes.into();
    update
}

/// `order - number`.
fn negated(order: [u8; 32], number: &[u8]) -> Vec<u8> {
    let mut borrow = false;
    let mut difference = order;
    for (digit, subtrahend) in difference.iter_mut().zip(number).rev() {
        let (first, borrowed) = digit.overflowing_sub(*subtrahend);
        let (second, borrowed_again) = first.overflowing_sub(u8::from(borrow));
        (*digit, borrow) = (second, borrowed || borrowed_again);
    }
    difference.to_vec()
}

#[test]
fn ident_030_a_wallet_signs_65_bytes() {
    assert_eq!(refused(&[], &wallet_update(|_| {})), None);
    let length = Some(SignatureError::Length.into());
    assert_eq!(
        refused(&[], &wallet_update(|bytes| bytes.truncate(64))),
        length
    );
    assert_eq!(refused(&[], &wallet_update(|bytes| bytes.push(0))), length);
    assert_eq!(refused(&[], &wallet_update(Vec::clear)), length);
}

#[test]
fn ident_030_the_recovery_byte_is_0_1_27_or_28() {
    let recovery = created(&Wallet::new("owner"));
    let given = wallet_update(|_| {});
    assert_eq!(given, recovery);
    for byte in 0..=u8::MAX {
        let update = wallet_update(|bytes| bytes[64] = byte);
        let verdict = refused(&[], &update);
        if [0, 1, 27, 28].contains(&byte) {
            // One parity gives the owner, the other somebody else.
            let owner = wallet_update(|bytes| bytes[64] -= 27);
            let is_owner = [27, 0].contains(&byte) == (owner == wallet_update(|b| b[64] = 0));
            let mismatch = AssociationError::SignerMismatch.into();
            assert_eq!(verdict, (!is_owner).then_some(mismatch), "{byte}");
        } else {
            assert_eq!(verdict, Some(SignatureError::Invalid.into()), "{byte}");
        }
    }
}

#[test]
fn ident_030_scalars_are_neither_zero_nor_at_the_order() {
    for range in [0..32, 32..64] {
        for scalar in [[0; 32], SECP256K1_ORDER, [0xff; 32]] {
            let update = wallet_update(|bytes| bytes[range.clone()].copy_from_slice(&scalar));
            assert_eq!(refused(&[], &update), Some(SignatureError::Invalid.into()));
        }
    }
}

#[test]
fn ident_030_r_is_the_coordinate_of_a_point() {
    // 5 is no x-coordinate of the curve.
    let update = wallet_update(|bytes| {
        bytes[..32].fill(0);
        bytes[31] = 5;
    });
    assert_eq!(refused(&[], &update), Some(SignatureError::Invalid.into()));
}

#[test]
fn ident_030_a_high_s_is_the_same_signature_with_the_parity_turned() {
    let high = |bytes: &mut Vec<u8>| {
        let s = negated(SECP256K1_ORDER, &bytes[32..64]);
        bytes[32..64].copy_from_slice(&s);
    };
    let turned = wallet_update(|bytes| {
        high(bytes);
        bytes[64] = 27 + 28 - bytes[64];
    });
    assert_eq!(refused(&[], &turned), None);
    let kept = wallet_update(high);
    assert_eq!(
        refused(&[], &kept),
        Some(AssociationError::SignerMismatch.into())
    );
}

#[test]
fn ident_030_a_wallet_that_signs_another_text_is_another_wallet() {
    let owner = Wallet::new("owner");
    let update = update_of(&owner)
        .create(&owner, 0)
        .sign_text("another text");
    assert_eq!(
        refused(&[], &update),
        Some(AssociationError::SignerMismatch.into())
    );
}

/// An update by an installation, its signature made by `sign`.
fn installation_update(
    change: impl FnOnce(&Installation, &str, &mut SignatureKind),
) -> IdentityUpdate {
    let (owner, phone) = (Wallet::new("owner"), Installation::new("phone"));
    let mut update = update_of(&owner).add(&phone, &Wallet::new("friend")).sign();
    let text = signed_text(&update).expect("the update has a text");
    change(&phone, &text, first_signature(&mut update));
    update
}

/// The log before [`installation_update`].
fn with_installation() -> Vec<IdentityUpdate> {
    let owner = Wallet::new("owner");
    vec![xmtp_fixtures::registration(
        &owner,
        0,
        &Installation::new("phone"),
    )]
}

fn put_installation_signature(signature: &mut SignatureKind, bytes: Bytes) {
    let SignatureKind::InstallationKey(installation) = signature else {
        panic!("an installation signed");
    };
    installation.bytes = bytes;
}

#[test]
fn ident_030_an_installation_signs_64_bytes() {
    let history = with_installation();
    assert_eq!(refused(&history, &installation_update(|_, _, _| {})), None);
    for len in [0, 63, 65] {
        let update = installation_update(|_, _, signature| {
            put_installation_signature(signature, vec![7; len].into());
        });
        assert_eq!(
            refused(&history, &update),
            Some(SignatureError::Length.into())
        );
    }
}

#[test]
fn ident_030_an_installation_signs_prehashed_in_the_context_of_identity_updates() {
    let history = with_installation();
    for context in [
        &b""[..],
        b"PUBLIC SIGNATURE CONTEXT",
        b"identity update signature",
    ] {
        let update = installation_update(|phone, text, signature| {
            *signature = phone
                .sign_in_context(text, context)
                .signature
                .expect("a signature");
        });
        assert_eq!(
            refused(&history, &update),
            Some(SignatureError::Invalid.into())
        );
    }
    let plain = installation_update(|phone, text, signature| {
        let bytes = phone.sign_bytes(text.as_bytes());
        put_installation_signature(signature, Bytes::copy_from_slice(&bytes));
    });
    assert_eq!(
        refused(&history, &plain),
        Some(SignatureError::Invalid.into())
    );
}

#[test]
fn ident_030_an_installation_signs_with_a_reduced_scalar() {
    /// The order of the group, little-endian.
    const ORDER: [u8; 32] = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde,
        0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let update = installation_update(|_, _, signature| {
        let SignatureKind::InstallationKey(installation) = signature else {
            panic!("an installation signed");
        };
        let mut bytes = installation.bytes.to_vec();
        let mut carry = 0;
        for (digit, addend) in bytes[32..].iter_mut().zip(ORDER) {
            let sum = u16::from(*digit) + u16::from(addend) + carry;
            [carry, _] = [sum >> 8, 0];
            *digit = sum.to_le_bytes()[0];
        }
        installation.bytes = bytes.into();
    });
    assert_eq!(
        refused(&with_installation(), &update),
        Some(SignatureError::Invalid.into())
    );
}

#[test]
fn ident_030_a_passkey_signs_json_with_the_challenge_and_an_origin() {
    let passkey = Passkey::new("owner");
    let text = signed_text(&update_of(&passkey).create(&passkey, 0).unsigned());
    let text = text.expect("the update has a text");
    let signed = |client_data: String| {
        let mut update = created(&passkey);
        *first_signature(&mut update) = passkey
            .sign_client_data(client_data)
            .signature
            .expect("a signature");
        refused(&[], &update)
    };
    let client_data = |change: fn(&mut serde_json::Value)| {
        let mut client_data = passkey.client_data(&text);
        change(&mut client_data);
        client_data.to_string()
    };

    assert_eq!(signed(client_data(|_| {})), None);
    // Members that nobody asks for, and an origin that is nothing (SEC-032).
    assert_eq!(
        signed(client_data(|data| data["type"] = "webauthn.create".into())),
        None
    );
    assert_eq!(
        signed(client_data(|data| data["crossOrigin"] = true.into())),
        None
    );
    assert_eq!(signed(client_data(|data| data["origin"] = "".into())), None);

    let client_data_error = Some(SignatureError::PasskeyClientData.into());
    for malformed in [
        client_data(|data| data["challenge"] = "b3RoZXI".into()),
        client_data(|data| data["challenge"] = 1.into()),
        client_data(|data| drop(data.as_object_mut().map(|data| data.remove("challenge")))),
        client_data(|data| drop(data.as_object_mut().map(|data| data.remove("origin")))),
        client_data(|data| data["origin"] = 1.into()),
        client_data(|data| {
            let challenge = data["challenge"].as_str().expect("text");
            data["challenge"] = format!("{challenge}=").into();
        }),
        client_data(|data| *data = serde_json::json!([data["challenge"], data["origin"]])),
        client_data(|_| {}).replace('}', ""),
        String::new(),
    ] {
        assert_eq!(signed(malformed.clone()), client_data_error, "{malformed}");
    }
}

/// A passkey's first update, with its signature changed.
fn passkey_update(
    change: impl FnOnce(
        &mut xmtp_protocol::proto::xmtp::identity::associations::RecoverablePasskeySignature,
    ),
) -> IdentityUpdate {
    let mut update = created(&Passkey::new("owner"));
    let SignatureKind::Passkey(signature) = first_signature(&mut update) else {
        panic!("a passkey signed");
    };
    change(signature);
    update
}

#[test]
fn ident_030_a_passkey_signature_is_der_over_both_hashes() {
    assert_eq!(refused(&[], &passkey_update(|_| {})), None);
    for update in [
        passkey_update(|signature| signature.signature = vec![7; 64].into()),
        passkey_update(|signature| signature.signature = Bytes::new()),
        passkey_update(|signature| signature.authenticator_data = Bytes::new()),
        passkey_update(|signature| signature.authenticator_data = vec![7; 36].into()),
        passkey_update(|signature| {
            let spaced = [b" ", &signature.client_data_json[..]].concat();
            signature.client_data_json = spaced.into();
        }),
    ] {
        assert_eq!(refused(&[], &update), Some(SignatureError::Invalid.into()));
    }
}

#[test]
fn ident_030_a_passkey_is_a_point_compressed_or_not() {
    for key in [
        Bytes::new(),
        vec![0].into(),
        vec![4; 65].into(),
        Passkey::new("other").public_key().slice(1..),
        // The compact form of some curves.
        [&[5][..], &Passkey::new("owner").public_key()[1..33]]
            .concat()
            .into(),
    ] {
        assert_eq!(
            refused(&[], &passkey_update(|signature| signature.public_key = key)),
            Some(SignatureError::Invalid.into())
        );
    }
    // The same point, and another member.
    let compressed = passkey_update(|signature| {
        let point = signature.public_key.clone();
        let tag = 2 + (point[64] & 1);
        signature.public_key = [&[tag][..], &point[1..33]].concat().into();
    });
    assert_eq!(
        refused(&[], &compressed),
        Some(AssociationError::SignerMismatch.into())
    );
}

#[test]
fn ident_031_a_signature_stands_for_identifiers_of_its_kind() {
    let not_allowed = Some(AssociationError::SignatureNotAllowed.into());
    let (wallet, passkey) = (Wallet::new("owner"), Passkey::new("owner"));
    let phone = Installation::new("phone");
    let create = |initial: &dyn Signer, signer: &dyn Signer| {
        let update = update_of(initial)
            .create_for(&initial.identifier(), signer, 0)
            .sign();
        refused(&[], &update)
    };
    assert_eq!(create(&wallet, &wallet), None);
    assert_eq!(create(&passkey, &passkey), None);
    assert_eq!(create(&wallet, &passkey), not_allowed);
    assert_eq!(create(&wallet, &phone), not_allowed);
    assert_eq!(create(&passkey, &wallet), not_allowed);
    assert_eq!(create(&passkey, &phone), not_allowed);

    let parties: [&dyn Signer; 3] = [&Wallet::new("new"), &Passkey::new("new"), &phone];
    for (at, member) in parties.iter().enumerate() {
        for (by, signer) in parties.iter().enumerate() {
            let update = update_of(&wallet)
                .add_for(&member.identifier(), &wallet, *signer)
                .sign();
            let verdict = refused(&[created(&wallet)], &update);
            assert_eq!(
                verdict,
                if at == by { None } else { not_allowed },
                "{by} for {at}"
            );
        }
    }
}

#[test]
fn ident_031_recovery_is_not_for_other_kinds_of_signers() {
    let (owner, phone) = (Wallet::new("owner"), Installation::new("phone"));
    let history = with_installation();
    let not_recovery = Some(AssociationError::NotRecovery.into());
    let revoke = update_of(&owner).revoke(&phone, &owner.identifier()).sign();
    assert_eq!(refused(&history, &revoke), not_recovery);
    let change = update_of(&owner)
        .change_recovery(&phone, &Wallet::new("friend").identifier())
        .sign();
    assert_eq!(refused(&history, &change), not_recovery);
}

#[test]
fn api_230_a_fault_of_a_signature_is_found_before_a_fault_of_the_state() {
    let (owner, stranger) = (Wallet::new("owner"), Wallet::new("stranger"));
    let phone = Installation::new("phone");
    let mut update = update_of(&owner)
        .revoke(&stranger, &owner.identifier())
        .add(&stranger, &phone)
        .sign();
    let text = signed_text(&update).expect("the update has a text");
    *super::signatures_of(&mut update)[2] = Some(phone.sign_in_context(&text, b""));
    assert_eq!(
        refused(&with_installation(), &update),
        Some(SignatureError::Invalid.into())
    );
}
