//! What holds for every update.

use proptest::{prelude::*, sample::Index};
use prost::Message;
use xmtp_fixtures::{
    block_on,
    signers::{Installation, Passkey, Signer, Wallet},
};
use xmtp_protocol::{
    identity::{NoChainVerifier, fold, signed_text},
    proto::xmtp::identity::associations::IdentityUpdate,
};

use super::{created, judge, update_of};
use crate::data::crafted_identity_updates;

/// A log with a signer of every kind in it.
fn log() -> Vec<IdentityUpdate> {
    let (owner, friend) = (Wallet::new("owner"), Wallet::new("friend"));
    let (passkey, phone) = (Passkey::new("passkey"), Installation::new("phone"));
    vec![
        created(&owner),
        update_of(&owner)
            .at(2)
            .add(&owner, &passkey)
            .add(&passkey, &phone)
            .sign(),
        update_of(&owner).at(3).add(&phone, &friend).sign(),
        update_of(&owner)
            .at(4)
            .revoke(&owner, &passkey.identifier())
            .sign(),
        update_of(&owner)
            .at(5)
            .change_recovery(&owner, &friend.identifier())
            .sign(),
        update_of(&owner)
            .at(6)
            .revoke(&friend, &owner.identifier())
            .sign(),
    ]
}

#[test]
fn ident_004_folding_in_parts_is_folding_at_once() {
    let log = log();
    let at_once = block_on(fold(None, &log, &NoChainVerifier)).expect("the log applies");
    for cut in 0..=log.len() {
        let (first, second) = log.split_at(cut);
        let half = block_on(fold(None, first, &NoChainVerifier)).expect("the log applies");
        let whole = block_on(fold(half, second, &NoChainVerifier)).expect("the log applies");
        assert!(whole == at_once, "cut at {cut}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever an update says is signed, but for the origin of a passkey, which is for display.
    #[test]
    fn ident_020_a_changed_bit_is_refused_or_changes_no_text(at in any::<Index>(), bit in 0_u8..8) {
        let log = log();
        let (update, history) = log[..3].split_last().expect("three updates");
        let mut bytes = update.encode_to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok(changed) = IdentityUpdate::decode(&bytes[..])
            && changed != *update
            && judge(history, &changed).is_ok()
        {
            prop_assert_eq!(signed_text(&changed), signed_text(update));
        }
    }

    #[test]
    fn arbitrary_bytes_are_no_panic_as_an_update(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        if let Ok(update) = IdentityUpdate::decode(&bytes[..]) {
            let _ = judge(&[], &update);
            let _ = signed_text(&update);
        }
    }

    #[test]
    fn damaged_updates_are_no_panic(
        case in any::<Index>(),
        overwritten in prop::collection::vec((any::<Index>(), any::<u8>()), 1..6),
        cut in prop::option::weighted(0.2, any::<Index>()),
    ) {
        let cases = crafted_identity_updates();
        let mut bytes = cases[case.index(cases.len())].update.0.clone();
        for (at, byte) in overwritten {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(update) = IdentityUpdate::decode(&bytes[..]) {
            let _ = judge(&[], &update);
        }
    }
}
