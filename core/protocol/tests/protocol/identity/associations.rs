//! What applies to an inbox, and what it leaves: contract of identities, section 5.

use xmtp_fixtures::signers::{Installation, Passkey, Signer, Wallet};
use xmtp_protocol::{
    identity::{AssociationChanges, AssociationError, Identifier, IdentityError},
    proto::xmtp::identity::associations::{IdentityUpdate, signature::Signature as SignatureKind},
};

use super::{created, judge, members, signatures_of, state_of, texts_of, update_of};

fn refused(history: &[IdentityUpdate], update: &IdentityUpdate) -> Option<IdentityError> {
    judge(history, update).err()
}

fn members_after(history: &[IdentityUpdate], update: &IdentityUpdate) -> Vec<String> {
    members(
        &judge(history, update)
            .expect("an update that applies")
            .state,
    )
}

/// Who appears in these tests.
struct Parties {
    owner: Wallet,
    friend: Wallet,
    passkey: Passkey,
    phone: Installation,
    laptop: Installation,
}

fn parties() -> Parties {
    Parties {
        owner: Wallet::new("owner"),
        friend: Wallet::new("friend"),
        passkey: Passkey::new("passkey"),
        phone: Installation::new("phone"),
        laptop: Installation::new("laptop"),
    }
}

#[test]
fn ident_004_nothing_applies_before_an_inbox_is_created() {
    let Parties { owner, friend, .. } = parties();
    for update in [
        update_of(&owner).add(&owner, &friend).sign(),
        update_of(&owner).revoke(&owner, &owner.identifier()).sign(),
        update_of(&owner)
            .change_recovery(&owner, &friend.identifier())
            .sign(),
        update_of(&owner)
            .add(&owner, &friend)
            .create(&owner, 0)
            .sign(),
    ] {
        assert_eq!(
            refused(&[], &update),
            Some(AssociationError::NotCreated.into())
        );
    }
}

#[test]
fn ident_004_an_inbox_is_created_once() {
    let Parties { owner, .. } = parties();
    let again = update_of(&owner).at(2).create(&owner, 0).sign();
    assert_eq!(
        refused(&[created(&owner)], &again),
        Some(AssociationError::AlreadyCreated.into())
    );
    let twice = update_of(&owner).create(&owner, 0).create(&owner, 0).sign();
    assert_eq!(
        refused(&[], &twice),
        Some(AssociationError::AlreadyCreated.into())
    );
}

#[test]
fn ident_004_an_inbox_is_created_by_its_initial_identifier() {
    let Parties { owner, friend, .. } = parties();
    let update = update_of(&owner)
        .create_for(&owner.identifier(), &friend, 0)
        .sign();
    assert_eq!(
        refused(&[], &update),
        Some(AssociationError::SignerMismatch.into())
    );
}

#[test]
fn ident_010_the_nonce_is_part_of_the_inbox_id() {
    let Parties { owner, .. } = parties();
    for nonce in [0, 1, u64::MAX] {
        let inbox_id = xmtp_fixtures::inbox_id_of(&owner, nonce);
        let update = xmtp_fixtures::IdentityUpdateBuilder::new(&inbox_id)
            .create(&owner, nonce)
            .sign();
        let admission = judge(&[], &update).expect("the nonce is the inbox's");
        assert_eq!(admission.state.inbox_id(), inbox_id);
        let other = xmtp_fixtures::IdentityUpdateBuilder::new(&inbox_id)
            .create(&owner, nonce ^ 2)
            .sign();
        assert_eq!(
            refused(&[], &other),
            Some(AssociationError::WrongInboxId.into())
        );
    }
}

#[test]
fn ident_003_an_update_names_the_inbox_that_it_applies_to() {
    let Parties { owner, friend, .. } = parties();
    let elsewhere = update_of(&friend).create(&owner, 0).sign();
    assert_eq!(
        refused(&[], &elsewhere),
        Some(AssociationError::WrongInboxId.into())
    );
    let later = update_of(&friend).add(&owner, &friend).sign();
    assert_eq!(
        refused(&[created(&owner)], &later),
        Some(AssociationError::WrongInboxId.into())
    );
    let upper = xmtp_fixtures::inbox_id_of(&owner, 0).to_uppercase();
    let update = xmtp_fixtures::IdentityUpdateBuilder::new(&upper)
        .create(&owner, 0)
        .sign();
    assert_eq!(
        refused(&[], &update),
        Some(AssociationError::WrongInboxId.into())
    );
}

