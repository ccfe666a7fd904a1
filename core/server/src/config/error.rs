//! What a refused configuration says: the key, the place and what was expected. Never a value that
//! was configured, which may be a secret (ARC-101).

use std::fmt;
use std::io;
use std::path::PathBuf;

/// A place in the document, both counted from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

/// Why something in the document is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The file cannot be read, or is not UTF-8.
    #[error("cannot read {path}: {kind}", path = .path.display())]
    Unreadable {
        /// As given to `--config-file`.
        path: PathBuf,
        /// The operating system's reason.
        kind: io::ErrorKind,
    },
    /// Not TOML. The parser's own words are left out: they are not ours to keep free of secrets.
    #[error("not valid TOML, in which a key or a table stands once")]
    Syntax,
    /// Nobody owns this key (ARC-100).
    #[error("unknown key{}", .nearest.as_ref().map(|key| format!("; did you mean `{key}`?")).unwrap_or_default())]
    UnknownKey {
        /// A known key of the same table that is spelled alike.
        nearest: Option<String>,
    },
    /// The key belongs to a subsystem that this build lacks.
    #[error(
        "belongs to the `{0}` subsystem, which is not part of this build; build with `cargo build --features {0}`"
    )]
    AbsentSubsystem(&'static str),
    /// The key belongs to a subsystem that no build of this version has.
    #[error("belongs to the `{0}` subsystem, which this version does not have")]
    UnavailableSubsystem(&'static str),
    /// A key without a default is missing.
    #[error("required")]
    Required,
    /// Wrong type, form or range.
    #[error("expected {0}")]
    Expected(String),
    /// An `env:` reference to a variable that is missing or not Unicode.
    #[error("environment variable {0} is not set, or is not Unicode")]
    Variable(String),
    /// An `env:` reference whose name is empty or cannot be a variable's.
    #[error("the env: reference has no usable name")]
    VariableName,
    /// A check across keys failed, for a fixed reason.
    #[error("{0}")]
    Check(&'static str),
}

/// One thing that is wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Dotted path with zero-based array positions (`auth.keys[1].alg`); empty where the error is
    /// about the whole document.
    pub key: String,
    /// Absent where the document does not mention the key.
    pub position: Option<Position>,
    /// What is wrong.
    pub refusal: Refusal,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refusal = &self.refusal;
        match (self.key.as_str(), self.position) {
            ("", None) => write!(f, "{refusal}"),
            ("", Some(Position { line, column })) => {
                write!(f, "line {line}, column {column}: {refusal}")
            }
            (key, None) => write!(f, "{key}: {refusal}"),
            (key, Some(Position { line, column })) => {
                write!(f, "{key} (line {line}, column {column}): {refusal}")
            }
        }
    }
}

/// Everything that is wrong with the configuration, in the order of the document: one line each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// The value, or `None` and its errors added to these.
    pub fn keep<T>(&mut self, result: Result<T, Self>) -> Option<T> {
        result.map_err(|errors| self.extend(errors.0)).ok()
    }

    /// `value` where nothing was wrong.
    ///
    /// # Errors
    ///
    /// These, where there are any.
    pub fn or<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(self)
        }
    }

    /// Whether one of them is about the key at `path`, or about something that it contains or is
    /// contained in.
    pub(super) fn concern(&self, path: &str) -> bool {
        let within = |inner: &str, outer: &str| {
            inner
                .strip_prefix(outer)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.iter()
            .any(|error| within(&error.key, path) || within(path, &error.key))
    }

    /// One by one.
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigError> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a ConfigErrors {
    type Item = &'a ConfigError;
    type IntoIter = std::slice::Iter<'a, ConfigError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Extend<ConfigError> for ConfigErrors {
    fn extend<I: IntoIterator<Item = ConfigError>>(&mut self, errors: I) {
        self.0.extend(errors);
        self.0
            .sort_by(|a, b| (a.position, &a.key).cmp(&(b.position, &b.key)));
        self.0.dedup();
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
