//! No bytes make a decoder panic, and what parses keeps its meaning when it is read back.

use bytes::Bytes;
use proptest::{
    prelude::*,
    sample::{Index, select},
};
use prost::Message;
use xmtp_protocol::{
    ParsedEnvelope, Topic,
    proto::xmtp::{
        backend::v1::{ClientEnvelope, client_envelope::Payload, welcome_message::Version},
        identity::associations::IdentityUpdate,
    },
};

use crate::data::{
    commit_log_entry, crafted_group_messages, crafted_key_packages, envelope, group_message,
    inline_welcome, key_package, recorded_envelopes,
};

/// Parses, and checks that the stored bytes parse to the same.
fn parse(envelope: ClientEnvelope) {
    if let Ok(first) = ParsedEnvelope::parse(envelope) {
        let stored = ClientEnvelope::decode(first.payload.clone()).expect("stored bytes decode");
        let again = ParsedEnvelope::parse(stored).expect("stored bytes parse");
        assert_eq!(again.payload, first.payload);
        assert_eq!(again.hash, first.hash);
        assert_eq!(again.topic, first.topic);
        assert_eq!(again.is_commit_or_proposal, first.is_commit_or_proposal);
        assert_eq!(again.push_eligible, first.push_eligible);
        assert_eq!(again.sender_hmac, first.sender_hmac);
    }
}

/// Bytes that something once parsed, and the damage done to them.
#[derive(Debug)]
struct Damage {
    overwritten: Vec<(Index, u8)>,
    inserted: Option<(Index, Vec<u8>)>,
    cut: Option<Index>,
}

impl Damage {
    fn any() -> impl Strategy<Value = Self> {
        let overwritten = prop::collection::vec((any::<Index>(), any::<u8>()), 0..8);
        let inserted =
            prop::option::of((any::<Index>(), prop::collection::vec(any::<u8>(), 0..16)));
        let cut = prop::option::weighted(0.3, any::<Index>());
        (overwritten, inserted, cut).prop_map(|(overwritten, inserted, cut)| Self {
            overwritten,
            inserted,
            cut,
        })
    }

    fn done_to(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        if !bytes.is_empty() {
            for (at, byte) in &self.overwritten {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
        }
        if let Some((at, inserted)) = &self.inserted {
            let at = at.index(bytes.len() + 1);
            bytes.splice(at..at, inserted.iter().copied());
        }
        if let Some(cut) = self.cut {
            bytes.truncate(cut.index(bytes.len() + 1));
        }
        bytes
    }
}

fn recorded() -> impl Strategy<Value = Vec<u8>> {
    select(
        recorded_envelopes()
            .into_iter()
            .map(|recorded| recorded.envelope)
            .collect::<Vec<_>>(),
    )
}

/// The same envelope with damage inside its payload, so that it reaches the payload's decoder.
fn damaged_inside(envelope: &[u8], damage: &Damage) -> ClientEnvelope {
    let mut envelope = ClientEnvelope::decode(envelope).expect("a recorded envelope decodes");
    let hurt = |bytes: &mut Bytes| *bytes = damage.done_to(bytes.to_vec()).into();
    match envelope.payload.as_mut().expect("a recorded payload") {
        Payload::GroupMessage(message) => hurt(&mut message.data),
        Payload::KeyPackage(package) => hurt(&mut package.key_package_tls_serialized),
        Payload::CommitLogEntry(entry) => hurt(&mut entry.serialized_commit_log_entry),
        Payload::WelcomeMessage(welcome) => {
            match welcome.version.as_mut().expect("a recorded version") {
                Version::V1(inline) => hurt(&mut inline.installation_key),
                Version::WelcomePointer(pointer) => hurt(&mut pointer.installation_key),
            }
        }
        Payload::IdentityUpdate(update) => {
            let bytes = damage.done_to(std::mem::take(&mut update.inbox_id).into_bytes());
            update.inbox_id = String::from_utf8_lossy(&bytes).into_owned();
        }
    }
    envelope
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn arbitrary_bytes_are_no_panic_as_an_envelope(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        if let Ok(envelope) = ClientEnvelope::decode(&bytes[..]) {
            parse(envelope);
        }
    }

    #[test]
    fn arbitrary_bytes_are_no_panic_as_a_payload(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        parse(group_message(bytes.clone()));
        parse(key_package(bytes.clone()));
        parse(commit_log_entry(bytes.clone()));
        parse(inline_welcome(bytes.clone()));
        let inbox_id = String::from_utf8_lossy(&bytes).into_owned();
        parse(envelope(Payload::IdentityUpdate(IdentityUpdate { inbox_id, ..Default::default() })));
    }

    #[test]
    fn arbitrary_bytes_after_an_mls_header_are_no_panic(
        wire_format in 0_u8..8,
        bytes in prop::collection::vec(any::<u8>(), 0..512),
    ) {
        parse(group_message([&[0, 1, 0, wire_format][..], &bytes].concat()));
        parse(key_package([&[0, 1, 0, 3][..], &bytes].concat()));
    }

    #[test]
    fn damaged_recordings_are_no_panic(envelope in recorded(), damage in Damage::any()) {
        if let Ok(envelope) = ClientEnvelope::decode(&damage.done_to(envelope.clone())[..]) {
            parse(envelope);
        }
        parse(damaged_inside(&envelope, &damage));
    }

    #[test]
    fn damaged_crafted_mls_messages_are_no_panic(
        data in select(crafted_group_messages().into_iter().map(|case| case.data).collect::<Vec<_>>()),
        package in select(crafted_key_packages().into_iter().map(|case| case.key_package).collect::<Vec<_>>()),
        damage in Damage::any(),
    ) {
        parse(group_message(damage.done_to(data)));
        parse(key_package(damage.done_to(package)));
    }

    #[test]
    fn topic_003_a_topic_that_parses_keeps_its_bytes(bytes in prop::collection::vec(any::<u8>(), 0..40), kind in 0_u8..8) {
        let bytes = [vec![kind], bytes].concat();
        if let Ok(topic) = Topic::parse(&bytes) {
            prop_assert_eq!(topic.as_bytes(), &bytes[..]);
            prop_assert_eq!(Topic::new(topic.kind(), topic.identifier()), Ok(topic));
        }
    }
}