#[test]
fn ident_002_an_update_applies_whole_or_not_at_all() {
    let Parties {
        owner,
        friend,
        passkey,
        ..
    } = parties();
    let history = [created(&owner)];
    let update = update_of(&owner)
        .add(&owner, &friend)
        .add(&passkey, &Wallet::new("other"))
        .sign();
    assert_eq!(
        refused(&history, &update),
        Some(AssociationError::NotAMember.into())
    );
    // The signature of the first action was not spent by it.
    let first = update_of(&owner).add(&owner, &friend).sign();
    assert_eq!(
        members_after(&history, &first),
        texts_of(&[&owner, &friend])
    );
}

#[test]
fn ident_040_members_of_every_kind_are_added_by_members_of_every_kind() {
    let Parties {
        owner,
        friend,
        passkey,
        phone,
        laptop,
    } = parties();
    let history = [
        created(&owner),
        update_of(&owner)
            .add(&owner, &passkey)
            .add(&owner, &phone)
            .sign(),
    ];
    let (other_passkey, other) = (Passkey::new("other"), &friend);
    let adders: [&dyn Signer; 3] = [&owner, &passkey, &phone];
    let new: [&dyn Signer; 3] = [other, &other_passkey, &laptop];
    for adder in adders {
        for member in new {
            let update = update_of(&owner).at(5).add(adder, member).sign();
            let both_installations = [adder, member]
                .iter()
                .all(|party| matches!(party.identifier(), Identifier::Installation(_)));
            if both_installations {
                assert_eq!(
                    refused(&history, &update),
                    Some(AssociationError::MemberNotAllowed.into())
                );
                continue;
            }
            let admission = judge(&history, &update).expect("the pair is allowed");
            let details = &admission.state.members()[&member.identifier()];
            assert_eq!(details.added_by, Some(adder.identifier()));
            assert_eq!(details.added_at_ns, Some(5));
            assert_eq!(details.chain_id, None);
        }
    }
}

#[test]
fn ident_040_a_new_member_signs_for_itself() {
    let Parties {
        owner,
        friend,
        passkey,
        ..
    } = parties();
    let history = [created(&owner)];
    let update = update_of(&owner)
        .add_for(&friend.identifier(), &owner, &Wallet::new("other"))
        .sign();
    assert_eq!(
        refused(&history, &update),
        Some(AssociationError::NewMemberMismatch.into())
    );
    let update = update_of(&owner)
        .add_for(&passkey.identifier(), &owner, &Passkey::new("other"))
        .sign();
    assert_eq!(
        refused(&history, &update),
        Some(AssociationError::NewMemberMismatch.into())
    );
}

#[test]
fn ident_040_nobody_adds_itself() {
    let Parties { owner, friend, .. } = parties();
    for signer in [&owner, &friend] {
        let update = update_of(&owner).add(signer, signer).sign();
        assert_eq!(
            refused(&[created(&owner)], &update),
            Some(AssociationError::AddSelf.into())
        );
    }
}

#[test]
fn ident_040_a_member_is_not_added_again() {
    let Parties {
        owner,
        friend,
        passkey,
        ..
    } = parties();
    let history = [
        created(&owner),
        update_of(&owner)
            .add(&owner, &friend)
            .add(&owner, &passkey)
            .sign(),
    ];
    for adder in [&owner as &dyn Signer, &passkey] {
        let update = update_of(&owner).at(5).add(adder, &friend).sign();
        assert_eq!(
            refused(&history, &update),
            Some(AssociationError::AlreadyMember.into())
        );
    }
}

#[test]
fn ident_040_strangers_add_nobody() {
    let Parties {
        owner,
        friend,
        passkey,
        phone,
        ..
    } = parties();
    for stranger in [&passkey as &dyn Signer, &phone] {
        let update = update_of(&owner).add(stranger, &friend).sign();
        assert_eq!(
            refused(&[created(&owner)], &update),
            Some(AssociationError::NotAMember.into())
        );
    }
}

#[test]
fn ident_040_the_recovery_identifier_adds_without_being_a_member() {
    let Parties {
        owner,
        friend,
        phone,
        ..
    } = parties();
    let history = [
        created(&owner),
        update_of(&owner)
            .change_recovery(&owner, &friend.identifier())
            .sign(),
    ];
    let update = update_of(&owner).add(&friend, &phone).sign();
    assert_eq!(
        members_after(&history, &update),
        texts_of(&[&owner, &phone])
    );
}

#[test]
fn ident_041_only_the_recovery_identifier_revokes_and_hands_on() {
    let Parties {
        owner,
        friend,
        phone,
        ..
    } = parties();
    let history = [
        created(&owner),
        update_of(&owner)
            .add(&owner, &friend)
            .add(&owner, &phone)
            .sign(),
    ];
    let not_recovery = Some(AssociationError::NotRecovery.into());
    for signer in [&friend as &dyn Signer, &Wallet::new("stranger")] {
        let revoke = update_of(&owner).revoke(signer, &phone.identifier()).sign();
        assert_eq!(refused(&history, &revoke), not_recovery);
        let change = update_of(&owner)
            .change_recovery(signer, &friend.identifier())
            .sign();
        assert_eq!(refused(&history, &change), not_recovery);
    }
}

