//! The reference page: every key with its type, unit, bounds, default and meaning, generated from the
//! schema.

use std::fmt::Write as _;

use serde_json::Value;

use super::document::join;
use super::scalar::MAX_INTEGER;
use super::schema::{OwnedSchema, entries, is_section, words};

/// The page for `schema`, in Markdown. A key of `owned` is in builds that have its subsystem.
pub fn reference(schema: &Value, owned: &[OwnedSchema]) -> String {
    let mut page = "# Configuration\n\n\
        Written by `ci/generated` from the types that decode the document. One TOML document has every key; an \
        unknown one is refused. Any string may be `env:NAME`: then the content of that environment variable stands \
        in its place. `xmtp-backend config check` names every problem of a document, `config show` says which \
        value applies and where it comes from, and [example.toml](example.toml) is a document to start from. \
        Bounds are inclusive.\n"
        .to_owned();
    let optional: Vec<&str> = owned.iter().map(|part| part.path).collect();
    table(&mut page, "", schema, &optional);
    page
}

fn table(page: &mut String, path: &str, schema: &Value, optional: &[&str]) {
    let mut rows = String::new();
    for (key, value) in entries(schema) {
        if !is_section(value) && !is_section(&value["items"]) {
            row(&mut rows, path, schema, key, value, optional);
        }
    }
    if !rows.is_empty() {
        let head = "| key | type | unit | bounds | default | meaning | requirement |";
        let _ = write!(page, "\n{head}\n|---|---|---|---|---|---|---|\n{rows}");
    }
    for (key, value) in entries(schema) {
        let (path, inner, brackets) = match path {
            "" if is_section(value) => (key.clone(), value, ("[", "]")),
            _ if is_section(value) => (format!("{path}.{key}"), value, ("[", "]")),
            "" if is_section(&value["items"]) => (key.clone(), &value["items"], ("[[", "]]")),
            _ if is_section(&value["items"]) => {
                (format!("{path}.{key}"), &value["items"], ("[[", "]]"))
            }
            _ => continue,
        };
        let (open, close) = brackets;
        let (meaning, _) = meaning(inner);
        let _ = write!(page, "\n## `{open}{path}{close}`\n\n{meaning}\n");
        table(page, &path, inner, optional);
    }
}

fn row(rows: &mut String, path: &str, schema: &Value, key: &str, value: &Value, optional: &[&str]) {
    let required = schema["required"]
        .as_array()
        .is_some_and(|keys| keys.contains(&key.into()));
    let default = match value.get("default") {
        Some(default) => format!("`{default}`"),
        None if required => "required".to_owned(),
        None => "none".to_owned(),
    };
    let (mut meaning, mut requirements) = meaning(value);
    if requirements.is_empty() {
        (_, requirements) = self::meaning(schema);
    }
    if optional.contains(&join(path, key).as_str()) {
        meaning.push_str(" In builds that have its subsystem.");
    }
    let cells = [
        format!("`{key}`"),
        kind(value),
        unit(key).to_owned(),
        bounds(value),
        default,
        meaning,
        requirements.join(", "),
    ];
    let cells = cells.map(|cell| cell.replace('|', "\\|"));
    let _ = writeln!(rows, "| {} |", cells.join(" | "));
}

fn kind(schema: &Value) -> String {
    let words: Vec<String> = words(schema).map(|word| format!("`{word}`")).collect();
    if !words.is_empty() {
        return words.join(", ");
    }
    match schema["type"].as_str() {
        Some("object") => "table of strings",
        Some(kind) => kind,
        None => "any",
    }
    .to_owned()
}

/// What a number counts, which the names of keys end with.
fn unit(key: &str) -> &'static str {
    match key.rsplit('_').next() {
        Some("ms") => "milliseconds",
        Some("seconds") => "seconds",
        Some("bytes") => "bytes",
        Some("second") => "frames a second",
        _ => "",
    }
}

fn bounds(schema: &Value) -> String {
    match (schema.get("minimum"), schema.get("maximum")) {
        (Some(least), Some(most)) if most.as_u64() == Some(MAX_INTEGER) => {
            format!("at least {least}")
        }
        (Some(least), Some(most)) => format!("{least} to {most}"),
        _ => String::new(),
    }
}

/// The description without its references, and the references.
fn meaning(schema: &Value) -> (String, Vec<String>) {
    let text = schema["description"].as_str().unwrap_or_default();
    let mut meaning = String::new();
    let mut requirements = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(" (") {
        let Some((inside, after)) = after.split_once(')') else {
            break;
        };
        meaning.push_str(before);
        let mut references = inside.split(", ");
        if references.clone().all(is_requirement) {
            requirements.extend(references.by_ref().map(str::to_owned));
        } else {
            let _ = write!(meaning, " ({inside})");
        }
        rest = after;
    }
    meaning.push_str(rest);
    (meaning, requirements)
}

/// `ARC-100`.
fn is_requirement(text: &str) -> bool {
    text.split_once('-').is_some_and(|(family, number)| {
        family.chars().all(|c| c.is_ascii_uppercase())
            && number.len() == 3
            && number.chars().all(|c| c.is_ascii_digit())
    })
}
