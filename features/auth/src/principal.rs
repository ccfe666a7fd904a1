//! Who sent a request.

use std::sync::Arc;

use crate::claims::Claims;

/// Who sent an accepted request: an extension of it, for its handler. It says nothing about membership in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// Whoever has the API key of this name.
    ApiKey(Arc<str>),
    /// Whom an accepted token is about.
    Token(Claims),
}
