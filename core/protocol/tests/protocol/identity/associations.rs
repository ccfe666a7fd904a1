//! What applies to an inbox, and what it leaves: contract of identities, section 5.

use xmtp_fixtures::{
    IdentityUpdateBuilder, inbox_id_of, registration,
    signers::{Installation, Passkey, Signer, Wallet},
};
use xmtp_protocol::{
    identity::{AssociationChanges, AssociationError, Identifier},
    proto::xmtp::identity::associations::{IdentityUpdate, signature::Signature as SignatureKind},
};

use super::{judge, members, signatures_of, state_of, texts_of, update_of};

/// An inbox, and who appears in its tests. It is the owner's.
struct Inbox {
    owner: Wallet,
    friend: Wallet,
    passkey: Passkey,
    phone: Installation,
    laptop: Installation,
    /// The updates so far.
    log: Vec<IdentityUpdate>,
}

impl Inbox {
    /// One that nobody has opened yet.
    fn unopened() -> Self {
        Self {
            owner: Wallet::new("owner"),
            friend: Wallet::new("friend"),
            passkey: Passkey::new("passkey"),
            phone: Installation::new("phone"),
            laptop: Installation::new("laptop"),
            log: Vec::new(),
        }
    }

    /// One that its owner has opened.
    fn opened() -> Self {
        Self::unopened().then(|it| it.update().create(&it.owner, 0))
    }

    /// One that its owner has opened, with the phone in it.
    fn registered() -> Self {
        let mut inbox = Self::unopened();
        inbox.log.push(registration(&inbox.owner, 0, &inbox.phone));
        inbox
    }

    /// Lets an update follow, signed by everybody.
    fn then(mut self, update: impl for<'a> FnOnce(&'a Self) -> IdentityUpdateBuilder<'a>) -> Self {
        let update = update(&self).sign();
        self.log.push(update);
        self
    }

    /// An update of this inbox.
    fn update<'a>(&self) -> IdentityUpdateBuilder<'a> {
        update_of(&self.owner)
    }

    #[track_caller]
    fn refuses(&self, update: &IdentityUpdate, error: AssociationError) {
        assert_eq!(judge(&self.log, update).err(), Some(error.into()));
    }

    /// Asserts whom a further update would leave.
    #[track_caller]
    fn is_left_with(&self, update: &IdentityUpdate, signers: &[&dyn Signer]) {
        let admission = judge(&self.log, update).expect("an update that applies");
        assert_eq!(members(&admission.state), texts_of(signers));
    }

    /// Asserts what a further update would change in the projection.
    #[track_caller]
    fn changes(
        &self,
        update: &IdentityUpdate,
        associated: &[&dyn Signer],
        revoked: &[&dyn Signer],
    ) {
        let keys = |signers: &[&dyn Signer]| {
            let mut keys: Vec<_> = signers
                .iter()
                .map(|signer| signer.identifier().key().expect("it is projected"))
                .collect();
            keys.sort_unstable();
            keys
        };
        let admission = judge(&self.log, update).expect("an update that applies");
        let expected = AssociationChanges {
            associated: keys(associated),
            revoked: keys(revoked),
        };
        assert_eq!(admission.changes, expected);
    }
}

#[test]
fn ident_004_nothing_applies_before_an_inbox_is_created() {
    let it = Inbox::unopened();
    for update in [
        it.update().add(&it.owner, &it.friend),
        it.update().revoke(&it.owner, &it.owner.identifier()),
        it.update()
            .change_recovery(&it.owner, &it.friend.identifier()),
        it.update().add(&it.owner, &it.friend).create(&it.owner, 0),
    ] {
        it.refuses(&update.sign(), AssociationError::NotCreated);
    }
}

#[test]
fn ident_004_an_inbox_is_created_once() {
    let it = Inbox::opened();
    let again = it.update().at(2).create(&it.owner, 0).sign();
    it.refuses(&again, AssociationError::AlreadyCreated);
    let it = Inbox::unopened();
    let twice = it.update().create(&it.owner, 0).create(&it.owner, 0).sign();
    it.refuses(&twice, AssociationError::AlreadyCreated);
}

