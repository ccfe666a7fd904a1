//! Envelopes for tests, of every kind, without a client: made up, or recorded from a published one.

#![expect(
    clippy::missing_panics_doc,
    reason = "everything in this crate panics instead of failing"
)]

use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{BufMut, Bytes};
use prost::Message;
use serde::Deserialize;
use tls_codec::{Serialize, VLByteSlice};
use xmtp_fixtures::signers::{Installation, Wallet};
use xmtp_fixtures::{
    IdentityUpdateBuilder, KeyPackageBuilder, envelope, inbox_id_of, registration,
};
use xmtp_protocol::proto::xmtp::backend::v1::client_envelope::Payload;
use xmtp_protocol::proto::xmtp::backend::v1::{
    ClientEnvelope, CommitLogEntry, GroupMessage, WelcomeMessage, welcome_message,
};
use xmtp_protocol::proto::xmtp::mls::message_contents::PlaintextCommitLogEntry;
use xmtp_protocol::{Content, ParsedEnvelope, Topic, TopicKind, check_key_package};

/// MLS content types (RFC 9420, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentType {
    /// An application message.
    Application = 1,
    /// A proposal.
    Proposal = 2,
    /// A commit.
    Commit = 3,
}

/// The topic of `kind` whose identifier is `identifier` repeated; of identity updates that of the inbox
/// of [`identity_update`].
pub fn topic(kind: TopicKind, identifier: u8) -> Topic {
    let identifier = match kind {
        TopicKind::IdentityUpdate => {
            hex::decode(inbox_id_of(&owner(identifier), 0)).expect("an inbox id is hex")
        }
        _ => vec![identifier; kind.identifier_len()],
    };
    Topic::new(kind, &identifier).expect("the length is the kind's own")
}

/// An application message on the group whose id is `group` repeated. Different `text`, different hash.
pub fn group_message(group: u8, text: impl AsRef<[u8]>) -> ClientEnvelope {
    mls_message(&[group; 16], ContentType::Application, text.as_ref())
}

/// A message of any content type on any group id, also one of a wrong length.
pub fn mls_message(
    group_id: &[u8],
    content_type: ContentType,
    ciphertext: &[u8],
) -> ClientEnvelope {
    let message = GroupMessage {
        data: private_message(group_id, content_type, ciphertext),
        sender_hmac: Bytes::new(),
        should_push: false,
    };
    ClientEnvelope {
        payload: Some(Payload::GroupMessage(message)),
    }
}

/// An `MLSMessage` with a `PrivateMessage` body: version 1, wire format 2.
fn private_message(group_id: &[u8], content_type: ContentType, ciphertext: &[u8]) -> Bytes {
    let mut data = Vec::with_capacity(64 + ciphertext.len());
    data.put_u16(1);
    data.put_u16(2);
    put_vector(&mut data, group_id);
    data.put_u64(7);
    data.put_u8(content_type as u8);
    put_vector(&mut data, b"");
    put_vector(&mut data, b"sender data");
    put_vector(&mut data, ciphertext);
    data.into()
}

/// A vector with its length (RFC 9420, section 2.1.2).
fn put_vector(data: &mut Vec<u8>, bytes: &[u8]) {
    VLByteSlice(bytes)
        .tls_serialize(data)
        .expect("a test payload is short");
}

/// A welcome to the installation whose key is `installation` repeated.
pub fn welcome(installation: u8, text: impl AsRef<[u8]>) -> ClientEnvelope {
    let inline = welcome_message::V1 {
        installation_key: vec![installation; 32].into(),
        data: Bytes::copy_from_slice(text.as_ref()),
        ..Default::default()
    };
    let welcome = WelcomeMessage {
        version: Some(welcome_message::Version::V1(inline)),
    };
    ClientEnvelope {
        payload: Some(Payload::WelcomeMessage(welcome)),
    }
}

/// A signed update of the inbox that belongs to [`owner`]: number 1 opens it, every other number adds an
/// installation of its own to it, in any order.
pub fn identity_update(inbox: u8, number: u64) -> ClientEnvelope {
    let owner = owner(inbox);
    let installation = Installation::new(&format!("of {inbox}, {number}"));
    envelope(if number == 1 {
        registration(&owner, 0, &installation)
    } else {
        IdentityUpdateBuilder::new(&inbox_id_of(&owner, 0))
            .add(&owner, &installation)
            .sign()
    })
}

/// The wallet that opens an inbox of tests.
pub fn owner(inbox: u8) -> Wallet {
    Wallet::new(&format!("owner of {inbox}"))
}

/// An entry of the commit log of the group whose id is `group` repeated.
pub fn commit_log_entry(group: u8, commit_sequence_id: u64) -> ClientEnvelope {
    let entry = PlaintextCommitLogEntry {
        group_id: vec![group; 16].into(),
        commit_sequence_id,
        ..Default::default()
    };
    let entry = CommitLogEntry {
        serialized_commit_log_entry: entry.encode_to_vec().into(),
        signature: None,
    };
    ClientEnvelope {
        payload: Some(Payload::CommitLogEntry(entry)),
    }
}

/// An envelope that a published client sent, and what the server must make of it.
#[derive(Clone, Debug, Deserialize)]
pub struct Recorded {
    /// Payload kind, as the oneof member is called.
    pub kind: String,
    /// Expected topic, hex.
    pub topic: String,
    /// Expected hash, hex.
    pub hash: String,
    /// Canonical encoding of the envelope, hex.
    pub envelope: String,
    /// Expected flag.
    pub is_commit_or_proposal: bool,
    /// Whether it is signed by a contract wallet.
    #[serde(default)]
    pub needs_chain: bool,
}

impl Recorded {
    /// The envelope.
    pub fn decode(&self) -> ClientEnvelope {
        let bytes = hex::decode(&self.envelope).expect("recorded envelopes are hex");
        ClientEnvelope::decode(&bytes[..]).expect("recorded envelopes decode")
    }

    /// Whether a server without chains takes it today: key packages expire 84 days after the recording.
    pub fn is_valid(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.expect("after 1970").as_secs();
        let parsed = ParsedEnvelope::parse(self.decode()).expect("recorded envelopes parse");
        match parsed.content {
            Content::KeyPackage { tls } => check_key_package(&tls, now).is_ok(),
            _ => !self.needs_chain,
        }
    }
}

/// Every recorded envelope; identity updates of one inbox in their order.
pub fn recorded() -> &'static [Recorded] {
    static RECORDED: LazyLock<Vec<Recorded>> = LazyLock::new(|| {
        include_str!("../../data/recorded-envelopes.jsonl")
            .lines()
            .map(|line| serde_json::from_str(line).expect("a recorded envelope is one JSON object"))
            .collect()
    });
    &RECORDED
}

/// A key package that is valid until 2100.
pub fn key_package() -> ClientEnvelope {
    envelope(KeyPackageBuilder::new(&installation(), &inbox_id_of(&owner(1), 0)).build())
}

/// The installation of [`key_package`].
pub fn installation() -> Installation {
    Installation::new("of a key package")
}
