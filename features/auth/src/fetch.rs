//! One fetch of the JWKS, bounded in time and in bytes (AUTH-015, AUTH-033).

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::time::timeout;

use crate::jwks;
use crate::keys::KeySet;

/// The whole fetch.
pub(crate) const MAX_DURATION: Duration = Duration::from_secs(10);

/// Most bytes of the document.
const MAX_BYTES: usize = 262_144;

/// Why a fetch gave no keys. The word is all that is told: neither the URL nor what was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FetchError {
    /// No connection, or no TLS.
    #[error("connect")]
    Connect,
    /// It took longer than 10 seconds.
    #[error("timeout")]
    Timeout,
    /// The server sends elsewhere, which is not followed.
    #[error("redirect")]
    Redirect,
    /// Another status than a success.
    #[error("status")]
    Status,
    /// The document is longer than 262144 bytes.
    #[error("too_large")]
    TooLarge,
    /// The connection failed under way.
    #[error("interrupted")]
    Interrupted,
    /// No JWKS.
    #[error("not_a_jwks")]
    NotAJwks,
    /// A JWKS without a key that is usable here.
    #[error("no_usable_key")]
    NoUsableKey,
}

/// The system's certificates cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("no HTTPS: the system's certificate authorities cannot be read")]
pub(crate) struct NoTls;

/// Fetches one URL.
pub(crate) struct Fetcher {
    client: Client,
    url: Url,
}

impl Fetcher {
    /// For `url`. It keeps no connection and no cookies, and uses no proxy.
    pub(crate) fn new(url: Url) -> Result<Self, NoTls> {
        let provider = rustls::crypto::ring::default_provider();
        let tls = ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .map_err(|_| NoTls)?;
        let tls = match url.scheme() {
            "https" => tls.with_platform_verifier().map_err(|_| NoTls)?,
            // Plaintext needs no certificate authority, and a machine may have none.
            _ => tls.with_root_certificates(RootCertStore::empty()),
        };
        let client = Client::builder()
            .tls_backend_preconfigured(tls.with_no_client_auth())
            .redirect(Policy::none())
            .no_proxy()
            .pool_max_idle_per_host(0)
            .build()
            .map_err(|_| NoTls)?;
        Ok(Self { client, url })
    }

    /// Fetches the document, and answers its usable keys, of which there is at least one.
    pub(crate) async fn fetch(&self) -> Result<KeySet, FetchError> {
        let document = timeout(MAX_DURATION, self.document()).await;
        let document = document.map_err(|_| FetchError::Timeout)??;
        let keys = jwks::parse(&document).ok_or(FetchError::NotAJwks)?;
        if keys.keys().is_empty() {
            return Err(FetchError::NoUsableKey);
        }
        Ok(keys)
    }

    async fn document(&self) -> Result<Vec<u8>, FetchError> {
        let request = self.client.get(self.url.clone()).send().await;
        let mut response = request.map_err(|error| {
            if error.is_connect() {
                FetchError::Connect
            } else {
                FetchError::Interrupted
            }
        })?;
        if response.status().is_redirection() {
            return Err(FetchError::Redirect);
        }
        if !response.status().is_success() {
            return Err(FetchError::Status);
        }
        let mut document = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|_| FetchError::Interrupted)?
        {
            if document.len() + chunk.len() > MAX_BYTES {
                return Err(FetchError::TooLarge);
            }
            document.extend_from_slice(&chunk);
        }
        Ok(document)
    }
}