#[test]
fn ident_004_an_inbox_is_created_by_its_initial_identifier() {
    let it = Inbox::unopened();
    let update = it.update();
    let update = update.create_for(&it.owner.identifier(), &it.friend, 0);
    it.refuses(&update.sign(), AssociationError::SignerMismatch);
}

#[test]
fn ident_010_the_nonce_is_part_of_the_inbox_id() {
    let it = Inbox::unopened();
    for nonce in [0, 1, u64::MAX] {
        let inbox_id = inbox_id_of(&it.owner, nonce);
        let update = || IdentityUpdateBuilder::new(&inbox_id);
        let admission = judge(&[], &update().create(&it.owner, nonce).sign());
        let state = admission.expect("the nonce is the inbox's").state;
        assert_eq!(state.inbox_id(), inbox_id);
        let other = update().create(&it.owner, nonce ^ 2).sign();
        it.refuses(&other, AssociationError::WrongInboxId);
    }
}

#[test]
fn ident_003_an_update_names_the_inbox_that_it_applies_to() {
    let it = Inbox::unopened();
    let elsewhere = update_of(&it.friend).create(&it.owner, 0).sign();
    it.refuses(&elsewhere, AssociationError::WrongInboxId);
    let upper = inbox_id_of(&it.owner, 0).to_uppercase();
    let upper = IdentityUpdateBuilder::new(&upper).create(&it.owner, 0);
    it.refuses(&upper.sign(), AssociationError::WrongInboxId);
    let it = Inbox::opened();
    let later = update_of(&it.friend).add(&it.owner, &it.friend).sign();
    it.refuses(&later, AssociationError::WrongInboxId);
}

#[test]
fn ident_002_an_update_applies_whole_or_not_at_all() {
    let it = Inbox::opened();
    let other = Wallet::new("other");
    let first = || it.update().add(&it.owner, &it.friend);
    let both = first().add(&it.passkey, &other).sign();
    it.refuses(&both, AssociationError::NotAMember);
    // The signature of the first action was not spent by it.
    it.is_left_with(&first().sign(), &[&it.owner, &it.friend]);
}

#[test]
fn ident_040_members_of_every_kind_are_added_by_members_of_every_kind() {
    let it = Inbox::registered().then(|it| it.update().at(2).add(&it.owner, &it.passkey));
    let other_passkey = Passkey::new("other");
    let adders: [&dyn Signer; 3] = [&it.owner, &it.passkey, &it.phone];
    let new: [&dyn Signer; 3] = [&it.friend, &other_passkey, &it.laptop];
    for adder in adders {
        for member in new {
            let update = it.update().at(5).add(adder, member).sign();
            let both_installations = [adder, member]
                .iter()
                .all(|party| matches!(party.identifier(), Identifier::Installation(_)));
            if both_installations {
                it.refuses(&update, AssociationError::MemberNotAllowed);
                continue;
            }
            let admission = judge(&it.log, &update).expect("the pair is allowed");
            let details = &admission.state.members()[&member.identifier()];
            assert_eq!(details.added_by, Some(adder.identifier()));
            assert_eq!(details.added_at_ns, Some(5));
            assert_eq!(details.chain_id, None);
        }
    }
}

#[test]
fn ident_040_a_new_member_signs_for_itself() {
    let it = Inbox::opened();
    let (wallet, passkey) = (Wallet::new("other"), Passkey::new("other"));
    for (member, signer) in [
        (it.friend.identifier(), &wallet as &dyn Signer),
        (it.passkey.identifier(), &passkey),
    ] {
        let update = it.update().add_for(&member, &it.owner, signer).sign();
        it.refuses(&update, AssociationError::NewMemberMismatch);
    }
}

#[test]
fn ident_040_nobody_adds_itself() {
    let it = Inbox::opened();
    for signer in [&it.owner, &it.friend] {
        let update = it.update().add(signer, signer).sign();
        it.refuses(&update, AssociationError::AddSelf);
    }
}

