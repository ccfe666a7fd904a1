//! What credentials cost: publishes a second with an API key and with JWTs, against the same program without
//! authentication; and what senders of bad tokens cost a good client.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::future::join_all;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tonic::Request;
use tonic::metadata::AsciiMetadataValue;
use uuid::Uuid;
use xmtp_protocol::client::{PublishServiceClient, QueryServiceClient};
use xmtp_protocol::proto::xmtp::backend::v1::{PublishRequest, QueryRequest};
use xmtp_test_support::TestDatabase;
use xmtp_test_support::payloads::{ContentType, mls_message};

use crate::child;
use crate::figures::{Verdict, at_least, at_most, median, milliseconds, percentile};
use crate::publish::load::Load;
use crate::server::{Server, connect, free_address};

/// Makes this program a sender of bad tokens; their kind and the server's address follow.
pub(crate) const ARGUMENT: &str = "bad-tokens";

/// Rounds of each credential, after one that warms up.
const ROUNDS: usize = 100;
/// Length of a round: short, so that all see the same machine.
const ROUND: Duration = Duration::from_millis(500);
/// Least share of the throughput that is left.
const LEAST_RATIO: f64 = 0.95;

const API_KEY: &str = "api-key-of-the-benchmark-0123456789";
const RSA_KEY: &[u8] = include_bytes!("../../features/auth/tests/keys/rsa-2048.pk8");

/// Senders of bad tokens, of which each waits for its answer: enough for their pace while answers take 100 ms.
const SENDERS: u32 = 1_000;
/// As many senders as the server lets one have at a time.
const SENDERS_OF_A_CONNECTION: u32 = 100;
/// What they offer. Of the processors they get what nobody else wants, and of answers what the server has.
const BAD_PER_SECOND: u32 = 10_000;
const GOOD_PER_SECOND: u32 = 100;
/// Rounds of the good client, alone and beside each kind: the disk is slow at times.
const ATTACKS: u32 = 4;
const TIME: Duration = Duration::from_secs(5);
/// Begin and end of an attack, which are not measured.
const ONSET: Duration = Duration::from_secs(1);
/// Most times its latency alone.
const MOST: f64 = 3.0;
/// Least share of the bad tokens that is answered. Signatures of ES256 alone would take one of two processors.
const LEAST_REJECTED: f64 = 0.4;

/// Kinds of bad tokens, by what stands in their headers; the first are no JWTs.
const KINDS: [&str; 3] = ["garbage", "RS256", "ES256"];

pub(crate) async fn measure() -> Verdict {
    let database = TestDatabase::create().await;
    let telemetry = free_address();
    let (es256, rs256) = (Issuer::es256(), Issuer::rs256());
    let settings = format!(
        "telemetry.metrics_listen = \"{telemetry}\"\nauth.enabled = true\n\
         auth.api_keys.bench = {API_KEY:?}\nauth.keys = [{}, {}]\n",
        es256.settings(),
        rs256.settings()
    );
    let on = Server::with(&database.url(), &settings).await;
    let cost = throughput(&database, &on, &es256, &rs256).await;
    cost.and(attacked(&on, telemetry).await)
}

/// How long publishes of a good client take alone, and while bad tokens of each kind come.
async fn attacked(server: &Server, telemetry: SocketAddr) -> Verdict {
    println!("\n{GOOD_PER_SECOND} publishes a second of a good client, p99 of all rounds, ms");
    let address = server.address.to_string();
    let (mut alone, mut attacked) = (Vec::new(), KINDS.map(|_| Vec::new()));
    let mut rejected = KINDS.map(|_| 0.0);
    for _ in 0..ATTACKS {
        alone.extend(good(server).await);
        for ((kind, calls), rejected) in KINDS.iter().zip(&mut attacked).zip(&mut rejected) {
            let sender = child::start_nice(&[ARGUMENT, kind, &address]).await;
            sleep(ONSET).await;
            let (before, begin) = (rejections(telemetry).await, Instant::now());
            calls.extend(good(server).await);
            let since = rejections(telemetry).await - before;
            *rejected += since / begin.elapsed().as_secs_f64() / f64::from(ATTACKS);
            drop(sender);
            sleep(ONSET).await;
        }
    }
    let normal = percentile(alone, 99);
    println!("alone: {normal:.1}");
    let mut verdict = Verdict::Good;
    for ((kind, calls), rejected) in KINDS.iter().zip(attacked).zip(rejected) {
        let attacked = percentile(calls, 99);
        println!("{kind}: {attacked:.1}, while {rejected:.0} tokens a second are rejected");
        let name = format!("with bad tokens ({kind}), of alone");
        verdict = verdict.and(at_most(&name, attacked / normal, MOST));
        let name = format!("rejected bad tokens ({kind}), of those that are offered");
        let share = rejected / f64::from(BAD_PER_SECOND);
        verdict = verdict.and(at_least(&name, share, LEAST_REJECTED));
    }
    verdict
}

