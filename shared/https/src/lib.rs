//! Asks one URL over HTTP or HTTPS. Answers are bounded in bytes, redirects are not followed, no proxy is used and no cookie
//! kept, and what goes wrong is told in one word: neither the URL nor what was answered.
//!
//! Time is bounded by whoever asks, who may have more to wait for than the exchange: [`Fault::Timeout`] is theirs.

use reqwest::header::CONTENT_TYPE;
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;
use secrecy::{ExposeSecret, SecretString};

/// Why there is no answer. The word is all that is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// No connection, or no TLS.
    #[error("connect")]
    Connect,
    /// No answer in time.
    #[error("timeout")]
    Timeout,
    /// The server sends elsewhere, which is not followed.
    #[error("redirect")]
    Redirect,
    /// Another status than a success.
    #[error("status")]
    Status,
    /// The answer is longer than it may be.
    #[error("too_large")]
    TooLarge,
    /// The connection failed under way.
    #[error("interrupted")]
    Interrupted,
}

/// The system's certificates cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("no HTTPS: the system's certificate authorities cannot be read")]
pub struct NoTls;

/// What becomes of a connection whose question is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connections {
    /// It is kept for the next.
    Kept,
    /// It is closed: the next question comes much later.
    Closed,
}

/// Who is asked, at one URL.
pub struct Endpoint {
    client: Client,
    url: SecretString,
}

impl Endpoint {
    /// At `url`, which is `http` or `https`. Certificates are held against the system's authorities.
    ///
    /// # Errors
    /// [`NoTls`] for an `https` URL where those cannot be read.
    pub fn new(url: SecretString, connections: Connections) -> Result<Self, NoTls> {
        let provider = rustls::crypto::ring::default_provider();
        let tls = ClientConfig::builder_with_provider(provider.into())
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
            .no_proxy();
        let client = match connections {
            Connections::Kept => client,
            Connections::Closed => client.pool_max_idle_per_host(0),
        };
        let client = client.build().map_err(|_| NoTls)?;
        Ok(Self { client, url })
    }

    /// Fetches the document, of at most `max_bytes`.
    ///
    /// # Errors
    /// What went wrong.
    pub async fn get(&self, max_bytes: usize) -> Result<Vec<u8>, Fault> {
        answer(self.client.get(self.url.expose_secret()), max_bytes).await
    }

    /// Sends a JSON text, and answers the body of a success, of at most `max_bytes`.
    ///
    /// # Errors
    /// What went wrong.
    pub async fn post_json(&self, text: Vec<u8>, max_bytes: usize) -> Result<Vec<u8>, Fault> {
        let request = self
            .client
            .post(self.url.expose_secret())
            .header(CONTENT_TYPE, "application/json")
            .body(text);
        answer(request, max_bytes).await
    }
}

async fn answer(request: RequestBuilder, max_bytes: usize) -> Result<Vec<u8>, Fault> {
    let mut response = request.send().await.map_err(|error| {
        if error.is_connect() {
            Fault::Connect
        } else {
            Fault::Interrupted
        }
    })?;
    if response.status().is_redirection() {
        return Err(Fault::Redirect);
    }
    if !response.status().is_success() {
        return Err(Fault::Status);
    }
    let mut answer = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|_| Fault::Interrupted)? {
        if answer.len() + chunk.len() > max_bytes {
            return Err(Fault::TooLarge);
        }
        answer.extend_from_slice(&chunk);
    }
    Ok(answer)
}