#[test]
fn ident_040_a_member_is_not_added_again() {
    let it = Inbox::opened().then(|it| {
        it.update()
            .add(&it.owner, &it.friend)
            .add(&it.owner, &it.passkey)
    });
    for adder in [&it.owner as &dyn Signer, &it.passkey] {
        let update = it.update().at(5).add(adder, &it.friend).sign();
        it.refuses(&update, AssociationError::AlreadyMember);
    }
}

#[test]
fn ident_040_strangers_add_nobody() {
    let it = Inbox::opened();
    for stranger in [&it.passkey as &dyn Signer, &it.phone] {
        let update = it.update().add(stranger, &it.friend).sign();
        it.refuses(&update, AssociationError::NotAMember);
    }
}

#[test]
fn ident_040_the_recovery_identifier_adds_without_being_a_member() {
    let it = Inbox::opened().then(|it| {
        it.update()
            .change_recovery(&it.owner, &it.friend.identifier())
    });
    let update = it.update().add(&it.friend, &it.phone).sign();
    it.is_left_with(&update, &[&it.owner, &it.phone]);
}

#[test]
fn ident_041_only_the_recovery_identifier_revokes_and_hands_on() {
    let it = Inbox::registered().then(|it| it.update().at(2).add(&it.owner, &it.friend));
    let stranger = Wallet::new("stranger");
    for signer in [&it.friend, &stranger] {
        for update in [
            it.update().revoke(signer, &it.phone.identifier()),
            it.update().change_recovery(signer, &it.friend.identifier()),
        ] {
            it.refuses(&update.sign(), AssociationError::NotRecovery);
        }
    }
}

#[test]
fn ident_042_recovery_moves_and_members_stay() {
    let it = Inbox::opened().then(|it| {
        it.update()
            .change_recovery(&it.owner, &it.friend.identifier())
    });
    let state = state_of(&it.log);
    assert_eq!(*state.recovery_identifier(), it.friend.identifier());
    assert_eq!(members(&state), texts_of(&[&it.owner]));

    let revoke = |signer| it.update().at(5).revoke(signer, &it.owner.identifier());
    it.refuses(&revoke(&it.owner).sign(), AssociationError::NotRecovery);
    it.is_left_with(&revoke(&it.friend).sign(), &[]);

    // A log may end without members; its recovery identifier can still add.
    let it = it.then(|it| it.update().at(5).revoke(&it.friend, &it.owner.identifier()));
    let add = it.update().at(6).add(&it.friend, &it.phone).sign();
    it.is_left_with(&add, &[&it.phone]);
}

#[test]
fn ident_041_a_revocation_takes_the_installations_that_the_member_added() {
    let it = Inbox::opened().then(|it| {
        it.update()
            .add(&it.owner, &it.friend)
            .add(&it.owner, &it.phone)
            .add(&it.friend, &it.laptop)
            .add(&it.friend, &it.passkey)
    });
    let update = it.update().revoke(&it.owner, &it.friend.identifier());
    it.is_left_with(&update.sign(), &[&it.owner, &it.phone, &it.passkey]);
}

#[test]
fn ident_041_a_revocation_of_one_who_is_no_member_takes_its_installations() {
    let it = Inbox::opened()
        .then(|it| {
            it.update()
                .add(&it.owner, &it.laptop)
                .change_recovery(&it.owner, &it.friend.identifier())
        })
        .then(|it| it.update().add(&it.friend, &it.phone));
    let update = it.update().revoke(&it.friend, &it.friend.identifier());
    it.is_left_with(&update.sign(), &[&it.owner, &it.laptop]);
    let nobody = Identifier::Installation(vec![7; 31].into());
    let update = it.update().revoke(&it.friend, &nobody);
    it.is_left_with(&update.sign(), &[&it.owner, &it.laptop, &it.phone]);
}

#[test]
fn ident_041_the_recovery_identifier_keeps_its_role_when_it_revokes_itself() {
    let it =
        Inbox::registered().then(|it| it.update().at(2).revoke(&it.owner, &it.owner.identifier()));
    let state = state_of(&it.log);
    assert_eq!(members(&state), texts_of(&[]));
    assert_eq!(*state.recovery_identifier(), it.owner.identifier());
}

