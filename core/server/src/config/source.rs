//! Where the document comes from: exactly one of an inline text and a file (ARC-100).

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use super::error::{ConfigError, ConfigErrors, Refusal};

/// The one source of the document.
#[derive(Clone, PartialEq, Eq)]
pub enum Source {
    /// The document itself, from `--config` or `XMTP_CONFIG`.
    Inline(String),
    /// A path, from `--config-file`.
    File(PathBuf),
}

/// The command line gives no source, or two that conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// None.
    #[error("no configuration: give --config (or XMTP_CONFIG), or --config-file")]
    Missing,
    /// `XMTP_CONFIG` is set and not Unicode.
    #[error("XMTP_CONFIG is not Unicode")]
    Unicode,
    /// An inline document and a file.
    #[error("{0} and --config-file are both given: give one of them")]
    Conflict(&'static str),
}

impl Source {
    /// Selects the source from `--config`, `XMTP_CONFIG` and `--config-file`. The flag beats the
    /// variable, and an empty variable, and nothing else, counts as absent.
    ///
    /// # Errors
    ///
    /// A usage error that names the sources and shows no content.
    pub fn select(
        flag: Option<String>,
        variable: Option<OsString>,
        file: Option<PathBuf>,
    ) -> Result<Self, SourceError> {
        let variable = variable.filter(|text| !text.is_empty());
        let name = if flag.is_some() {
            "--config"
        } else {
            "XMTP_CONFIG"
        };
        match (flag.map(OsString::from).or(variable), file) {
            (Some(text), None) => {
                let text = text.into_string();
                text.map(Self::Inline).map_err(|_| SourceError::Unicode)
            }
            (None, Some(path)) => Ok(Self::File(path)),
            (Some(_), Some(_)) => Err(SourceError::Conflict(name)),
            (None, None) => Err(SourceError::Missing),
        }
    }

    /// The document's text.
    ///
    /// # Errors
    ///
    /// [`Refusal::Unreadable`], with the path and no content.
    pub fn read(self) -> Result<String, ConfigErrors> {
        match self {
            Self::Inline(text) => Ok(text),
            Self::File(path) => std::fs::read_to_string(&path).map_err(|error| {
                let refusal = Refusal::Unreadable {
                    path,
                    kind: error.kind(),
                };
                ConfigError {
                    key: String::new(),
                    position: None,
                    refusal,
                }
                .into()
            }),
        }
    }
}

/// Shows the kind of source: an inline document may hold secrets.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(_) => f.write_str("Inline(..)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}
