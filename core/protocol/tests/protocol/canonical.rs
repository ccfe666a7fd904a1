//! The canonical encoding and its hash: API-211.

use bytes::Bytes;
use prost::{
    Message,
    encoding::{WireType, encode_key, encode_varint},
};
use sha2::{Digest, Sha256};
use xmtp_protocol::{
    ParsedEnvelope, canonical_len,
    proto::xmtp::{
        backend::v1::{ClientEnvelope, GroupMessage, client_envelope::Payload, welcome_message},
        identity::associations::{
            AddAssociation, IdentityAction, IdentityUpdate, MemberIdentifier, identity_action,
            member_identifier,
        },
    },
};

use crate::data::{envelope, group_message, group_message_data, parsed, welcome};

// Field numbers.
const GROUP_MESSAGE: u32 = 1;
const WELCOME_MESSAGE: u32 = 2;
const IDENTITY_UPDATE: u32 = 4;
const DATA: u32 = 1;
const SENDER_HMAC: u32 = 2;
const SHOULD_PUSH: u32 = 3;
const UNKNOWN: u32 = 99;

fn bytes_field(number: u32, bytes: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    encode_key(number, WireType::LengthDelimited, &mut field);
    encode_varint(bytes.len() as u64, &mut field);
    [&field, bytes].concat()
}

fn varint_field(number: u32, varint: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    encode_key(number, WireType::Varint, &mut field);
    [&field, varint].concat()
}

fn parsed_bytes(wire: &[u8]) -> ParsedEnvelope {
    parsed(ClientEnvelope::decode(wire).expect("an envelope that decodes"))
}

fn data() -> Vec<u8> {
    group_message_data("private_commit")
}

/// A group message with every field set, in its canonical form.
fn canonical() -> Vec<u8> {
    let fields = [
        bytes_field(DATA, &data()),
        bytes_field(SENDER_HMAC, &[7; 32]),
        varint_field(SHOULD_PUSH, &[1]),
    ];
    bytes_field(GROUP_MESSAGE, &fields.concat())
}

#[test]
fn api_211_canonical_bytes_are_kept_and_hashed_with_sha_256() {
    let parsed = parsed_bytes(&canonical());
    assert_eq!(parsed.payload, canonical());
    assert_eq!(parsed.hash.as_bytes()[..], Sha256::digest(canonical())[..]);
}

#[test]
fn api_211_reordered_fields_have_one_hash() {
    let fields = [
        varint_field(SHOULD_PUSH, &[1]),
        bytes_field(DATA, &data()),
        bytes_field(SENDER_HMAC, &[7; 32]),
    ];
    assert_eq!(
        parsed_bytes(&bytes_field(GROUP_MESSAGE, &fields.concat())).payload,
        canonical()
    );
}

#[test]
fn api_211_unknown_fields_are_neither_stored_nor_hashed() {
    let fields = [
        bytes_field(UNKNOWN, b"unknown"),
        bytes_field(DATA, &data()),
        varint_field(UNKNOWN, &[5]),
        bytes_field(SENDER_HMAC, &[7; 32]),
        varint_field(SHOULD_PUSH, &[1]),
    ];
    let wire = [
        bytes_field(GROUP_MESSAGE, &fields.concat()),
        varint_field(UNKNOWN, &[5]),
    ]
    .concat();
    assert_eq!(parsed_bytes(&wire).payload, canonical());
}

#[test]
fn api_211_the_last_value_of_a_repeated_singular_field_wins() {
    let fields = [
        bytes_field(DATA, b"first"),
        bytes_field(DATA, &data()),
        bytes_field(SENDER_HMAC, &[1; 32]),
        bytes_field(SENDER_HMAC, &[7; 32]),
        varint_field(SHOULD_PUSH, &[0]),
        varint_field(SHOULD_PUSH, &[1]),
    ];
    assert_eq!(
        parsed_bytes(&bytes_field(GROUP_MESSAGE, &fields.concat())).payload,
        canonical()
    );
}

#[test]
fn api_211_repeated_singular_messages_merge() {
    let first = [
        bytes_field(DATA, &data()),
        bytes_field(SENDER_HMAC, &[1; 32]),
    ]
    .concat();
    let second = [
        bytes_field(SENDER_HMAC, &[7; 32]),
        varint_field(SHOULD_PUSH, &[1]),
    ]
    .concat();
    let wire = [
        bytes_field(GROUP_MESSAGE, &first),
        bytes_field(GROUP_MESSAGE, &second),
    ]
    .concat();
    assert_eq!(parsed_bytes(&wire).payload, canonical());
}