/// An inbox to which the friend was added, and from which it was revoked.
fn with_revoked_friend() -> Inbox {
    Inbox::opened()
        .then(|it| it.update().add(&it.owner, &it.friend))
        .then(|it| it.update().at(2).revoke(&it.owner, &it.friend.identifier()))
}

#[test]
fn ident_050_a_revoked_member_does_not_return_on_its_old_signatures() {
    let it = with_revoked_friend();
    it.refuses(&it.log[1], AssociationError::Replay);
    it.refuses(&it.log[2], AssociationError::Replay);
    let anew = it.update().at(3).add(&it.owner, &it.friend).sign();
    it.is_left_with(&anew, &[&it.owner, &it.friend]);
}

#[test]
fn ident_050_one_signature_has_one_replay_key_however_it_is_written() {
    let it = with_revoked_friend();
    let mut rewritten = it.log[1].clone();
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
    assert_ne!(rewritten, it.log[1]);
    it.refuses(&rewritten, AssociationError::Replay);
}

#[test]
fn ident_050_every_action_looks_for_replays() {
    let it = Inbox::registered()
        .then(|it| {
            it.update()
                .at(2)
                .change_recovery(&it.owner, &it.friend.identifier())
        })
        .then(|it| {
            it.update()
                .at(3)
                .change_recovery(&it.friend, &it.owner.identifier())
        });
    it.refuses(&it.log[1], AssociationError::Replay);
    let it = it.then(|it| it.update().at(4).revoke(&it.owner, &it.phone.identifier()));
    it.refuses(&it.log[3], AssociationError::Replay);
    // The signature of an installation that was used before, beside a new one of its adder.
    let it = it
        .then(|it| it.update().at(5).add(&it.owner, &it.phone))
        .then(|it| it.update().at(6).revoke(&it.owner, &it.phone.identifier()));
    let mut update = it.log[4].clone();
    let text = xmtp_protocol::identity::signed_text(&update).expect("the update has a text");
    *signatures_of(&mut update)[0] = Some(it.friend.sign(&text));
    it.refuses(&update, AssociationError::Replay);
}

#[test]
fn ident_050_a_signature_may_be_used_twice_inside_one_update() {
    let it = Inbox::opened().then(|it| it.update().add(&it.owner, &it.friend));
    let friend = it.friend.identifier();
    let update = it.update().revoke(&it.owner, &friend);
    let update = update.revoke(&it.owner, &friend).sign();
    it.is_left_with(&update, &[&it.owner]);
}

#[test]
fn arc_022_changes_name_who_joins_and_who_leaves_but_no_installation() {
    let it = Inbox::unopened();
    let first = registration(&it.owner, 0, &it.phone);
    it.changes(&first, &[&it.owner], &[]);
    let mut it = Inbox::registered();
    let both = it.update().at(2).add(&it.owner, &it.friend);
    let both = both.add(&it.owner, &it.passkey).sign();
    it.changes(&both, &[&it.friend, &it.passkey], &[]);

    it.log.push(both);
    let new = Wallet::new("new");
    let both = it
        .update()
        .at(3)
        .revoke(&it.owner, &it.friend.identifier())
        .revoke(&it.owner, &it.phone.identifier())
        .add(&it.owner, &new)
        .sign();
    it.changes(&both, &[&new], &[&it.friend]);
    let recovery = it.update().at(3);
    let recovery = recovery.change_recovery(&it.owner, &it.friend.identifier());
    it.changes(&recovery.sign(), &[], &[]);
}

#[test]
fn arc_022_a_member_revoked_and_added_again_is_associated_from_this_update_on() {
    let it = Inbox::opened().then(|it| it.update().add(&it.owner, &it.friend));
    let back = it
        .update()
        .at(2)
        .revoke(&it.owner, &it.friend.identifier())
        .add(&it.owner, &it.friend)
        .sign();
    it.changes(&back, &[&it.friend], &[]);
    // One that comes and goes within the update was never there.
    let other = Wallet::new("other");
    let gone = it
        .update()
        .at(2)
        .add(&it.owner, &other)
        .revoke(&it.owner, &other.identifier())
        .sign();
    it.changes(&gone, &[], &[]);
}