/// Publishes a second by credential.
async fn throughput(
    database: &TestDatabase,
    on: &Server,
    es256: &Issuer,
    rs256: &Issuer,
) -> Verdict {
    let settings = format!("telemetry.metrics_listen = \"{}\"", free_address());
    let off = Server::with(&database.url(), &settings).await;
    let sides = [
        ("none", &off, Load::connect(off.address).await),
        (
            "API key",
            on,
            Load::authorized(on.address, |_| Some(bearer(API_KEY))).await,
        ),
        (
            "ES256",
            on,
            Load::authorized(on.address, |client| Some(bearer(&es256.token(client)))).await,
        ),
        (
            "RS256",
            on,
            Load::authorized(on.address, |client| Some(bearer(&rs256.token(client)))).await,
        ),
    ];
    println!("rounds of {} ms: publishes a second", ROUND.as_millis());
    println!(
        "{:>6}  {}",
        "round",
        sides
            .each_ref()
            .map(|side| format!("{:>8}", side.0))
            .join("  ")
    );
    let mut ratios = [const { Vec::new() }; 4];
    let mut spent = [(0.0, 0.0); 4];
    for round in 0..=ROUNDS {
        let mut figures = [0.0; 4];
        // Each comes first, and each comes last, as often as the others.
        for place in 0..sides.len() {
            let side = (place + round) % sides.len();
            let (_, server, load) = &sides[side];
            let before = server.processor_time();
            figures[side] = load.run(ROUND).await;
            if round > 0 {
                spent[side].0 += server.processor_time() - before;
                spent[side].1 += figures[side] * ROUND.as_secs_f64();
                ratios[side].push(figures[side]);
            }
        }
        println!(
            "{round:>6}  {}",
            figures.map(|figure| format!("{figure:>8.0}")).join("  ")
        );
    }
    let mut verdict = Verdict::Good;
    let [without, with @ ..] = ratios;
    for ((name, ..), figures) in sides[1..].iter().zip(with) {
        let ratios = figures
            .iter()
            .zip(&without)
            .map(|(with, without)| with / without);
        let name = format!("throughput with {name}, median of the rounds' ratios");
        verdict = verdict.and(at_least(&name, median(ratios.collect()), LEAST_RATIO));
    }
    let spent = spent.map(|(seconds, publishes)| format!("{:.0}", seconds * 1e6 / publishes));
    println!(
        "processor time of a publish, us, in that order: {}",
        spent.join(", ")
    );
    verdict
}

fn bearer(credential: &str) -> AsciiMetadataValue {
    let text = format!("Bearer {credential}");
    text.parse().expect("a credential is visible ASCII")
}

/// An issuer with one key, whose id is the name of its algorithm.
struct Issuer {
    algorithm: &'static str,
    key: Key,
    pem: String,
}

