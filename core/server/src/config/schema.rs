//! The published JSON Schema (draft 2020-12): core's sections and the parts of the subsystems, each
//! generated from the types that decode it.

use schemars::consts::meta_schemas::DRAFT2020_12;
use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Config;
use super::sections::DatabaseUrl;

/// Where the schema is published.
const ID: &str = "https://example.org/xmtp-backend/schemas/backend-v1.json";

/// An `env:` reference: a name without `=` and NUL.
const REFERENCE: &str = r"^env:[^=\u0000\r\n]+(?!\n)$";

fn reference() -> Value {
    json!({ "type": "string", "pattern": REFERENCE })
}

/// The schema of a part that a subsystem owns.
#[derive(Clone, Debug)]
pub struct OwnedSchema {
    /// Dotted path of the part.
    pub path: &'static str,
    schema: Map<String, Value>,
}

impl OwnedSchema {
    /// Of a table, or of a key without a default.
    pub fn section<T: JsonSchema>(path: &'static str) -> Self {
        Self {
            path,
            schema: generate::<T>(),
        }
    }

    /// Of a single key in somebody else's table.
    pub fn key<T: JsonSchema + Default + Serialize>(
        path: &'static str,
        description: &'static str,
    ) -> Self {
        let mut schema = generate::<T>();
        schema.insert("description".to_owned(), description.into());
        schema.insert("default".to_owned(), json!(T::default()));
        Self { path, schema }
    }
}

/// The schema of one type, nothing referred to elsewhere.
pub(super) fn generate<T: JsonSchema>() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    publish(&mut schema);
    schema.ensure_object().clone()
}

/// The schema of the whole document, with the parts of `owned` and with `url_schemes` beside core's
/// own for `database.url`. Print it with `{:#}`.
pub fn schema(owned: &[OwnedSchema], url_schemes: &[&str]) -> Value {
    let head = [("$schema", DRAFT2020_12), ("$id", ID)];
    let head = head.map(|(key, value)| (key.to_owned(), value.into()));
    let mut root: Value = head.into_iter().chain(generate::<Config>()).collect();
    root["properties"]["database"]["properties"]["url"]["anyOf"] =
        json!([{ "pattern": url_pattern(url_schemes) }, reference()]);

    let mut owned: Vec<_> = owned.iter().collect();
    owned.sort_by_key(|part| part.path);
    for part in owned {
        let (tables, key) = part.path.rsplit_once('.').unwrap_or(("", part.path));
        let mut table = &mut root;
        for name in tables.split('.').filter(|name| !name.is_empty()) {
            table = &mut table["properties"][name];
            if table.is_null() {
                *table = json!({ "type": "object", "additionalProperties": false });
            }
        }
        table["properties"][key] = part.schema.clone().into();
    }
    root
}

fn url_pattern(url_schemes: &[&str]) -> String {
    let core =
        DatabaseUrl::SCHEMES.map(|scheme| format!(r"{scheme}://(?:[^\s%]|%[0-9A-Fa-f]{{2}})*"));
    let others = url_schemes.iter().map(|scheme| format!("{scheme}:.+"));
    let forms: Vec<_> = core.into_iter().chain(others).collect();
    format!(r"^(?:{})(?!\n)$", forms.join("|"))
}

/// What the document's language adds to what serde's types say: TOML has no null, and every string
/// may be an `env:` reference.
fn publish(schema: &mut Schema) {
    transform_subschemas(&mut publish, schema);
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    if let Some(Value::Array(types)) = object.get("type")
        && let [only, Value::String(null)] = types.as_slice()
        && null == "null"
    {
        let only = only.clone();
        object.insert("type".to_owned(), only);
    }
    if object.get("default") == Some(&Value::Null) {
        object.remove("default");
    }
    if let Some(Value::String(text)) = object.get_mut("description") {
        *text = text.replace('\n', " ");
    }
    for restriction in ["pattern", "enum"] {
        if object.get("type") == Some(&json!("string"))
            && let Some(rule) = object.remove(restriction)
        {
            let alternatives = json!([{ restriction: rule }, reference()]);
            object.insert("anyOf".to_owned(), alternatives);
        }
    }
    // A documented enum: one constant for each word.
    let word = |case: &Value| case.get("const").is_some_and(Value::is_string);
    if let Some(Value::Array(cases)) = object.get("oneOf")
        && cases.iter().all(word)
    {
        let mut cases = cases.clone();
        cases.push(reference());
        object.remove("oneOf");
        object.insert("anyOf".to_owned(), cases.into());
    }
}

/// Whether the schema is of a table with keys of its own, and not a map.
pub(super) fn is_section(schema: &Value) -> bool {
    schema.get("properties").is_some()
}

/// The keys of a table, in order.
pub(super) fn entries(table: &Value) -> impl Iterator<Item = (&String, &Value)> {
    table["properties"]
        .as_object()
        .into_iter()
        .flat_map(Map::iter)
}

/// The words of an enum.
pub(super) fn words(schema: &Value) -> impl Iterator<Item = &str> {
    let cases = schema["anyOf"].as_array().into_iter().flatten();
    cases.filter_map(|case| case["const"].as_str())
}
