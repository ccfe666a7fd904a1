//! Issuers of tokens for tests.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{
    self, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RsaEncoding, RsaKeyPair,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

use crate::algorithm::{Algorithm, PublicKey};
use crate::keys::{Key, from_pem};

const RSA_KEY: &[u8] = include_bytes!("../tests/keys/rsa-2048.pk8");

/// What stands before the key in a `SubjectPublicKeyInfo`.
const RSA_PREFIX: &[u8] = b"\x30\x82\x01\x22\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00\x03\x82\x01\x0f\x00";
const P256_PREFIX: &[u8] = b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00";
const P384_PREFIX: &[u8] =
    b"\x30\x76\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x22\x03\x62\x00";
const ED25519_PREFIX: &[u8] = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";

enum Pair {
    Rsa(Box<RsaKeyPair>),
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

/// Signs tokens with one key.
pub(crate) struct Issuer {
    pub(crate) algorithm: Algorithm,
    pub(crate) kid: Option<&'static str>,
    pair: Pair,
}

impl Issuer {
    pub(crate) fn new(algorithm: Algorithm, kid: &'static str) -> Self {
        let pair = match algorithm {
            Algorithm::Es256 => ecdsa(&signature::ECDSA_P256_SHA256_FIXED_SIGNING),
            Algorithm::Es384 => ecdsa(&signature::ECDSA_P384_SHA384_FIXED_SIGNING),
            Algorithm::EdDsa => {
                let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
                Pair::Ed25519(Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap())
            }
            _ => Pair::Rsa(Box::new(RsaKeyPair::from_pkcs8(RSA_KEY).unwrap())),
        };
        Self {
            algorithm,
            kid: Some(kid),
            pair,
        }
    }

    fn public(&self) -> &[u8] {
        match &self.pair {
            Pair::Rsa(pair) => pair.public_key().as_ref(),
            Pair::Ecdsa(pair) => pair.public_key().as_ref(),
            Pair::Ed25519(pair) => pair.public_key().as_ref(),
        }
    }

    pub(crate) fn pem(&self) -> String {
        let prefix = match self.algorithm {
            Algorithm::Es256 => P256_PREFIX,
            Algorithm::Es384 => P384_PREFIX,
            Algorithm::EdDsa => ED25519_PREFIX,
            _ => RSA_PREFIX,
        };
        pem("PUBLIC KEY", &[prefix, self.public()].concat())
    }

    pub(crate) fn key(&self) -> Key {
        Key {
            kid: self.kid.map(str::to_owned),
            algorithm: self.algorithm,
            public: from_pem(self.algorithm, &self.pem()).unwrap(),
        }
    }

    pub(crate) fn jwk(&self) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let mut jwk = match (&self.pair, self.key().public) {
            (_, PublicKey::Rsa { modulus, exponent }) => {
                json!({ "kty": "RSA", "n": text(&modulus), "e": text(&exponent) })
            }
            (Pair::Ed25519(_), PublicKey::Point(point)) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "x": text(&point) })
            }
            (_, PublicKey::Point(point)) => {
                let (x, y) = point[1..].split_at(point.len() / 2);
                let curve = if x.len() == 32 { "P-256" } else { "P-384" };
                json!({ "kty": "EC", "crv": curve, "x": text(x), "y": text(y) })
            }
        };
        jwk["alg"] = self.algorithm.name().into();
        jwk["use"] = "sig".into();
        if let Some(kid) = self.kid {
            jwk["kid"] = kid.into();
        }
        jwk
    }

    /// A token with these claims.
    pub(crate) fn token(&self, claims: &Value) -> String {
        let mut header = json!({ "alg": self.algorithm.name() });
        if let Some(kid) = self.kid {
            header["kid"] = kid.into();
        }
        self.sign(&header, claims)
    }

    /// A token with any header.
    pub(crate) fn sign(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", segment(header), segment(claims));
        let signature = self.signature(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    pub(crate) fn signature(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Rsa(pair) => {
                let encoding: &dyn RsaEncoding = match self.algorithm {
                    Algorithm::Rs384 => &signature::RSA_PKCS1_SHA384,
                    Algorithm::Rs512 => &signature::RSA_PKCS1_SHA512,
                    _ => &signature::RSA_PKCS1_SHA256,
                };
                let mut signed = vec![0; pair.public().modulus_len()];
                pair.sign(encoding, &random, message, &mut signed).unwrap();
                signed
            }
            Pair::Ecdsa(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Pair::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }
}

fn ecdsa(algorithm: &'static EcdsaSigningAlgorithm) -> Pair {
    let random = SystemRandom::new();
    let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    Pair::Ecdsa(EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap())
}

pub(crate) fn segment(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut lines = vec![format!("-----BEGIN {label}-----")];
    let characters: Vec<char> = text.chars().collect();
    lines.extend(characters.chunks(64).map(|line| line.iter().collect()));
    lines.push(format!("-----END {label}-----\n"));
    lines.join("\n")
}

/// How a [`JwksServer`] answers one request.
#[derive(Clone)]
pub(crate) enum Reply {
    /// 200 with this document.
    Document(Vec<u8>),
    /// A status line and headers, and no body.
    Head(String),
    /// 200 with a body that never ends, of no stated length.
    Endless,
    /// Nothing, on an open connection.
    Silence,
    /// Part of a body, and the end of the connection.
    Cut,
}

/// A JWKS with these entries.
pub(crate) fn document(entries: &[Value]) -> Reply {
    Reply::Document(json!({ "keys": entries }).to_string().into_bytes())
}

/// Answers requests for a JWKS one after another, each as the script says; its last line repeats.
pub(crate) struct JwksServer {
    pub(crate) url: Url,
    requests: Arc<Mutex<Vec<String>>>,
    script: Arc<Mutex<VecDeque<Reply>>>,
}

impl JwksServer {
    pub(crate) async fn start(script: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Self {
            url: Url::parse(&format!("http://{address}/keys?secret=planted")).unwrap(),
            requests: Arc::default(),
            script: Arc::new(Mutex::new(script.into_iter().collect())),
        };
        let (requests, script) = (Arc::clone(&server.requests), Arc::clone(&server.script));
        tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 8192];
                let length = connection.read(&mut request).await.unwrap_or_default();
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                requests.lock().unwrap().push(request);
                let reply = {
                    let mut script = script.lock().unwrap();
                    match script.len() {
                        1 => script[0].clone(),
                        _ => script.pop_front().unwrap(),
                    }
                };
                tokio::spawn(async move {
                    // A client that has seen enough hangs up.
                    let _ = answer(connection, reply).await;
                });
            }
        });
        server
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// Answers every further request with `reply`.
    pub(crate) fn answer(&self, reply: Reply) {
        *self.script.lock().unwrap() = [reply].into();
    }
}

async fn answer(mut connection: TcpStream, reply: Reply) -> io::Result<()> {
    match reply {
        Reply::Document(body) => {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            connection.write_all(head.as_bytes()).await?;
            connection.write_all(&body).await
        }
        Reply::Head(head) => {
            let head = format!("HTTP/1.1 {head}\r\ncontent-length: 0\r\n\r\n");
            connection.write_all(head.as_bytes()).await
        }
        Reply::Endless => {
            connection.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
            loop {
                connection.write_all(&[b' '; 8192]).await?;
            }
        }
        Reply::Silence => std::future::pending().await,
        Reply::Cut => {
            let head = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"keys\":";
            connection.write_all(head).await
        }
    }
}
