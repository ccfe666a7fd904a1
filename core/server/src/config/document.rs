//! One TOML document as a tree: `env:` references resolved, places remembered, and parts handed out
//! to their owners.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::checks::CheckError;
use super::decode::{self, Step};
use super::error::{ConfigError, ConfigErrors, Position, Refusal};

/// What marks a string as a reference to an environment variable (ARC-101).
const REFERENCE: &str = "env:";

/// A subsystem that this build lacks, so that its keys are refused by its name and not as unknown.
#[derive(Clone, Copy, Debug)]
pub struct AbsentSubsystem {
    /// Its cargo feature.
    pub feature: &'static str,
    /// The dotted paths that it owns.
    pub paths: &'static [&'static str],
    /// The schemes of `database.url` that it owns.
    pub url_schemes: &'static [&'static str],
}

/// What the document may speak of in this build. The composition root knows; core names no feature.
#[derive(Clone, Copy, Debug, Default)]
pub struct Build {
    /// The subsystems that were left out.
    pub absent: &'static [AbsentSubsystem],
    /// Schemes of `database.url` that present subsystems add to `postgres` and `postgresql`.
    pub url_schemes: &'static [&'static str],
}

/// The document. Each owner takes its part; what is left over then belongs to nobody.
///
/// Subsystems take first and core last, and of two paths the deeper is taken first, since a part
/// leaves the table that contains it.
pub struct Document {
    pub(super) build: Build,
    rest: Table,
    places: BTreeMap<String, Place>,
    claimed: BTreeSet<String>,
    absent: Vec<ConfigError>,
}

#[derive(Clone, Copy)]
struct Place {
    key: Position,
    value: Position,
}

impl Document {
    /// Parses `text` and resolves every `env:NAME` string in it once, over the whole tree, with
    /// `variable` (ARC-101).
    ///
    /// # Errors
    ///
    /// The first place that is not TOML; or every reference that does not resolve and every
    /// integer beyond 64 bits.
    pub fn parse(
        text: &str,
        build: Build,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigErrors> {
        let lines = Lines::new(text);
        let tree = DeTable::parse(text).map_err(|error| ConfigError {
            key: String::new(),
            position: error.span().map(|span| lines.position(span.start)),
            refusal: Refusal::Syntax,
        })?;
        let mut reader = Reader {
            lines,
            variable,
            places: BTreeMap::new(),
            errors: ConfigErrors::default(),
        };
        let rest = reader.table("", tree.into_inner());
        let Reader { places, errors, .. } = reader;
        let document = Self {
            build,
            rest,
            places,
            claimed: BTreeSet::new(),
            absent: Vec::new(),
        };
        errors.or(document).map(Self::without_absent)
    }

    /// Carves out what absent subsystems own, so that no present owner meets it.
    fn without_absent(mut self) -> Self {
        for subsystem in self.build.absent {
            for path in subsystem.paths {
                if self.remove(path).is_some() {
                    let refusal = Refusal::AbsentSubsystem(subsystem.feature);
                    self.absent.push(self.error(path, refusal));
                }
            }
        }
        self
    }

    /// Takes the part at a dotted `path` out of the document, for its owner. `None` where the
    /// document does not have it.
    ///
    /// # Errors
    ///
    /// The part does not decode.
    pub fn take<T: DeserializeOwned>(&mut self, path: &str) -> Result<Option<T>, ConfigErrors> {
        self.remove(path)
            .map(|value| self.decode(path, &value))
            .transpose()
    }

    /// As [`Self::take`], with an absent section read as an empty one.
    pub(super) fn section<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, ConfigErrors> {
        let section = self
            .remove(name)
            .unwrap_or_else(|| Value::Table(Table::new()));
        self.decode(name, &section)
    }

    /// A failed check, with the place of its key.
    #[must_use]
    pub fn locate(&self, check: &CheckError) -> ConfigError {
        self.error(&check.key, Refusal::Check(check.reason))
    }

    pub(super) fn error(&self, key: &str, refusal: Refusal) -> ConfigError {
        let position = self.places.get(key).map(|place| match refusal {
            Refusal::UnknownKey { .. } | Refusal::AbsentSubsystem(_) => place.key,
            _ => place.value,
        });
        ConfigError {
            key: key.to_owned(),
            position,
            refusal,
        }
    }

    /// What nobody took: keys of absent subsystems, and unknown keys.
    pub(super) fn leftovers(&self) -> Vec<ConfigError> {
        let mut errors = self.absent.clone();
        self.unknown("", &self.rest, &mut errors);
        errors
    }

    fn unknown(&self, parent: &str, table: &Table, errors: &mut Vec<ConfigError>) {
        let claimed_below = |path: &str| {
            let prefix = if path.is_empty() {
                String::new()
            } else {
                format!("{path}.")
            };
            self.claimed
                .iter()
                .filter_map(move |claimed| claimed.strip_prefix(&prefix))
        };
        for (key, value) in table {
            let path = join(parent, key);
            match value {
                _ if claimed_below(&path).next().is_none() => {
                    let siblings = claimed_below(parent).filter_map(|path| path.split('.').next());
                    let nearest = decode::nearest(key, siblings);
                    errors.push(self.error(&path, Refusal::UnknownKey { nearest }));
                }
                Value::Table(table) => self.unknown(&path, table, errors),
                _ => errors.push(self.error(&path, Refusal::Expected("a table".to_owned()))),
            }
        }
    }

    fn remove(&mut self, path: &str) -> Option<Value> {
        self.claimed.insert(path.to_owned());
        let (tables, key) = path.rsplit_once('.').unwrap_or(("", path));
        tables
            .split('.')
            .filter(|name| !name.is_empty())
            .try_fold(&mut self.rest, |table, name| {
                table.get_mut(name)?.as_table_mut()
            })?
            .remove(key)
    }

    fn decode<T: DeserializeOwned>(&self, path: &str, value: &Value) -> Result<T, ConfigErrors> {
        decode::decode(value).map_err(|error| {
            let mut key = path.to_owned();
            let mut parent = String::new();
            for step in error.steps() {
                parent.clone_from(&key);
                key = match step {
                    Step::Key(name) => join(&key, name),
                    Step::Index(index) => format!("{key}[{index}]"),
                };
            }
            let mut error = self.error(&key, error.refusal);
            if error.refusal == Refusal::Required {
                error.position = self.places.get(&parent).map(|place| place.value);
            }
            error.into()
        })
    }
}

/// Shows no content: it may hold resolved secrets.
impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document")
            .field("build", &self.build)
            .finish_non_exhaustive()
    }
}

