//! A full log of an inbox and one update more, judged, against the signature libraries alone on the same
//! signatures. Run by `ci/bench`.
//!
//! What the libraries get is prepared: keys, hashes and signatures are decoded before the clock starts. The
//! rounds of both sides alternate, and medians are compared. The exit status is 1 when judging costs more
//! than it may.

#![expect(clippy::print_stdout, reason = "figures are what a benchmark is for")]

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ed25519_dalek::{Signature as Ed25519Signature, VerifyingKey as Ed25519Key};
use k256::ecdsa::{RecoveryId, Signature as K256Signature, VerifyingKey as K256Key};
use p256::ecdsa::signature::hazmat::PrehashVerifier;
use p256::ecdsa::{Signature as P256Signature, VerifyingKey as P256Key};
use sha2::{Digest, Sha256, Sha512};
use xmtp_fixtures::signers::{Installation, Passkey, Signer, Wallet, personal_message_hash};
use xmtp_fixtures::{IdentityUpdateBuilder, block_on, envelope, inbox_id_of};
use xmtp_protocol::identity::signed_text;
use xmtp_protocol::proto::xmtp::identity::associations::{
    IdentityUpdate, Signature, identity_action::Kind, signature::Signature as SignatureKind,
};
use xmtp_protocol::{NetworkValidator, ParsedEnvelope, Validator};

/// Stored updates of the log (API-234).
const ENTRIES: usize = 256;
/// Rounds of each side, after one that warms up.
const ROUNDS: usize = 15;
/// The most that judging a signature may cost, in what the library takes for it.
const MOST_RATIO: f64 = 1.3;

fn main() -> ExitCode {
    let wallet = |name: usize| Box::new(Wallet::new(&name.to_string())) as Box<dyn Signer>;
    let installation = |name: usize| Box::new(Installation::new(&name.to_string())) as _;
    let passkey = |name: usize| Box::new(Passkey::new(&name.to_string())) as Box<dyn Signer>;
    println!("{ENTRIES} stored updates and one more, medians of {ROUNDS} rounds, per signature:");
    let ratios = [
        measure("wallets", &*wallet(ENTRIES), &wallet),
        measure("installations", &*wallet(ENTRIES), &installation),
        measure("passkeys", &*passkey(ENTRIES), &passkey),
    ];
    if ratios.iter().all(|ratio| *ratio <= MOST_RATIO) {
        ExitCode::SUCCESS
    } else {
        println!("judging may cost {MOST_RATIO} times the library");
        ExitCode::FAILURE
    }
}

/// Measures the log of an inbox whose owner adds one member in each update.
fn measure(name: &str, owner: &dyn Signer, member: &dyn Fn(usize) -> Box<dyn Signer>) -> f64 {
    let updates = log(owner, member);
    let (update, stored) = updates.split_last().expect("the log is not empty");
    let history: Vec<Bytes> = stored
        .iter()
        .map(|update| {
            let parsed = ParsedEnvelope::parse(envelope(update.clone()));
            parsed.expect("an update of the log parses").payload
        })
        .collect();
    let prepared: Vec<Prepared> = updates.iter().flat_map(Prepared::of).collect();
    let validator = NetworkValidator::new(|| 0);

    let judge = || {
        let verdict = block_on(validator.identity_update(&history, update));
        assert!(black_box(verdict).is_ok());
    };
    let verify = || {
        assert!(
            prepared
                .iter()
                .all(|signature| black_box(signature.verify()))
        );
    };
    let (ours, theirs) = alternate(judge, verify);
    let signatures = u32::try_from(prepared.len()).expect("a log has few signatures");
    let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
    println!(
        "{name:<14} {signatures} signatures: judged {:>6.1} us, library {:>6.1} us, ratio {ratio:.3}; whole log {:.1} ms",
        micros(ours / signatures),
        micros(theirs / signatures),
        micros(ours) / 1000.0,
    );
    ratio
}