#[test]
fn api_211_the_last_member_of_a_oneof_wins() {
    let update = IdentityUpdate {
        inbox_id: "ab".repeat(32),
        ..Default::default()
    };
    let wire = [
        bytes_field(IDENTITY_UPDATE, &update.encode_to_vec()),
        canonical(),
    ]
    .concat();
    assert_eq!(parsed_bytes(&wire).payload, canonical());
}

#[test]
fn api_211_implicit_fields_are_left_out_at_zero() {
    let fields = [
        bytes_field(DATA, &data()),
        bytes_field(SENDER_HMAC, b""),
        varint_field(SHOULD_PUSH, &[0]),
    ]
    .concat();
    let bare = bytes_field(GROUP_MESSAGE, &bytes_field(DATA, &data()));
    assert_eq!(
        parsed_bytes(&bytes_field(GROUP_MESSAGE, &fields)).payload,
        bare
    );
}

#[test]
fn api_211_varints_are_minimal() {
    let padded = [
        bytes_field(DATA, &data()),
        bytes_field(SENDER_HMAC, &[7; 32]),
        varint_field(SHOULD_PUSH, &[0x81, 0x80, 0x00]),
    ];
    assert_eq!(
        parsed_bytes(&bytes_field(GROUP_MESSAGE, &padded.concat())).payload,
        canonical()
    );
}

#[test]
fn api_211_a_oneof_member_is_written_even_when_empty() {
    let update_of = |kind| {
        let new_member_identifier = Some(MemberIdentifier { kind });
        let add = AddAssociation {
            new_member_identifier,
            ..Default::default()
        };
        let actions = vec![IdentityAction {
            kind: Some(identity_action::Kind::Add(add)),
        }];
        let inbox_id = "ab".repeat(32);
        parsed(envelope(Payload::IdentityUpdate(IdentityUpdate {
            actions,
            inbox_id,
            ..Default::default()
        })))
    };
    let unset = update_of(None);
    let empty = update_of(Some(member_identifier::Kind::InstallationPublicKey(
        Bytes::new(),
    )));
    assert_eq!(empty.payload.len(), unset.payload.len() + 2);
    assert_ne!(empty.hash, unset.hash);
}

#[test]
fn api_211_a_five_byte_negative_enum_grows_to_ten_bytes() {
    const V1: u32 = 1;
    const INSTALLATION_KEY: u32 = 1;
    const WRAPPER_ALGORITHM: u32 = 4;
    let five_bytes = varint_field(WRAPPER_ALGORITHM, &[0xff, 0xff, 0xff, 0xff, 0x0f]);
    let ten_bytes = varint_field(
        WRAPPER_ALGORITHM,
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    );
    let wire = |algorithm: Vec<u8>| {
        let v1 = [bytes_field(INSTALLATION_KEY, &[7; 32]), algorithm].concat();
        bytes_field(WELCOME_MESSAGE, &bytes_field(V1, &v1))
    };

    let sent = wire(five_bytes);
    let decoded = ClientEnvelope::decode(&sent[..]).expect("an envelope that decodes");
    assert_eq!(canonical_len(&decoded), sent.len() + 5);
    assert_eq!(parsed(decoded).payload, wire(ten_bytes));
}

#[test]
fn api_211_bytes_after_the_mls_message_change_the_hash_alone() {
    let exact = parsed(group_message(data()));
    let longer = parsed(group_message([&data()[..], &[0xaa]].concat()));
    assert_ne!(exact.hash, longer.hash);
    assert_eq!(exact.topic, longer.topic);
    assert_eq!(exact.is_commit_or_proposal, longer.is_commit_or_proposal);
    assert!(
        longer.payload.ends_with(&[0xaa]),
        "trailing bytes are stored (ARC-092)"
    );
}

#[test]
fn api_211_bytes_fields_come_back_as_they_were() {
    let sent = GroupMessage {
        data: data().into(),
        sender_hmac: vec![0; 31].into(),
        should_push: true,
    };
    let stored = parsed(envelope(Payload::GroupMessage(sent.clone()))).payload;
    assert!(
        ClientEnvelope::decode(stored).expect("stored bytes decode")
            == envelope(Payload::GroupMessage(sent))
    );
}

#[test]
fn canonical_len_is_the_length_of_the_canonical_bytes() {
    let v1 = welcome_message::V1 {
        installation_key: vec![7; 32].into(),
        wrapper_algorithm: -1,
        ..Default::default()
    };
    for envelope in [
        group_message(data()),
        welcome(Some(welcome_message::Version::V1(v1))),
    ] {
        assert_eq!(canonical_len(&envelope), parsed(envelope).payload.len());
    }
    assert_eq!(canonical_len(&ClientEnvelope::default()), 0);
}
