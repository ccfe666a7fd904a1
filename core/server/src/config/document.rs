//! One TOML document as a tree: `env:` references resolved, places remembered, and parts handed out
//! to their owners.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::checks::CheckError;
use super::decode::{self, Step};
use super::error::{ConfigError, ConfigErrors, Position, Refusal};
use super::schema;

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
    /// Whether another build of this version has it.
    pub exists: bool,
}

impl AbsentSubsystem {
    pub(super) const fn refusal(&self) -> Refusal {
        if self.exists {
            Refusal::AbsentSubsystem(self.feature)
        } else {
            Refusal::UnavailableSubsystem(self.feature)
        }
    }
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
    /// Paths of the values that came from the environment, and the names of their variables.
    references: BTreeMap<String, String>,
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
            position: Some(match error.span() {
                Some(span) => lines.position(span.start),
                None => lines.of_unplaced(),
            }),
            refusal: Refusal::Syntax,
        })?;
        let mut reader = Reader {
            lines,
            variable,
            places: BTreeMap::new(),
            references: BTreeMap::new(),
            errors: ConfigErrors::default(),
        };
        let rest = reader.table("", tree.into_inner());
        let Reader {
            places,
            references,
            errors,
            ..
        } = reader;
        let document = Self {
            build,
            rest,
            places,
            references,
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
                    self.absent.push(self.error(path, subsystem.refusal()));
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
    /// Everything in the part that does not decode, and every required key that it lacks.
    pub fn take<T: DeserializeOwned + JsonSchema>(
        &mut self,
        path: &str,
    ) -> Result<Option<T>, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        let value = self.remove(path);
        let value = value.and_then(|value| self.decode(path, &value, &mut errors));
        errors.or(value)
    }

    /// A section, where an absent one is an empty one. What is refused is added to `errors`; the section
    /// then has defaults in its place, or is missing where there are none.
    pub(super) fn section<T: DeserializeOwned + JsonSchema>(
        &mut self,
        name: &str,
        errors: &mut ConfigErrors,
    ) -> Option<T> {
        let section = self
            .remove(name)
            .unwrap_or_else(|| Value::Table(Table::new()));
        self.decode(name, &section, errors)
    }

    /// The tables of an array, each in its place: those that are refused are missing.
    pub(super) fn tables<T: DeserializeOwned + JsonSchema>(
        &mut self,
        name: &str,
        errors: &mut ConfigErrors,
    ) -> Vec<Option<T>> {
        match self.remove(name) {
            None => Vec::new(),
            Some(Value::Array(tables)) => {
                let tables = tables.iter().enumerate();
                tables
                    .map(|(index, table)| self.decode(&format!("{name}[{index}]"), table, errors))
                    .collect()
            }
            Some(_) => {
                errors.extend([self.error(name, Refusal::Expected("an array".to_owned()))]);
                Vec::new()
            }
        }
    }

    /// A failed check, with the place of its key.
    #[must_use]
    pub fn locate(&self, check: &CheckError) -> ConfigError {
        self.error(&check.key, Refusal::Check(check.reason))
    }

    /// A failed check of the entry `name` of a table whose names the document chooses. A name that is not to be
    /// shown is told by its place alone: whoever swaps the name and the value of a secret has the secret for a
    /// name.
    #[must_use]
    pub fn locate_entry(
        &self,
        table: &str,
        name: &str,
        is_shown: bool,
        reason: &'static str,
    ) -> ConfigError {
        let key = join(table, name);
        let error = self.error(&key, Refusal::Check(reason));
        if is_shown {
            return error;
        }
        ConfigError {
            key: table.to_owned(),
            position: self.places.get(&key).map(|place| place.key),
            ..error
        }
    }

    /// The written value at `path`, before its owner takes it.
    pub(super) fn written(&self, path: &[&str]) -> Option<&Value> {
        let (first, rest) = path.split_first()?;
        rest.iter()
            .try_fold(self.rest.get(*first)?, |value, name| value.get(*name))
    }

    /// Where the value at a dotted `path` stands; the start of the document where it has none.
    pub(super) fn position(&self, path: &str) -> Position {
        let start = Position { line: 1, column: 1 };
        self.places.get(path).map_or(start, |place| place.value)
    }

    /// The variable that the value at a dotted `path` came from, if it did.
    pub(super) fn variable(&self, path: &str) -> Option<&str> {
        self.references.get(path).map(String::as_str)
    }

    pub(super) fn error(&self, key: &str, refusal: Refusal) -> ConfigError {
        let position = self.places.get(key).map(|place| match refusal {
            Refusal::UnknownKey { .. }
            | Refusal::AbsentSubsystem(_)
            | Refusal::UnavailableSubsystem(_) => place.key,
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

    /// Decodes a part, and adds to `errors` what is wrong with it.
    fn decode<T: DeserializeOwned + JsonSchema>(
        &self,
        path: &str,
        value: &Value,
        errors: &mut ConfigErrors,
    ) -> Option<T> {
        let (decoded, refused) = decode::decode(value);
        if refused.is_empty() {
            return decoded;
        }
        for error in refused {
            let key = error.steps().fold(path.to_owned(), |key, step| match step {
                Step::Key(name) => join(&key, name),
                Step::Index(index) => format!("{key}[{index}]"),
            });
            if error.refusal != Refusal::Required {
                errors.extend([self.error(&key, error.refusal)]);
            } else if let Some((table, _)) = key.rsplit_once('.') {
                errors.extend([self.missing(table, &key)]);
            }
        }
        // A pass of the decoder ends at the first key that a table lacks; the schema knows them all.
        let schema = schema::generate::<T>().into();
        self.lacking(path, value, &schema, errors);
        decoded
    }

    fn lacking(
        &self,
        path: &str,
        value: &Value,
        schema: &serde_json::Value,
        errors: &mut ConfigErrors,
    ) {
        let Value::Table(table) = value else {
            return;
        };
        let required = schema["required"].as_array().into_iter().flatten();
        for key in required.filter_map(|key| key.as_str()) {
            if !table.contains_key(key) {
                errors.extend([self.missing(path, &join(path, key))]);
            }
        }
        for (key, value) in table {
            let (path, schema) = (join(path, key), &schema["properties"][key]);
            match value {
                Value::Array(items) => {
                    for (index, item) in items.iter().enumerate() {
                        let path = format!("{path}[{index}]");
                        self.lacking(&path, item, &schema["items"], errors);
                    }
                }
                value => self.lacking(&path, value, schema, errors),
            }
        }
    }

    /// A required key that `table` lacks, at the table's place.
    fn missing(&self, table: &str, key: &str) -> ConfigError {
        ConfigError {
            key: key.to_owned(),
            position: self.places.get(table).map(|place| place.value),
            refusal: Refusal::Required,
        }
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
    references: BTreeMap<String, String>,
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
            DeValue::String(text) => {
                if let Some(name) = text.strip_prefix(REFERENCE) {
                    self.references.insert(path.to_owned(), name.to_owned());
                }
                self.resolve(&text).map(Value::String)
            }
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
pub(super) fn join(parent: &str, key: &str) -> String {
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

    /// The line that brings the error for which the parser names no place, such as too deep a nesting.
    fn of_unplaced(&self) -> Position {
        let is_placed = |start: &usize| {
            let before = DeTable::parse(&self.text[..*start]);
            before.is_ok() || before.is_err_and(|error| error.span().is_some())
        };
        Position {
            line: self.starts.partition_point(is_placed),
            column: 1,
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
