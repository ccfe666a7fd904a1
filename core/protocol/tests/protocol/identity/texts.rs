//! The text that is signed: IDENT-020.

use xmtp_fixtures::IdentityUpdateBuilder;
use xmtp_fixtures::signers::{Passkey, Signer, Wallet};
use xmtp_protocol::{
    identity::{Identifier, signed_text},
    proto::xmtp::identity::associations::{
        AddAssociation, IdentityAction, MemberIdentifier, RevokeAssociation, identity_action::Kind,
        member_identifier,
    },
};

/// The time in the text of an update that claims this one.
fn time_at(client_timestamp_ns: u64) -> String {
    let update = IdentityUpdateBuilder::new("inbox")
        .at(client_timestamp_ns)
        .unsigned();
    let text = signed_text(&update).expect("an update without actions has a text");
    let line = text.lines().nth(3).expect("the text has a fourth line");
    line.strip_prefix("Current time: ")
        .expect("the line of the time")
        .to_owned()
}

#[test]
fn ident_020_times_are_shown_in_whole_seconds_over_the_signed_range() {
    for (client_timestamp_ns, time) in [
        (0, "1970-01-01T00:00:00Z"),
        (12, "1970-01-01T00:00:00Z"),
        (999_999_999, "1970-01-01T00:00:00Z"),
        (1_700_000_000_000_000_000, "2023-11-14T22:13:20Z"),
        // The day before and after each kind of leap day, and one that is none.
        (951_782_400_000_000_000, "2000-02-29T00:00:00Z"),
        (951_868_800_000_000_000, "2000-03-01T00:00:00Z"),
        (1_709_164_800_000_000_000, "2024-02-29T00:00:00Z"),
        (1_735_689_599_000_000_000, "2024-12-31T23:59:59Z"),
        (1_735_689_600_000_000_000, "2025-01-01T00:00:00Z"),
        (4_107_542_399_000_000_000, "2100-02-28T23:59:59Z"),
        (4_107_542_400_000_000_000, "2100-03-01T00:00:00Z"),
        (i64::MAX.cast_unsigned(), "2262-04-11T23:47:16Z"),
        ((-1_i64).cast_unsigned(), "1969-12-31T23:59:59Z"),
        ((-1_000_000_000_i64).cast_unsigned(), "1969-12-31T23:59:59Z"),
        ((-1_000_000_001_i64).cast_unsigned(), "1969-12-31T23:59:58Z"),
        (i64::MIN.cast_unsigned(), "1677-09-21T00:12:43Z"),
    ] {
        assert_eq!(time_at(client_timestamp_ns), time, "{client_timestamp_ns}");
    }
}

/// The two lines of an action.
fn lines_of(kind: Kind) -> String {
    let mut update = IdentityUpdateBuilder::new("inbox").unsigned();
    update.actions.push(IdentityAction { kind: Some(kind) });
    let text = signed_text(&update).expect("the action has lines");
    let lines: Vec<&str> = text.lines().skip(5).take(2).collect();
    lines.join("|")
}

fn member(kind: member_identifier::Kind) -> MemberIdentifier {
    MemberIdentifier { kind: Some(kind) }
}

#[test]
fn ident_020_members_have_their_lines_by_kind() {
    use member_identifier::Kind::{EthereumAddress, InstallationPublicKey};
    let address = format!("0x{}", "ab".repeat(20));
    let passkey = || {
        member_identifier::Kind::Passkey(
            xmtp_protocol::proto::xmtp::identity::associations::Passkey {
                key: vec![0xCD, 0xEF].into(),
                relying_party: Some("nobody reads this".to_owned()),
            },
        )
    };
    let key = || InstallationPublicKey(vec![1, 2, 3].into());
    let add = |kind| {
        lines_of(Kind::Add(AddAssociation {
            new_member_identifier: Some(member(kind)),
            ..Default::default()
        }))
    };
    let revoke = |kind| {
        lines_of(Kind::Revoke(RevokeAssociation {
            member_to_revoke: Some(member(kind)),
            ..Default::default()
        }))
    };
    let address = || EthereumAddress(address.clone());
    let shown = format!("  (Address: 0x{})", "ab".repeat(20));
    assert_eq!(add(address()), format!("- Link address to inbox|{shown}"));
    assert_eq!(add(passkey()), "- Link passkey to inbox|  (Passkey: cdef)");
    assert_eq!(add(key()), "- Grant messaging access to app|  (ID: 010203)");
    assert_eq!(
        revoke(address()),
        format!("- Unlink address from inbox|{shown}")
    );
    assert_eq!(
        revoke(passkey()),
        "- Unlink passkey from inbox|  (Passkey: cdef)"
    );
    assert_eq!(
        revoke(key()),
        "- Revoke messaging access from app|  (ID: 010203)"
    );
}

#[test]
fn ident_020_six_actions_make_one_text() {
    let owner =
        Identifier::from_text("0x1234567890abcdef1234567890abcdef12345678", 1).expect("an address");
    let added =
        Identifier::from_text("0x4567890abcdef1234567890abcdef12345678123", 1).expect("an address");
    let recovery =
        Identifier::from_text("0x7890abcdef1234567890abcdef12345678123456", 1).expect("an address");
    let installation = Identifier::Installation(vec![1, 2, 3].into());
    let anyone = Wallet::new("anyone");
    let inbox_id = "fcd18d86276d7a99fe522dba9660c420f03c8648785ada7c5daae232a3df77a9";
    let update = IdentityUpdateBuilder::new(inbox_id)
        .at(12)
        .create_for(&owner, &anyone, 0)
        .add_for(&added, &anyone, &anyone)
        .add_for(&installation, &anyone, &anyone)
        .revoke(&anyone, &added)
        .revoke(&anyone, &installation)
        .change_recovery(&anyone, &recovery)
        .unsigned();
    assert_eq!(
        signed_text(&update).as_deref(),
        Ok("XMTP : Authenticate to inbox\n\n\
            Inbox ID: fcd18d86276d7a99fe522dba9660c420f03c8648785ada7c5daae232a3df77a9\n\
            Current time: 1970-01-01T00:00:00Z\n\n\
            - Create inbox\n  (Owner: 0x1234567890abcdef1234567890abcdef12345678)\n\
            - Link address to inbox\n  (Address: 0x4567890abcdef1234567890abcdef12345678123)\n\
            - Grant messaging access to app\n  (ID: 010203)\n\
            - Unlink address from inbox\n  (Address: 0x4567890abcdef1234567890abcdef12345678123)\n\
            - Revoke messaging access from app\n  (ID: 010203)\n\
            - Change inbox recovery address\n  (Address: 0x7890abcdef1234567890abcdef12345678123456)\n\n\
            For more info: https://xmtp.org/signatures")
    );
}

#[test]
fn ident_020_a_passkey_that_takes_over_recovery_is_called_an_address() {
    let (wallet, passkey) = (Wallet::new("owner"), Passkey::new("recovery"));
    let update = IdentityUpdateBuilder::new("inbox")
        .change_recovery(&wallet, &passkey.identifier())
        .unsigned();
    let text = signed_text(&update).expect("the action has lines");
    let line = format!("  (Address: {})", hex::encode(passkey.public_key()));
    assert!(text.lines().any(|found| found == line));
}
