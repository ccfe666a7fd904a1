//! One exchange with a provider over HTTP, bounded in bytes. Time is bounded by whoever asks.

use reqwest::Client;
use reqwest::header::CONTENT_TYPE;
use reqwest::redirect::Policy;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;
use secrecy::{ExposeSecret, SecretString};

use crate::trouble::Trouble;

/// Most bytes of an answer. The longest is a block with the hashes of its transactions, 69 bytes each: this is some
/// thirty thousand of them.
pub(crate) const MAX_ANSWER_BYTES: usize = 2 << 20;

/// The system's certificates cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("no HTTPS: the system's certificate authorities cannot be read")]
pub(crate) struct NoTls;

/// A provider at one URL.
pub(crate) struct Provider {
    client: Client,
    url: SecretString,
}

impl Provider {
    /// At `url`, which is http or https. It uses no proxy.
    pub(crate) fn new(url: SecretString) -> Result<Self, NoTls> {
        let tls = rustls::crypto::ring::default_provider();
        let tls = ClientConfig::builder_with_provider(tls.into())
            .with_safe_default_protocol_versions()
            .map_err(|_| NoTls)?;
        let tls = if url.expose_secret().starts_with("https:") {
            tls.with_platform_verifier().map_err(|_| NoTls)?
        } else {
            // Plaintext needs no certificate authority, and a machine may have none.
            tls.with_root_certificates(RootCertStore::empty())
        };
        let client = Client::builder()
            .tls_backend_preconfigured(tls.with_no_client_auth())
            .redirect(Policy::none())
            .no_proxy()
            .build()
            .map_err(|_| NoTls)?;
        Ok(Self { client, url })
    }

    /// Sends a JSON text, and answers the body of a success.
    pub(crate) async fn post(&self, body: Vec<u8>) -> Result<Vec<u8>, Trouble> {
        let request = self
            .client
            .post(self.url.expose_secret())
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        let mut response = request.send().await.map_err(|error| {
            if error.is_connect() {
                Trouble::Connect
            } else {
                Trouble::Interrupted
            }
        })?;
        if response.status().is_redirection() {
            return Err(Trouble::Redirect);
        }
        if !response.status().is_success() {
            return Err(Trouble::Status);
        }
        let mut answer = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|_| Trouble::Interrupted)? {
            if answer.len() + chunk.len() > MAX_ANSWER_BYTES {
                return Err(Trouble::TooLarge);
            }
            answer.extend_from_slice(&chunk);
        }
        Ok(answer)
    }
}
