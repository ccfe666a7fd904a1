//! The effective value of every key, and where it comes from: what `config show` prints.

use std::fmt;

use serde_json::Value as Schema;
use toml::Value;

use super::document::{Document, join};
use super::error::Position;
use super::schema::{OwnedSchema, entries, is_section};

/// One key as it will be served.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Dotted path, with zero-based array positions.
    pub key: String,
    /// The value as TOML writes it; [`Setting::REDACTED`] for a secret, `env:NAME` for what the environment holds.
    pub value: String,
    /// Where it comes from.
    pub origin: Origin,
}

impl Setting {
    /// Stands for a secret that is written in the document itself.
    pub const REDACTED: &str = "\"<redacted>\"";
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The document does not mention the key.
    Default,
    /// The document, at a place.
    Document(Position),
    /// A variable that the document refers to, at a place.
    Environment(Position),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Document(place) => write!(f, "line {}", place.line),
            Self::Environment(place) => write!(f, "environment, line {}", place.line),
        }
    }
}

impl Document {
    /// Every key that `schema` knows, in its order, with what the document says of it. To be asked before
    /// owners take their parts. A key without a default that is not written is left out, and so is a
    /// section of `owned` that is not written.
    ///
    /// No secret is shown: the schema marks one by `writeOnly`, and what came from the environment is shown
    /// by its reference; of an address in clear, what may carry credentials is left out (ARC-101).
    pub fn settings(&self, schema: &Schema, owned: &[OwnedSchema]) -> Vec<Setting> {
        let optional: Vec<&str> = owned.iter().map(|part| part.path).collect();
        let mut settings = Vec::new();
        self.table(&mut Vec::new(), schema, &optional, &mut settings);
        settings
    }

    fn table<'s>(
        &self,
        path: &mut Vec<&'s str>,
        schema: &'s Schema,
        optional: &[&str],
        settings: &mut Vec<Setting>,
    ) {
        for (name, schema) in entries(schema) {
            path.push(name);
            let key = path
                .iter()
                .fold(String::new(), |key, name| join(&key, name));
            let written = self.written(path);
            match written {
                _ if is_section(schema) => {
                    if written.is_some() || !optional.contains(&key.as_str()) {
                        self.table(path, schema, optional, settings);
                    }
                }
                Some(value) => self.value(&key, value, schema, settings),
                None => settings.extend(default(key, schema)),
            }
            path.pop();
        }
    }

    /// A written value; a table and an array of tables by what is in them.
    fn value(&self, key: &str, value: &Value, schema: &Schema, settings: &mut Vec<Setting>) {
        match value {
            Value::Table(table) => {
                for (name, value) in table {
                    let schema = match &schema["properties"][name] {
                        Schema::Null => &schema["additionalProperties"],
                        schema => schema,
                    };
                    self.value(&join(key, name), value, schema, settings);
                }
            }
            Value::Array(items) => {
                for (index, value) in items.iter().enumerate() {
                    self.value(
                        &format!("{key}[{index}]"),
                        value,
                        &schema["items"],
                        settings,
                    );
                }
            }
            value => {
                let place = self.position(key);
                let (value, origin) = match self.variable(key) {
                    Some(name) => (format!("\"env:{name}\""), Origin::Environment(place)),
                    None if schema["writeOnly"] == true => {
                        (Setting::REDACTED.to_owned(), Origin::Document(place))
                    }
                    None => (shown(value), Origin::Document(place)),
                };
                settings.push(Setting {
                    key: key.to_owned(),
                    value,
                    origin,
                });
            }
        }
    }
}

/// A value as it is shown: an address without what carries credentials in it.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => Value::String(without_credentials(text)).to_string(),
        value => value.to_string(),
    }
}

/// An address without its user, password, query and fragment; any other text as it is.
fn without_credentials(text: &str) -> String {
    const HIDDEN: &str = "<redacted>";
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let (place, more) = match rest.find(['?', '#']) {
        Some(end) => (&rest[..end], format!("{}{HIDDEN}", &rest[end..=end])),
        None => (rest, String::new()),
    };
    let (authority, path) = place.split_at(place.find('/').unwrap_or(place.len()));
    let authority = match authority.rsplit_once('@') {
        Some((_, host)) => format!("{HIDDEN}@{host}"),
        None => authority.to_owned(),
    };
    format!("{scheme}://{authority}{path}{more}")
}

/// An empty array is no setting: nothing is configured by it.
fn default(key: String, schema: &Schema) -> Option<Setting> {
    let value = schema.get("default").filter(|value| !value.is_array())?;
    Some(Setting {
        key,
        value: value.to_string(),
        origin: Origin::Default,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arc_101_an_address_is_shown_without_what_carries_credentials() {
        for (written, shown) in [
            ("http://c:4317/p?key=s", "http://c:4317/p?<redacted>"),
            ("https://c#s", "https://c#<redacted>"),
            ("https://u:s@c/p", "https://<redacted>@c/p"),
            ("https://s@u@c?s@x/y", "https://<redacted>@c?<redacted>"),
            ("https://c/a@b", "https://c/a@b"),
            ("no address?", "no address?"),
        ] {
            assert_eq!(without_credentials(written), shown);
        }
    }
}