#[test]
fn ident_042_recovery_moves_and_members_stay() {
    let Parties {
        owner,
        friend,
        phone,
        ..
    } = parties();
    let mut history = vec![
        created(&owner),
        update_of(&owner)
            .change_recovery(&owner, &friend.identifier())
            .sign(),
    ];
    let state = state_of(&history);
    assert_eq!(*state.recovery_identifier(), friend.identifier());
    assert_eq!(members(&state), texts_of(&[&owner]));

    let old = update_of(&owner)
        .at(5)
        .revoke(&owner, &owner.identifier())
        .sign();
    assert_eq!(
        refused(&history, &old),
        Some(AssociationError::NotRecovery.into())
    );
    let new = update_of(&owner)
        .at(5)
        .revoke(&friend, &owner.identifier())
        .sign();
    assert_eq!(members_after(&history, &new), Vec::<String>::new());

    // A log may end without members; its recovery identifier can still add.
    history.push(new);
    let add = update_of(&owner).at(6).add(&friend, &phone).sign();
    assert_eq!(members_after(&history, &add), texts_of(&[&phone]));
}

#[test]
fn ident_041_a_revocation_takes_the_installations_that_the_member_added() {
    let Parties {
        owner,
        friend,
        passkey,
        phone,
        laptop,
    } = parties();
    let history = [
        created(&owner),
        update_of(&owner)
            .add(&owner, &friend)
            .add(&owner, &phone)
            .add(&friend, &laptop)
            .add(&friend, &passkey)
            .sign(),
    ];
    let update = update_of(&owner)
        .revoke(&owner, &friend.identifier())
        .sign();
    assert_eq!(
        members_after(&history, &update),
        texts_of(&[&owner, &phone, &passkey])
    );
}

#[test]
fn ident_041_a_revocation_of_one_who_is_no_member_takes_its_installations() {
    let Parties {
        owner,
        friend,
        phone,
        laptop,
        ..
    } = parties();
    let history = [
        created(&owner),
        update_of(&owner)
            .add(&owner, &laptop)
            .change_recovery(&owner, &friend.identifier())
            .sign(),
        update_of(&owner).add(&friend, &phone).sign(),
    ];
    let update = update_of(&owner)
        .revoke(&friend, &friend.identifier())
        .sign();
    assert_eq!(
        members_after(&history, &update),
        texts_of(&[&owner, &laptop])
    );
    let nobody = update_of(&owner)
        .revoke(&friend, &Identifier::Installation(vec![7; 31].into()))
        .sign();
    assert_eq!(
        members_after(&history, &nobody),
        texts_of(&[&owner, &laptop, &phone])
    );
}

#[test]
fn ident_041_the_recovery_identifier_keeps_its_role_when_it_revokes_itself() {
    let Parties { owner, phone, .. } = parties();
    let mut history = vec![xmtp_fixtures::registration(&owner, 0, &phone)];
    history.push(update_of(&owner).revoke(&owner, &owner.identifier()).sign());
    let state = state_of(&history);
    assert_eq!(members(&state), Vec::<String>::new());
    assert_eq!(*state.recovery_identifier(), owner.identifier());
}

/// An inbox to which a friend was added, and from which it was revoked.
fn with_revoked_friend(owner: &Wallet, friend: &Wallet) -> Vec<IdentityUpdate> {
    vec![
        created(owner),
        update_of(owner).add(owner, friend).sign(),
        update_of(owner)
            .at(2)
            .revoke(owner, &friend.identifier())
            .sign(),
    ]
}

#[test]
fn ident_050_a_revoked_member_does_not_return_on_its_old_signatures() {
    let Parties { owner, friend, .. } = parties();
    let history = with_revoked_friend(&owner, &friend);
    assert_eq!(
        refused(&history, &history[1]),
        Some(AssociationError::Replay.into())
    );
    assert_eq!(
        refused(&history, &history[2]),
        Some(AssociationError::Replay.into())
    );
    let anew = update_of(&owner).at(3).add(&owner, &friend).sign();
    assert_eq!(members_after(&history, &anew), texts_of(&[&owner, &friend]));
}

#[test]
fn ident_050_one_signature_has_one_replay_key_however_it_is_written() {
    let Parties { owner, friend, .. } = parties();
    let history = with_revoked_friend(&owner, &friend);
    let mut rewritten = history[1].clone();
    for signature in signatures_of(&mut rewritten) {
        let Some(SignatureKind::Erc191(wallet)) = signature
            .as_mut()
            .and_then(|signature| signature.signature.as_mut())
        else {
            panic!("a wallet signed");
        };
        let mut bytes = wallet.bytes.to_vec();
        bytes[64] -= 27;
        wallet.bytes = bytes.into();
    }
    assert_ne!(rewritten, history[1]);
    assert_eq!(
        refused(&history, &rewritten),
        Some(AssociationError::Replay.into())
    );
}