/// The updates that are stored, and the one that is new.
fn log(owner: &dyn Signer, member: &dyn Fn(usize) -> Box<dyn Signer>) -> Vec<IdentityUpdate> {
    let inbox_id = inbox_id_of(owner, 0);
    let update = || IdentityUpdateBuilder::new(&inbox_id);
    let mut updates = vec![update().create(owner, 0).sign()];
    updates.extend((0..ENTRIES).map(|number| {
        let added = member(number);
        let at = number as u64 * 1_000_000_000;
        let builder = IdentityUpdateBuilder::new(&inbox_id);
        builder.at(at).add(owner, &*added).sign()
    }));
    updates
}

/// The median times of two sides.
fn alternate(ours: impl Fn(), theirs: impl Fn()) -> (Duration, Duration) {
    let time = |side: &dyn Fn()| {
        let start = Instant::now();
        side();
        start.elapsed()
    };
    ours();
    theirs();
    let rounds: Vec<_> = (0..ROUNDS).map(|_| (time(&ours), time(&theirs))).collect();
    let (mut ours, mut theirs): (Vec<_>, Vec<_>) = rounds.into_iter().unzip();
    ours.sort_unstable();
    theirs.sort_unstable();
    (ours[ROUNDS / 2], theirs[ROUNDS / 2])
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// A signature with all that its library wants of it.
enum Prepared {
    Wallet([u8; 32], K256Signature, RecoveryId),
    Installation(Box<(Sha512, Ed25519Key, Ed25519Signature)>),
    Passkey([u8; 32], P256Key, P256Signature),
}

impl Prepared {
    /// The signatures of an update.
    fn of(update: &IdentityUpdate) -> Vec<Self> {
        let text = signed_text(update).expect("an update of the log has a text");
        let signatures = update.actions.iter().flat_map(|action| match &action.kind {
            Some(Kind::CreateInbox(create)) => [create.initial_identifier_signature.as_ref(), None],
            Some(Kind::Add(add)) => [
                add.existing_member_signature.as_ref(),
                add.new_member_signature.as_ref(),
            ],
            _ => panic!("the log creates and adds"),
        });
        signatures
            .flatten()
            .map(|signature| Self::from_wire(signature, &text))
            .collect()
    }

    fn from_wire(signature: &Signature, text: &str) -> Self {
        match signature.signature.as_ref().expect("a signature is set") {
            SignatureKind::Erc191(wallet) => {
                let (scalars, recovery) = wallet.bytes.split_at(64);
                Self::Wallet(
                    personal_message_hash(text),
                    K256Signature::from_slice(scalars).expect("scalars"),
                    RecoveryId::from_byte(recovery[0] - 27).expect("a recovery byte"),
                )
            }
            SignatureKind::InstallationKey(installation) => {
                let key = installation.public_key[..].try_into().expect("a key");
                Self::Installation(Box::new((
                    Sha512::new_with_prefix(text),
                    Ed25519Key::from_bytes(key).expect("a point"),
                    Ed25519Signature::from_slice(&installation.bytes).expect("a signature"),
                )))
            }
            SignatureKind::Passkey(passkey) => {
                let hash = Sha256::new()
                    .chain_update(&passkey.authenticator_data)
                    .chain_update(Sha256::digest(&passkey.client_data_json));
                Self::Passkey(
                    hash.finalize().into(),
                    P256Key::from_sec1_bytes(&passkey.public_key).expect("a point"),
                    P256Signature::from_der(&passkey.signature).expect("a signature"),
                )
            }
            SignatureKind::Erc6492(_) => panic!("no contract wallet is in the log"),
        }
    }

    fn verify(&self) -> bool {
        match self {
            Self::Wallet(hash, signature, recovery) => {
                K256Key::recover_from_prehash(hash, signature, *recovery).is_ok()
            }
            Self::Installation(prepared) => {
                let (prehash, key, signature) = &**prepared;
                key.verify_prehashed(prehash.clone(), Some(Installation::CONTEXT), signature)
                    .is_ok()
            }
            Self::Passkey(hash, key, signature) => key.verify_prehash(hash, signature).is_ok(),
        }
    }
}
