//! Who gets in: the `auth` subsystem in front of a whole backend.

mod admission;
mod drain;
mod https;
mod issuer;
mod jwks;
mod telemetry;

/// A path that needs a credential.
const QUERY: &str = "/xmtp.backend.v1.QueryService/Query";

/// The value of an API key.
const API_KEY: &str = "planted-api-key-of-more-than-32-bytes";

/// A section that admits [`API_KEY`] alone.
pub(crate) const ONE_API_KEY: &str = "auth.enabled = true
    auth.api_keys.mobile = \"planted-api-key-of-more-than-32-bytes\"";

/// An `authorization` header with a credential.
fn bearer(credential: &str) -> String {
    format!("Bearer {credential}")
}