/// Turns the parser's tree into ours.
struct Reader<'t, F> {
    lines: Lines<'t>,
    variable: F,
    places: BTreeMap<String, Place>,
    errors: ConfigErrors,
}

impl<F: Fn(&str) -> Option<String>> Reader<'_, F> {
    fn table(&mut self, path: &str, table: DeTable<'_>) -> Table {
        let mut entries = Table::new();
        for (key, value) in table {
            let path = join(path, key.get_ref());
            let place = Place {
                key: self.lines.position(key.span().start),
                value: self.lines.position(value.span().start),
            };
            self.places.insert(path.clone(), place);
            let value = self.value(&path, place, value.into_inner());
            entries.extend(value.map(|value| (key.into_inner().into_owned(), value)));
        }
        entries
    }

    fn value(&mut self, path: &str, place: Place, value: DeValue<'_>) -> Option<Value> {
        let value = match value {
            DeValue::String(text) => self.resolve(&text).map(Value::String),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .map(Value::Integer)
                .map_err(|_| Refusal::Expected("an integer of at most 64 bits".to_owned())),
            DeValue::Float(number) => number
                .as_str()
                .parse()
                .map(Value::Float)
                .map_err(|_| Refusal::Expected("a number".to_owned())),
            DeValue::Boolean(flag) => Ok(Value::Boolean(flag)),
            DeValue::Datetime(date) => Ok(Value::Datetime(date)),
            DeValue::Table(table) => Ok(Value::Table(self.table(path, table))),
            DeValue::Array(items) => Ok(Value::Array(
                items
                    .into_iter()
                    .enumerate()
                    .filter_map(|(index, item)| {
                        let path = format!("{path}[{index}]");
                        let start = self.lines.position(item.span().start);
                        let place = Place {
                            key: start,
                            value: start,
                        };
                        self.places.insert(path.clone(), place);
                        self.value(&path, place, item.into_inner())
                    })
                    .collect(),
            )),
        };
        value
            .map_err(|refusal| {
                let position = Some(place.value);
                self.errors.extend([ConfigError {
                    key: path.to_owned(),
                    position,
                    refusal,
                }]);
            })
            .ok()
    }

    /// The text, or what the variable that it names holds. That is not looked at again.
    fn resolve(&self, text: &str) -> Result<String, Refusal> {
        match text.strip_prefix(REFERENCE) {
            None => Ok(text.to_owned()),
            Some(name) if name.is_empty() || name.contains(['=', '\0']) => {
                Err(Refusal::VariableName)
            }
            Some(name) => (self.variable)(name).ok_or_else(|| Refusal::Variable(name.to_owned())),
        }
    }
}

/// `parent.key`, the key quoted where TOML would need it.
fn join(parent: &str, key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let dot = if parent.is_empty() { "" } else { "." };
    if !key.is_empty() && key.chars().all(bare) {
        format!("{parent}{dot}{key}")
    } else {
        format!("{parent}{dot}{key:?}")
    }
}

/// Byte offsets to lines and columns.
struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    fn new(text: &'t str) -> Self {
        let breaks = text.match_indices('\n').map(|(index, _)| index + 1);
        Self {
            text,
            starts: std::iter::once(0).chain(breaks).collect(),
        }
    }

    fn position(&self, offset: usize) -> Position {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts[line - 1];
        let before = self.text.get(start..offset).unwrap_or_default();
        Position {
            line,
            column: before.chars().count() + 1,
        }
    }
}
