//! An issuer of tokens, and where it publishes its keys.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// What stands before the key in a `SubjectPublicKeyInfo` of Ed25519.
const PREFIX: &[u8] = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";

/// Signs tokens with one Ed25519 key.
pub(super) struct Issuer {
    kid: &'static str,
    pair: Ed25519KeyPair,
}

impl Issuer {
    pub(super) fn new(kid: &'static str) -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
        let pair = Ed25519KeyPair::from_pkcs8(key.as_ref()).expect("a key");
        Self { kid, pair }
    }

    /// The settings that make it known.
    pub(super) fn settings(&self) -> String {
        let der = [PREFIX, self.pair.public_key().as_ref()].concat();
        let text = STANDARD.encode(der);
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n");
        let kid = self.kid;
        format!("auth.keys = [{{ kid = {kid:?}, alg = \"EdDSA\", public_key = {pem:?} }}]")
    }

    pub(super) fn jwk(&self) -> Value {
        let x = URL_SAFE_NO_PAD.encode(self.pair.public_key());
        json!({ "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "kid": self.kid, "x": x })
    }

    /// A token with these claims.
    pub(super) fn token(&self, claims: &Value) -> String {
        self.token_of("EdDSA", self.kid, claims)
    }

    /// A token with another algorithm or key id in its header.
    pub(super) fn token_of(&self, alg: &str, kid: &str, claims: &Value) -> String {
        let header = json!({ "alg": alg, "kid": kid });
        let parts = [&header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let signed = parts.join(".");
        let signature = self.pair.sign(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// The clock, in Unix seconds.
pub(super) fn now() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    since_epoch.expect("it is past 1970").as_secs()
}

/// Claims that every server here accepts for an hour.
pub(super) fn claims() -> Value {
    json!({ "exp": now() + 3600, "aud": "here", "iss": "issuer", "scope": "use", "sub": "planted-sub" })
}

/// Publishes a JWKS on this machine.
pub(super) struct Publication {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// `None` answers nothing and keeps connections open.
    document: Option<String>,
    fetches: usize,
}

impl Publication {
    /// Of these entries.
    pub(super) async fn start(entries: &[Value]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            let mut silent = Vec::new();
            while let Ok((mut connection, _)) = listener.accept().await {
                let mut request = [0; 4096];
                let _ = connection.read(&mut request).await;
                let document = {
                    let mut state = shared.lock().expect("no panic");
                    state.fetches += 1;
                    state.document.clone()
                };
                let Some(document) = document else {
                    silent.push(connection);
                    continue;
                };
                let length = document.len();
                let answer =
                    format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{document}");
                let _ = connection.write_all(answer.as_bytes()).await;
            }
        });
        let publication = Self { address, state };
        publication.publish(entries);
        publication
    }

    /// The settings that fetch it every second, and its address.
    pub(super) fn settings(&self) -> String {
        format!(
            "auth.enabled = true
            auth.jwks_url = \"http://{}/planted-path\"
            auth.jwks_refresh_seconds = 1
            auth.jwks_max_stale_seconds = 12",
            self.address
        )
    }

    pub(super) fn publish(&self, entries: &[Value]) {
        let document = json!({ "keys": entries }).to_string();
        self.state.lock().expect("no panic").document = Some(document);
    }

    /// Answers nothing from now on.
    pub(super) fn hang(&self) {
        self.state.lock().expect("no panic").document = None;
    }

    pub(super) fn fetches(&self) -> usize {
        self.state.lock().expect("no panic").fetches
    }
}
