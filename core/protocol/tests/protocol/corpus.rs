//! The corpus of the fuzz targets, replayed.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

use prost::Message;
use xmtp_fixtures::fuzz::TARGETS;
use xmtp_protocol::{
    Content,
    proto::xmtp::{
        backend::v1::{ClientEnvelope, client_envelope::Payload},
        identity::associations::IdentityUpdate,
    },
};

use crate::data::{
    crafted_commit_log_entries, crafted_group_messages, crafted_identity_updates,
    crafted_key_packages, parsed, recorded_envelopes,
};

/// Inputs by the name of their target.
type Seeds = BTreeMap<&'static str, Vec<Vec<u8>>>;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

/// The updates of a log as the target reads them.
fn log<'a>(updates: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    updates
        .map(|update| IdentityUpdate::decode(update).expect("an update of the test data decodes"))
        .flat_map(|update| update.encode_length_delimited_to_vec())
        .collect()
}

/// What the corpus starts from: the shortest recording of each kind, and everything crafted.
fn seeds() -> Seeds {
    let mut seeds = Seeds::new();
    let mut recorded: BTreeMap<_, Vec<u8>> = BTreeMap::new();
    for envelope in recorded_envelopes() {
        let decoded = ClientEnvelope::decode(&envelope.envelope[..]).expect("it decodes");
        let topic = parsed(decoded).topic;
        let shortest = recorded
            .entry(topic.kind())
            .or_insert_with(|| envelope.envelope.clone());
        if envelope.envelope.len() < shortest.len() {
            *shortest = envelope.envelope;
        }
        seeds.insert("topic", vec![topic.as_bytes().to_vec()]);
    }
    for envelope in recorded.values() {
        let decoded = ClientEnvelope::decode(&envelope[..]).expect("it decodes");
        if let Content::KeyPackage { tls } = parsed(decoded.clone()).content {
            seeds.entry("key_package").or_default().push(tls.to_vec());
        }
        if let Some(Payload::GroupMessage(message)) = decoded.payload {
            seeds
                .entry("group_message")
                .or_default()
                .push(message.data.to_vec());
        }
    }
    seeds.insert("envelope", recorded.into_values().collect());
    let messages = crafted_group_messages().into_iter().map(|case| case.data);
    seeds.entry("group_message").or_default().extend(messages);
    let packages = crafted_key_packages()
        .into_iter()
        .map(|case| case.key_package);
    seeds.entry("key_package").or_default().extend(packages);
    let entries = crafted_commit_log_entries()
        .into_iter()
        .map(|case| case.entry);
    seeds.insert("commit_log_entry", entries.collect());
    let logs = crafted_identity_updates().into_iter().map(|case| {
        let updates = case.history.iter().chain([&case.update]);
        log(updates.map(|update| &update.0[..]))
    });
    seeds.insert("identity_log", logs.collect());
    let accounts = [
        "eip155:1:0xab16a96D359eC26a11e2C2b3d8f8B8942d5Bfcdb",
        "hedera:mainnet:0.0.1-z",
    ];
    seeds.insert(
        "account_id",
        accounts.map(|account| account.as_bytes().to_vec()).into(),
    );
    seeds
}

/// The inputs of a target in the corpus.
fn inputs(target: &str) -> Vec<Vec<u8>> {
    let files = fs::read_dir(corpus().join(target)).expect("every target has a corpus");
    files
        .map(|file| fs::read(file.expect("a file of the corpus").path()).expect("it can be read"))
        .collect()
}

#[test]
fn the_corpus_of_every_fuzz_target_is_no_panic() {
    if env::var_os("XMTP_SEED_FUZZ_CORPUS").is_some() {
        for (target, inputs) in seeds() {
            let folder = corpus().join(target);
            fs::create_dir_all(&folder).expect("the folder can be made");
            for (number, input) in inputs.into_iter().enumerate() {
                fs::write(folder.join(format!("seed-{number:03}")), input)
                    .expect("it can be written");
            }
        }
    }
    for (target, run) in TARGETS {
        let inputs = inputs(target);
        assert!(!inputs.is_empty(), "{target}");
        for input in &inputs {
            run(input);
        }
    }
}

#[test]
fn the_corpus_holds_what_it_is_seeded_from() {
    for (target, seeds) in seeds() {
        let inputs = inputs(target);
        assert!(seeds.iter().all(|seed| inputs.contains(seed)), "{target}");
    }
}

#[test]
fn every_fuzz_target_has_its_file() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
    let mut files: Vec<String> = fs::read_dir(folder)
        .expect("the targets are there")
        .map(|file| {
            file.expect("a target")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    files.sort_unstable();
    let mut names = TARGETS.map(|(name, _)| format!("{name}.rs"));
    names.sort_unstable();
    assert_eq!(files, names);
}
