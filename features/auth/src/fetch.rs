//! One fetch of the JWKS, bounded in time and in bytes (AUTH-015, AUTH-033).

use std::time::Duration;

use secrecy::SecretString;
use tokio::time::timeout;
use url::Url;
use xmtp_https::{Connections, Endpoint, Fault, NoTls};

use crate::jwks;
use crate::keys::KeySet;

/// The whole fetch.
pub(crate) const MAX_DURATION: Duration = Duration::from_secs(10);

/// Most bytes of the document.
const MAX_BYTES: usize = 262_144;

/// Why a fetch gave no keys. The word is all that is told: neither the URL nor what was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FetchError {
    /// The exchange failed, or took longer than 10 seconds.
    #[error(transparent)]
    Http(#[from] Fault),
    /// No JWKS.
    #[error("not_a_jwks")]
    NotAJwks,
    /// A JWKS without a key that is usable here.
    #[error("no_usable_key")]
    NoUsableKey,
}

/// Fetches one URL.
pub(crate) struct Fetcher(Endpoint);

impl Fetcher {
    /// For `url`. It keeps no connection: the next fetch is minutes away.
    pub(crate) fn new(url: Url) -> Result<Self, NoTls> {
        let url = SecretString::from(String::from(url));
        Ok(Self(Endpoint::new(url, Connections::Closed)?))
    }

    /// Fetches the document, and answers its usable keys, of which there is at least one.
    pub(crate) async fn fetch(&self) -> Result<KeySet, FetchError> {
        let document = timeout(MAX_DURATION, self.0.get(MAX_BYTES)).await;
        let document = document.map_err(|_| Fault::Timeout)??;
        let keys = jwks::parse(&document).ok_or(FetchError::NotAJwks)?;
        if keys.keys().is_empty() {
            return Err(FetchError::NoUsableKey);
        }
        Ok(keys)
    }
}
