//! Key packages: contract of identities, section 7.

use bytes::Bytes;
use openmls::prelude::{KeyPackageIn, tls_codec::Deserialize};
use proptest::{
    prelude::*,
    sample::{Index, select},
};
use prost::Message;
use xmtp_fixtures::{KeyPackageBuilder, envelope, extension_type, signers::Installation};
use xmtp_protocol::{
    Content, KeyPackageError, ParseError, ParsedEnvelope, TopicError, TopicKind, check_key_package,
    proto::xmtp::backend::v1::{ClientEnvelope, KeyPackage},
};

use crate::data::{
    KeyPackageVerdict, crafted_key_packages, key_package, parse_error, parsed, recorded_envelopes,
};

/// A time in the lifetime of every builder's package.
const NOW: u64 = 1_800_000_000;

/// The verdict on a package that is changed before it is signed.
fn verdict(change: impl FnOnce(&mut KeyPackageBuilder<'_>)) -> Result<(), KeyPackageError> {
    check_key_package(&changed(change), NOW)
}

fn changed(change: impl FnOnce(&mut KeyPackageBuilder<'_>)) -> Vec<u8> {
    let phone = Installation::new("phone");
    let mut builder = KeyPackageBuilder::new(&phone, &"ab".repeat(32));
    change(&mut builder);
    builder.tls()
}

fn malformed(change: impl FnOnce(&mut KeyPackageBuilder<'_>)) -> bool {
    let tls = changed(change);
    let is_malformed = check_key_package(&tls, NOW) == Err(KeyPackageError::Malformed);
    let error = parse_error(key_package(tls));
    assert_eq!(is_malformed, error == Some(ParseError::KeyPackage));
    is_malformed
}

#[test]
fn join_007_crafted_key_packages_have_their_verdicts() {
    for case in crafted_key_packages() {
        let parses = ParsedEnvelope::parse(key_package(case.key_package.clone())).is_ok();
        let verdict = check_key_package(&case.key_package, NOW);
        match case.expected {
            KeyPackageVerdict::Accepted => assert_eq!(verdict, Ok(()), "{}", case.name),
            KeyPackageVerdict::Invalid => {
                assert!(parses, "{}", case.name);
                assert!(verdict.is_err(), "{}", case.name);
            }
            KeyPackageVerdict::Malformed => assert!(!parses, "{}", case.name),
            KeyPackageVerdict::Either => {}
        }
    }
}

#[test]
fn join_008_recorded_key_packages_are_valid_in_their_lifetime_alone() {
    /// Twelve weeks and the hour before.
    const LIFETIME_SECONDS: u64 = 84 * 24 * 3600 + 3600;
    /// A time at which all of them were valid.
    const RECORDED: u64 = 1_796_000_000;
    let mut packages = 0;
    for recorded in recorded_envelopes() {
        let envelope = ClientEnvelope::decode(&recorded.envelope[..]).expect("it decodes");
        let Content::KeyPackage { tls } = parsed(envelope).content else {
            continue;
        };
        let is_valid = |now: &u64| check_key_package(&tls, *now) == Ok(());
        assert!(is_valid(&RECORDED), "{}", recorded.source);
        let first = first_where(RECORDED - LIFETIME_SECONDS, RECORDED, is_valid);
        let end = first_where(RECORDED, RECORDED + LIFETIME_SECONDS, |now| !is_valid(now));
        assert_eq!(end - first, LIFETIME_SECONDS, "{}", recorded.source);
        for outside in [first - 1, end] {
            let verdict = check_key_package(&tls, outside);
            assert_eq!(
                verdict,
                Err(KeyPackageError::Lifetime),
                "{}",
                recorded.source
            );
        }
        packages += 1;
    }
    assert!(packages > 5, "{packages} packages were checked");
}

/// The least number in a range for which something holds, if it then holds for all that follow.
fn first_where(mut low: u64, mut high: u64, holds: impl Fn(&u64) -> bool) -> u64 {
    while low < high {
        let middle = low.midpoint(high);
        if holds(&middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

#[test]
fn join_008_a_package_is_valid_from_not_before_until_before_not_after() {
    let tls = changed(|package| (package.not_before, package.not_after) = (100, 200));
    let expected = [
        (99, false),
        (100, true),
        (199, true),
        (200, false),
        (201, false),
    ];
    for (now, is_valid) in expected {
        let verdict = check_key_package(&tls, now);
        assert_eq!(
            verdict,
            if is_valid {
                Ok(())
            } else {
                Err(KeyPackageError::Lifetime)
            }
        );
    }
    for (not_before, not_after) in [(200, 100), (100, 100)] {
        let tls = changed(|package| {
            (package.not_before, package.not_after) = (not_before, not_after);
        });
        for now in [99, 100, 150, 200] {
            assert_eq!(check_key_package(&tls, now), Err(KeyPackageError::Lifetime));
        }
    }
}

#[test]
fn join_007_the_leaf_node_is_of_a_key_package() {
    for source in [2, 3] {
        let verdict = verdict(|package| package.leaf_node_source = source);
        assert_eq!(verdict, Err(KeyPackageError::LeafNodeSource));
    }
    assert!(malformed(|package| package.leaf_node_source = 0));
    assert!(malformed(|package| package.leaf_node_source = 4));
}

#[test]
fn join_007_both_signatures_verify_under_the_signature_key() {
    let tls = changed(|_| {});
    assert_eq!(check_key_package(&tls, NOW), Ok(()));
    let mut damaged = tls.clone();
    *damaged.last_mut().expect("a package") ^= 1;
    assert_eq!(
        check_key_package(&damaged, NOW),
        Err(KeyPackageError::Signature)
    );
    let verdict = verdict(|package| {
        package.signature_key = Installation::new("other").public_key().to_vec();
    });
    assert_eq!(verdict, Err(KeyPackageError::LeafNodeSignature));
}

#[test]
fn join_007_a_key_of_small_order_signs_nothing() {
    // The neutral element as key and as R, and zero as S: without the strict form this is a signature of
    // whatever it stands beside.
    let neutral = [&[1][..], &[0; 31]].concat();
    let verdict = verdict(|package| {
        package.signature_key = neutral.clone();
        package.signature = Some([&neutral[..], &[0; 32]].concat());
    });
    assert_eq!(verdict, Err(KeyPackageError::LeafNodeSignature));
}

#[test]
fn join_007_the_version_is_mls_1_0() {
    for version in [0, 2, u16::MAX] {
        let verdict = verdict(|package| package.version = version);
        assert_eq!(verdict, Err(KeyPackageError::Version));
    }
}

#[test]
fn join_007_the_init_key_is_not_the_encryption_key() {
    let verdict = verdict(|package| package.init_key = package.encryption_key.clone());
    assert_eq!(verdict, Err(KeyPackageError::InitKey));
}

#[test]
fn join_007_extensions_of_the_package_are_among_the_capabilities() {
    let unsupported = Err(KeyPackageError::UnsupportedExtension);
    for missing in [
        extension_type::LAST_RESORT,
        extension_type::WELCOME_WRAPPER_KEY,
    ] {
        let verdict = verdict(|package| package.capable_of.retain(|kind| *kind != missing));
        assert_eq!(verdict, unsupported);
    }
    let with_extension = |extension: u16, is_listed: bool| {
        verdict(|package| {
            package.extensions.push((extension, vec![0]));
            if is_listed {
                package.capable_of.push(extension);
            }
        })
    };
    // A GREASE value is an extension like any other.
    for extension in [6, 0x0a0a, 0xf000, 0xffff] {
        assert_eq!(with_extension(extension, true), Ok(()));
        assert_eq!(with_extension(extension, false), unsupported);
    }
    // Those of RFC 9420 need not be listed.
    let external_pub = verdict(|package| package.extensions.push((4, vec![1, 0])));
    assert_eq!(external_pub, Ok(()));
}

#[test]
fn join_004_the_credential_is_basic_and_holds_an_mls_credential() {
    let invalid = Err(KeyPackageError::Credential);
    for credential_type in [0, 2, 0xf123] {
        assert_eq!(
            verdict(|package| package.credential_type = credential_type),
            invalid
        );
    }
    for identity in [&b"\xff"[..], b"\x08\x01", b"\x0a\x01\xff", b"\x0a\x02a"] {
        assert_eq!(
            verdict(|package| package.identity = identity.to_vec()),
            invalid
        );
    }
    // An unknown field, and nothing at all.
    for identity in [&b"\x0a\x01a\x4a\x01b"[..], b""] {
        assert_eq!(
            verdict(|package| package.identity = identity.to_vec()),
            Ok(())
        );
    }
}

#[test]
fn api_235_what_is_not_checked_is_accepted() {
    let accepted = |name: &str, change: fn(&mut KeyPackageBuilder<'_>)| {
        assert_eq!(verdict(change), Ok(()), "{name}");
    };
    accepted("an inbox id that is none", |package| {
        package.identity = b"\x0a\x04none".to_vec();
    });
    accepted("suite 1", |package| package.cipher_suite = 1);
    accepted("X-Wing", |package| package.cipher_suite = 0x004D);
    accepted("capabilities without the leaf's extension", |package| {
        package
            .capable_of
            .retain(|kind| *kind != extension_type::APPLICATION_ID);
    });
    accepted("capabilities without suites and credentials", |package| {
        package.cipher_suites.clear();
        package.credentials.clear();
    });
    accepted("a lifetime without an end", |package| {
        (package.not_before, package.not_after) = (0, u64::MAX);
    });
    accepted("no last resort", |package| {
        package.extensions.clear();
        package.capable_of.clear();
    });
    accepted("an unknown extension of the leaf", |package| {
        package.leaf_extensions.push((0xf000, vec![1, 2, 3]));
    });
}

#[test]
fn topic_002_the_key_of_another_scheme_gives_no_topic() {
    let p_256 = changed(|package| {
        package.cipher_suite = 2;
        package.signature_key = vec![4; 65];
    });
    let unroutable = Some(ParseError::Topic(TopicError::IdentifierLength));
    assert_eq!(parse_error(key_package(p_256)), unroutable);
    // With a key of the right length it parses, and fails on the signature.
    for suite in [2, 4, 5, 6, 7] {
        let verdict = verdict(|package| package.cipher_suite = suite);
        assert_eq!(verdict, Err(KeyPackageError::LeafNodeSignature));
    }
}

#[test]
fn topic_001_a_package_is_stored_under_its_signature_key() {
    let phone = Installation::new("phone");
    let package = KeyPackageBuilder::new(&phone, "inbox").build();
    let topic = parsed(envelope(package)).topic;
    assert_eq!(topic.kind(), TopicKind::KeyPackage);
    assert_eq!(topic.identifier(), phone.public_key());
}

#[test]
fn api_230_bytes_that_are_no_key_package_are_malformed() {
    for suite in [0, 8, 0x1234] {
        assert!(
            malformed(|package| package.cipher_suite = suite),
            "suite {suite}"
        );
    }
    assert!(
        malformed(|package| package.extensions.push((0xff03, vec![]))),
        "twice"
    );
    assert!(malformed(|package| {
        let again = package.leaf_extensions[0].clone();
        package.leaf_extensions.push(again);
    }));
    for (name, extension, data) in [
        ("last resort with data", 0x000a, &[0][..]),
        ("application id without a vector", 1, &[]),
        ("application id and more", 1, &[0, 0]),
        ("required capabilities of half a number", 3, &[1, 0, 0, 0]),
        ("external key without a vector", 4, &[]),
        ("external sender without a credential", 5, &[1, 0]),
        ("ratchet tree of an unknown node", 2, &[2, 1, 3]),
    ] {
        let is_malformed = malformed(|package| {
            package.extensions = vec![(extension, data.to_vec())];
        });
        assert!(is_malformed, "{name}");
    }
    // A tree of a blank and a parent node, which has no place there and yet decodes.
    let tree = [10, 0, 1, 2, 0, 0, 4, 0, 0, 0];
    assert!(!malformed(|package| package
        .extensions
        .push((2, [&tree[..], &[1]].concat()))));
}

/// Whether openmls decodes a package.
fn openmls_decodes(tls: &[u8]) -> bool {
    KeyPackageIn::tls_deserialize_exact(tls).is_ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// What openmls decodes decodes here, and the other way around, but for what the contract lists.
    #[test]
    fn damaged_key_packages_decode_as_openmls_decodes_them(
        tls in select(
            crafted_key_packages()
                .into_iter()
                .map(|case| case.key_package)
                .collect::<Vec<_>>(),
        ),
        overwritten in prop::collection::vec((any::<Index>(), any::<u8>()), 1..4),
    ) {
        let mut tls = tls;
        for (at, byte) in overwritten {
            if !tls.is_empty() {
                let at = at.index(tls.len());
                tls[at] = byte;
            }
        }
        let ours = check_key_package(&tls, NOW) != Err(KeyPackageError::Malformed);
        if ours != openmls_decodes(&tls) {
            prop_assert!(is_known_difference(&tls, ours), "ours: {ours}, {}", hex::encode(&tls));
        }
    }

    #[test]
    fn arbitrary_bytes_are_no_panic_as_a_key_package(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        let payload = KeyPackage { key_package_tls_serialized: Bytes::from(bytes.clone()) };
        let parses = ParsedEnvelope::parse(envelope(payload)).is_ok();
        if check_key_package(&bytes, NOW).is_ok() {
            prop_assert!(parses);
        }
    }
}

/// Draft suites, which openmls knows, and extensions in leaf nodes, which openmls picks from.
fn is_known_difference(tls: &[u8], ours: bool) -> bool {
    let suite = tls
        .get(2..4)
        .map(|suite| u16::from_be_bytes([suite[0], suite[1]]));
    let is_draft_suite = suite.is_some_and(|suite| suite > 7 && suite != 0x004D);
    is_draft_suite || ours
}
