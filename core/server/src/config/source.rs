//! Where the document comes from: exactly one of an inline text and a file (ARC-100).

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::error::{ConfigError, ConfigErrors, Refusal};

/// Longest document that is read from a file: far more than one with every key and thousands of chains.
const MAX_BYTES: u64 = 1 << 20;

/// How long a file, or a pipe, has to end.
const MAX_DURATION: Duration = Duration::from_secs(10);

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
            Self::File(path) => read_file(path.clone()).map_err(|kind| {
                let refusal = Refusal::Unreadable { path, kind };
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

/// Reads what ends within the bounds, be it a file or a pipe.
fn read_file(path: PathBuf) -> Result<String, ErrorKind> {
    let (answer, read) = mpsc::channel();
    // A pipe that nobody writes holds whoever opens it, for good.
    thread::spawn(move || {
        let text = File::open(path).and_then(|file| {
            let mut text = String::new();
            file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
            Ok(text)
        });
        // Nobody waits for what comes late.
        let _ = answer.send(text.map_err(|error| error.kind()));
    });
    let text = read.recv_timeout(MAX_DURATION);
    let text = text.unwrap_or(Err(ErrorKind::TimedOut))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(ErrorKind::FileTooLarge);
    }
    Ok(text)
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