enum Key {
    Ecdsa(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

impl Issuer {
    fn es256() -> Self {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
        let key = EcdsaKeyPair::from_pkcs8(
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            &pair.serialize_der(),
            &SystemRandom::new(),
        );
        Self {
            algorithm: "ES256",
            key: Key::Ecdsa(key.expect("a key")),
            pem: pair.public_key_pem(),
        }
    }

    fn rs256() -> Self {
        let pair = KeyPair::try_from(RSA_KEY).expect("a key");
        Self {
            algorithm: "RS256",
            key: Key::Rsa(RsaKeyPair::from_pkcs8(RSA_KEY).expect("a key")),
            pem: pair.public_key_pem(),
        }
    }

    /// The entry of `auth.keys`.
    fn settings(&self) -> String {
        let Self { algorithm, pem, .. } = self;
        format!("{{ kid = {algorithm:?}, alg = {algorithm:?}, public_key = {pem:?} }}")
    }

    /// The token of a client.
    fn token(&self, client: usize) -> String {
        let signed = unsigned(self.algorithm, client);
        let random = SystemRandom::new();
        let signature = match &self.key {
            Key::Ecdsa(key) => {
                let signature = key.sign(&random, signed.as_bytes()).expect("signed");
                signature.as_ref().to_vec()
            }
            Key::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(
                    &RSA_PKCS1_SHA256,
                    &random,
                    signed.as_bytes(),
                    &mut signature,
                )
                .expect("signed");
                signature
            }
        };
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// What issuers usually say, before it is signed.
fn unsigned(algorithm: &str, subject: impl std::fmt::Display) -> String {
    let header = format!(r#"{{"alg":"{algorithm}","typ":"JWT","kid":"{algorithm}"}}"#);
    let claims = format!(
        r#"{{"iss":"https://issuer.example.org/","sub":"client|{subject}","aud":["xmtp","https://issuer.example.org/userinfo"],"iat":1800000000,"exp":4000000000,"azp":"0123456789abcdef0123456789abcdef","scope":"openid profile email"}}"#
    );
    [header, claims]
        .map(|part| URL_SAFE_NO_PAD.encode(part))
        .join(".")
}

/// Publishes at a steady pace; answers how long each took, milliseconds.
async fn good(server: &Server) -> Vec<f64> {
    let client = PublishServiceClient::new(server.connect().await);
    let mut ticks = interval(Duration::from_secs(1) / GOOD_PER_SECOND);
    let count = u64::from(GOOD_PER_SECOND) * TIME.as_secs();
    let mut calls = Vec::new();
    for _ in 0..count {
        ticks.tick().await;
        let mut client = client.clone();
        calls.push(tokio::spawn(async move {
            let group = Uuid::new_v4().into_bytes();
            let mut request = Request::new(PublishRequest {
                envelopes: vec![mls_message(&group, ContentType::Application, &[0x5a; 300])],
            });
            request
                .metadata_mut()
                .insert("authorization", bearer(API_KEY));
            let called = Instant::now();
            client.publish(request).await.expect("a publish succeeds");
            milliseconds(called.elapsed())
        }));
    }
    let calls = join_all(calls).await;
    calls
        .into_iter()
        .map(|call| call.expect("a publish ends well"))
        .collect()
}

/// Rejections that the server at `telemetry` has counted.
async fn rejections(telemetry: SocketAddr) -> f64 {
    let mut stream = TcpStream::connect(telemetry)
        .await
        .expect("the port is open");
    let request = "GET /metrics HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    let samples = answer
        .lines()
        .filter(|line| line.starts_with("xmtp_auth_rejections_total{"))
        .filter_map(|line| line.rsplit(' ').next());
    samples
        .map(|value| value.parse::<f64>().expect("a sample is a number"))
        .sum()
}

/// Sends bad tokens of one kind at their pace, no two of them equal, until it is killed.
pub(crate) async fn attack(kind: &str, address: &str) {
    let address = address.parse().expect("an address");
    println!("attacking");
    let connections = 0..SENDERS / SENDERS_OF_A_CONNECTION;
    let connections = join_all(connections.map(|_| connect(address))).await;
    // The form of a signature by a key that nobody knows.
    let signature = match kind {
        "ES256" => Issuer::es256().token(0),
        _ => Issuer::rs256().token(0),
    };
    let (_, signature) = signature.rsplit_once('.').expect("three parts");
    let senders = (0..SENDERS).zip(connections.iter().cycle());
    let senders = senders.map(|(sender, connection)| {
        let mut client = QueryServiceClient::new(connection.clone());
        async move {
            // One after the other.
            sleep(Duration::from_secs(1) * sender / BAD_PER_SECOND).await;
            let mut ticks = interval(Duration::from_secs(1) * SENDERS / BAD_PER_SECOND);
            // Who was kept from sending for a while keeps the pace, and sends no more than that.
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            for number in 0_u64.. {
                ticks.tick().await;
                let token = match kind {
                    "garbage" => format!("{:064x}", Uuid::new_v4().as_u128()),
                    algorithm => {
                        let subject = format_args!("{sender}-{number}").to_string();
                        format!("{}.{signature}", unsigned(algorithm, subject))
                    }
                };
                let mut request = Request::new(QueryRequest::default());
                request
                    .metadata_mut()
                    .insert("authorization", bearer(&token));
                // The server may also end a connection that it has refused too much.
                let _ = client.query(request).await;
            }
        }
    });
    join_all(senders).await;
}
