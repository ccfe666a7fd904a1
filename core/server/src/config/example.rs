//! The example document: every key with its description and its default, generated from the
//! schema.

use std::fmt::Write as _;

use serde_json::Value;

use super::document::join;
use super::scalar::MAX_INTEGER;
use super::schema::{OwnedSchema, entries, is_section, words};

/// Columns of a comment.
const WIDTH: usize = 96;

/// The example for `schema`. Core's keys stand with their defaults; a subsystem's are commented
/// out, because a build may lack the subsystem and because a section may switch something on.
pub fn example(schema: &Value, owned: &[OwnedSchema]) -> String {
    let mut page = Page {
        text: "#:schema ../schemas/backend-v1.json\n".to_owned(),
        owned: owned.iter().map(|part| part.path).collect(),
    };
    page.comment(
        "Every key of xmtp-backend, with its meaning and its default. What is commented out has \
         no default, or belongs to an optional subsystem. Any string may be \"env:NAME\": then \
         the variable's content stands in its place.",
    );
    page.table("", schema, "");
    page.text
}

struct Page<'o> {
    text: String,
    owned: Vec<&'o str>,
}

impl Page<'_> {
    /// The keys of a table, and after them the tables in it.
    fn table(&mut self, path: &str, table: &Value, mark: &str) {
        for (key, value) in entries(table) {
            if !is_section(value) && !is_array_of_tables(value) {
                self.key(path, table, key, value, mark);
            }
        }
        for (key, value) in entries(table) {
            let path = join(path, key);
            let mark = if self.is_owned(&path) { "# " } else { mark };
            if is_section(value) {
                self.describe(value);
                self.line(mark, &format!("[{path}]"));
                self.table(&path, value, mark);
            } else if is_array_of_tables(value) {
                self.describe(&value["items"]);
                self.line("# ", &format!("[[{path}]]"));
                self.table(&path, &value["items"], "# ");
            }
        }
    }

    fn key(&mut self, path: &str, table: &Value, key: &str, value: &Value, mark: &str) {
        let required = table["required"]
            .as_array()
            .is_some_and(|keys| keys.contains(&key.into()));
        let settled = required || value.get("default").is_some();
        let mark = if settled && !self.is_owned(&join(path, key)) {
            mark
        } else {
            "# "
        };
        self.describe(value);
        self.line(mark, &format!("{key} = {}", sample(value)));
    }

    fn is_owned(&self, path: &str) -> bool {
        self.owned.contains(&path)
    }

    /// The description as a comment, with the bounds of a number and the words of an enum.
    fn describe(&mut self, schema: &Value) {
        let mut text = schema["description"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if let (Some(least), Some(most)) = (schema.get("minimum"), schema.get("maximum")) {
            let _ = match most.as_u64() {
                Some(MAX_INTEGER) => write!(text, " At least {least}."),
                _ => write!(text, " From {least} to {most}."),
            };
        }
        let words: Vec<_> = words(schema).collect();
        if !words.is_empty() {
            let _ = write!(text, " One of: {}.", words.join(", "));
        }
        self.text.push('\n');
        self.comment(&text);
    }

    fn comment(&mut self, text: &str) {
        let mut line = "#".to_owned();
        for word in text.split_whitespace() {
            if line.len() + 1 + word.len() > WIDTH {
                self.line("", &line);
                "#".clone_into(&mut line);
            }
            line.push(' ');
            line.push_str(word);
        }
        self.line("", &line);
    }

    fn line(&mut self, mark: &str, line: &str) {
        self.text.push_str(mark);
        self.text.push_str(line);
        self.text.push('\n');
    }
}

fn is_array_of_tables(schema: &Value) -> bool {
    is_section(&schema["items"])
}

/// A value to show, as TOML: the default, else an example, else the first that is allowed.
fn sample(schema: &Value) -> String {
    let value = schema.get("default").or_else(|| schema["examples"].get(0));
    match value.or_else(|| schema.get("minimum")) {
        Some(value) => value.to_string(),
        None => words(schema)
            .next()
            .map_or("true".to_owned(), |word| format!("{word:?}")),
    }
}