#[test]
fn ident_050_every_action_looks_for_replays() {
    let Parties {
        owner,
        friend,
        phone,
        ..
    } = parties();
    let mut history = vec![
        xmtp_fixtures::registration(&owner, 0, &phone),
        update_of(&owner)
            .at(2)
            .change_recovery(&owner, &friend.identifier())
            .sign(),
        update_of(&owner)
            .at(3)
            .change_recovery(&friend, &owner.identifier())
            .sign(),
    ];
    assert_eq!(
        refused(&history, &history[1]),
        Some(AssociationError::Replay.into())
    );
    history.push(
        update_of(&owner)
            .at(4)
            .revoke(&owner, &phone.identifier())
            .sign(),
    );
    assert_eq!(
        refused(&history, &history[3]),
        Some(AssociationError::Replay.into())
    );
    // The signature of an installation that was used before, beside a new one of its adder.
    let mut update = update_of(&owner).at(5).add(&owner, &phone).sign();
    history.push(update.clone());
    history.push(
        update_of(&owner)
            .at(6)
            .revoke(&owner, &phone.identifier())
            .sign(),
    );
    let text = xmtp_protocol::identity::signed_text(&update).expect("the update has a text");
    *signatures_of(&mut update)[0] = Some(friend.sign(&text));
    assert_eq!(
        refused(&history, &update),
        Some(AssociationError::Replay.into())
    );
}

#[test]
fn ident_050_a_signature_may_be_used_twice_inside_one_update() {
    let Parties { owner, friend, .. } = parties();
    let history = [
        created(&owner),
        update_of(&owner).add(&owner, &friend).sign(),
    ];
    let update = update_of(&owner)
        .revoke(&owner, &friend.identifier())
        .revoke(&owner, &friend.identifier())
        .sign();
    assert_eq!(members_after(&history, &update), texts_of(&[&owner]));
}

fn changes(history: &[IdentityUpdate], update: &IdentityUpdate) -> AssociationChanges {
    judge(history, update)
        .expect("an update that applies")
        .changes
}

/// Changes of these, installations left out.
fn expected(associated: &[&dyn Signer], revoked: &[&dyn Signer]) -> AssociationChanges {
    let keys = |signers: &[&dyn Signer]| {
        let mut keys: Vec<_> = signers
            .iter()
            .map(|signer| signer.identifier().key().expect("it is projected"))
            .collect();
        keys.sort_unstable();
        keys
    };
    AssociationChanges {
        associated: keys(associated),
        revoked: keys(revoked),
    }
}

#[test]
fn arc_022_changes_name_who_joins_and_who_leaves_but_no_installation() {
    let Parties {
        owner,
        friend,
        passkey,
        phone,
        ..
    } = parties();
    let first = xmtp_fixtures::registration(&owner, 0, &phone);
    assert_eq!(changes(&[], &first), expected(&[&owner], &[]));
    let second = update_of(&owner)
        .at(2)
        .add(&owner, &friend)
        .add(&owner, &passkey)
        .sign();
    let history = [first, second];
    assert_eq!(
        changes(&history[..1], &history[1]),
        expected(&[&friend, &passkey], &[])
    );
    let both = update_of(&owner)
        .at(3)
        .revoke(&owner, &friend.identifier())
        .revoke(&owner, &phone.identifier())
        .add(&owner, &Wallet::new("new"))
        .sign();
    assert_eq!(
        changes(&history, &both),
        expected(&[&Wallet::new("new")], &[&friend])
    );
    let recovery = update_of(&owner)
        .at(3)
        .change_recovery(&owner, &friend.identifier())
        .sign();
    assert_eq!(changes(&history, &recovery), expected(&[], &[]));
}

#[test]
fn arc_022_a_member_revoked_and_added_again_is_associated_from_this_update_on() {
    let Parties { owner, friend, .. } = parties();
    let history = [
        created(&owner),
        update_of(&owner).add(&owner, &friend).sign(),
    ];
    let back = update_of(&owner)
        .at(2)
        .revoke(&owner, &friend.identifier())
        .add(&owner, &friend)
        .sign();
    assert_eq!(changes(&history, &back), expected(&[&friend], &[]));
    // One that comes and goes within the update was never there.
    let other = Wallet::new("other");
    let gone = update_of(&owner)
        .at(2)
        .add(&owner, &other)
        .revoke(&owner, &other.identifier())
        .sign();
    assert_eq!(changes(&history, &gone), expected(&[], &[]));
}
