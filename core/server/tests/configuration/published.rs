//! The schema and the example document.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use jsonschema::Validator;
use schemars::JsonSchema;
use serde_json::{Value, json};
use xmtp_server::config::scalar::Int;
use xmtp_server::config::{
    Build, Config, Document, Origin, OwnedSchema, Setting, example, reference, schema,
};

use crate::keys::INTEGERS;
use crate::{SECRET, load, minimal, with};

static CORE: LazyLock<Validator> = LazyLock::new(|| validator(&schema(&[], &[])));

fn validator(schema: &Value) -> Validator {
    jsonschema::draft202012::new(schema).expect("a schema")
}

fn instance(text: &str) -> Value {
    let document: toml::Value = toml::from_str(text).expect("TOML");
    serde_json::to_value(document).expect("JSON")
}

/// Whether core's schema accepts the document.
pub(crate) fn accepts(text: &str) -> bool {
    CORE.is_valid(&instance(text))
}

fn property<'a>(schema: &'a Value, path: &str) -> &'a Value {
    path.split('.')
        .fold(schema, |table, name| &table["properties"][name])
}

#[test]
fn the_schema_is_a_schema_and_takes_the_minimal_document() {
    assert!(jsonschema::meta::is_valid(&schema(&[], &[])));
    assert!(accepts(&minimal()));
    assert!(!accepts(""));
}

#[test]
fn the_schema_publishes_the_defaults_and_bounds_of_the_running_program() {
    let schema = schema(&[], &[]);
    for (key, least, most, default) in INTEGERS {
        let key = property(&schema, key);
        assert_eq!(key["minimum"], json!(least));
        assert_eq!(key["maximum"], json!(most));
        assert_eq!(key["default"].as_f64(), json!(default).as_f64());
    }
    for (key, default) in [
        ("server.listen", json!("0.0.0.0:5050")),
        ("server.log_level", json!("info")),
        ("server.log_format", json!("text")),
        ("server.request_logger", json!(true)),
        ("telemetry.metrics_listen", json!("0.0.0.0:9464")),
        ("telemetry.service_name", json!("xmtp-backend")),
        ("telemetry.resource_attributes", json!({})),
        ("mls.commit_log_enabled", json!(true)),
    ] {
        assert_eq!(property(&schema, key)["default"], default, "{key}");
    }
    assert!(
        property(&schema, "server.min_libxmtp_version")
            .get("default")
            .is_none()
    );
    assert!(property(&schema, "database.url").get("default").is_none());
}

#[test]
fn arc_101_every_restricted_string_may_be_a_reference() {
    for key in [
        "server.min_libxmtp_version",
        "server.listen",
        "server.log_level",
        "server.log_format",
        "telemetry.metrics_listen",
        "telemetry.service_name",
    ] {
        assert!(accepts(&with(key, "\"env:NAME\"")), "{key}");
    }
    for bad in ["env:", "env:A=B", "env:A\\u0000", "env:A\\n"] {
        assert!(
            !accepts(&with("server.listen", &format!("\"{bad}\""))),
            "{bad}"
        );
    }
    let text = minimal().replace("org.example.test", "env:NAME");
    assert!(accepts(&text));
}

#[test]
fn arc_100_every_table_of_the_schema_is_closed_and_every_key_described() {
    fn walk(path: &str, table: &Value) {
        assert_eq!(table["additionalProperties"], json!(false), "{path}");
        assert!(table["description"].is_string(), "{path}");
        for (name, key) in table["properties"].as_object().expect("keys") {
            let path = format!("{path}.{name}");
            match key.get("items").unwrap_or(key) {
                table if table.get("properties").is_some() => walk(&path, table),
                key => {
                    let text = key["description"].as_str().unwrap_or_default();
                    assert!(!text.is_empty() && !text.contains('\n'), "{path}");
                }
            }
        }
    }
    walk("", &schema(&[], &[]));
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only described")]
struct Lamp {
    /// Color of the light.
    color: String,
    /// Watts, if it matters.
    watts: Option<u8>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only described")]
struct Cord {
    /// Meters.
    length: u8,
}

fn owned() -> [OwnedSchema; 4] {
    [
        OwnedSchema::section::<Cord>("lamp.cord"),
        OwnedSchema::section::<Lamp>("lamp"),
        OwnedSchema::key::<Int<1, 9, 3>>("limits.max_lamps", "Lamps of one room."),
        OwnedSchema::key::<Int<1, 9, 3>>("rooms.lamps", "Lamps of one room."),
    ]
}

#[test]
fn schemas_of_subsystems_are_merged_into_the_whole() {
    let schema = schema(&owned(), &["lamplight"]);
    let validator = validator(&schema);
    let takes = |text: &str| validator.is_valid(&instance(text));

    let text = with("limits.max_lamps", "9") + "[rooms]\nlamps = 1\n[lamp]\ncolor = \"red\"\n";
    assert!(takes(&(text.clone() + "[lamp.cord]\nlength = 3\n")));
    assert!(!takes(&(text.clone() + "[lamp.cord]\nlength = true\n")));
    assert!(!takes(&(text.clone() + "size = 3\n")));
    assert!(!takes(&(text + "[rooms.other]\n")));
    assert!(!takes(&with("limits.max_lamps", "10")));
    assert!(!takes(&with("rooms.chairs", "1")));
    assert!(takes(&minimal().replace("postgres://", "lamplight:")));
    assert!(!accepts(&minimal().replace("postgres://", "lamplight:")));

    assert_eq!(property(&schema, "limits.max_lamps")["default"], json!(3));
    assert_eq!(property(&schema, "lamp.watts")["type"], json!("integer"));
}

#[test]
fn the_example_comments_out_what_a_build_may_lack() {
    let owned = owned();
    let text = example(&schema(&owned, &[]), &owned);
    for line in [
        "# max_lamps = 3",
        "# [lamp]",
        "# [lamp.cord]",
        "# [[application_components]]",
    ] {
        assert!(text.lines().any(|it| it == line), "{line}");
    }
    for line in [
        "[limits]",
        "max_query_topics = 1000",
        "url = \"env:XMTP_DATABASE_URL\"",
    ] {
        assert!(text.lines().any(|it| it == line), "{line}");
    }
}

#[test]
fn the_reference_has_every_key_with_a_meaning_and_a_requirement() {
    let owned = owned();
    let text = reference(&schema(&owned, &[]), &owned);
    let mut rows = 0;
    for row in text.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split(" | ").collect();
        assert_eq!(cells.len(), 7, "{row}");
        let from_core = !row.contains("lamp") && !row.contains("`length`");
        let of_test = ["`color`", "`watts`"].iter().any(|key| row.contains(key));
        if from_core && !of_test {
            assert!(cells[6].contains('-'), "no requirement: {row}");
        }
        assert!(!cells[5].is_empty(), "no meaning: {row}");
        rows += 1;
    }
    assert!(rows > INTEGERS.len() + 15, "{rows}");
    for line in [
        "| `max_drain_duration_ms` | integer | milliseconds | at least 1 | `10000` | ",
        "| `max_group_members` | integer |  | 1 to 65535 | `250` | ",
        "| `url` | string |  |  | required | ",
        "## `[[application_components]]`",
        "## `[lamp.cord]`",
        "| `max_lamps` | integer |  | 1 to 9 | `3` | Lamps of one room. In builds that have its subsystem. |",
    ] {
        assert!(text.contains(line), "{line}");
    }
}

/// What `config show` says of a document.
fn settings(text: &str) -> Vec<Setting> {
    let variable = |name: &str| (name == "HIDDEN").then(|| SECRET.to_owned());
    let document = Document::parse(text, Build::default(), variable).expect("a document");
    let settings = document.settings(&schema(&owned(), &[]), &owned());
    assert!(!format!("{settings:?}").contains(SECRET));
    settings
}

fn setting<'a>(settings: &'a [Setting], key: &str) -> &'a Setting {
    let mut found = settings.iter().filter(|setting| setting.key == key);
    let setting = found.next().unwrap_or_else(|| panic!("{key} is missing"));
    assert!(found.next().is_none(), "{key} is there twice");
    setting
}

#[test]
fn arc_101_settings_tell_the_origin_of_each_value_and_no_secret() {
    let text = minimal()
        + "[telemetry]\nservice_name = \"env:HIDDEN\"\nresource_attributes = { \"a.b\" = \"c\" }\n\
           [[application_components]]\nname = \"A\"\n";
    let settings = settings(&text);
    for (key, value, origin) in [
        ("server.identifier", "\"org.example.test\"", "line 2"),
        ("server.listen", "\"0.0.0.0:5050\"", "default"),
        ("database.url", Setting::REDACTED, "line 4"),
        (
            "telemetry.service_name",
            "\"env:HIDDEN\"",
            "environment, line 6",
        ),
        (
            "telemetry.resource_attributes.\"a.b\"",
            Setting::REDACTED,
            "line 7",
        ),
        ("limits.max_query_topics", "1000", "default"),
        ("application_components[0].name", "\"A\"", "line 9"),
    ] {
        let setting = setting(&settings, key);
        assert_eq!(
            (setting.value.as_str(), setting.origin.to_string().as_str()),
            (value, origin)
        );
    }
    // Optional and not written: there is nothing to show.
    for key in [
        "server.min_libxmtp_version",
        "lamp.cord.length",
        "lamp.color",
    ] {
        assert!(settings.iter().all(|setting| setting.key != key), "{key}");
    }
    let of_defaults = settings
        .iter()
        .filter(|setting| setting.origin == Origin::Default);
    assert!(of_defaults.count() > INTEGERS.len());
}

#[test]
fn arc_101_an_address_from_the_environment_is_shown_by_its_reference() {
    let text = "[server]\nidentifier = \"a\"\n[database]\nurl = \"env:HIDDEN\"\n";
    let settings = settings(text);
    assert_eq!(setting(&settings, "database.url").value, "\"env:HIDDEN\"");
}

fn committed(path: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap_or_default()
}

#[test]
fn the_example_loads_and_fits_the_schema() {
    let text = committed("docs/example.toml");
    assert!(text.starts_with("#:schema "));
    assert!(accepts(&text));
    let text = text.replace("env:XMTP_DATABASE_URL", "postgres://localhost/xmtp");
    let config = load(&text).expect("the example");
    assert_eq!(config.server.identifier.as_str(), "org.example.xmtp");

    // Also with everything in it that is commented out.
    let whole: String = text
        .lines()
        .filter(|line| !line.starts_with("#:"))
        .map(|line| match line.strip_prefix("# ") {
            Some(key) if key.starts_with('[') || key.contains(" = ") => format!("{key}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let published: Value =
        serde_json::from_str(&committed("schemas/backend-v1.json")).expect("JSON");
    assert!(validator(&published).is_valid(&instance(&whole)));
    let variable = |_: &str| Some("postgres://localhost/xmtp".to_owned());
    let mut document = Document::parse(&whole, Build::default(), variable).expect("a document");
    for path in of_subsystems(&published, &schema(&[], &[]), "") {
        document.take::<Value>(&path).expect("any value decodes");
    }
    let config = Config::load(&mut document).expect("the whole example");
    assert_eq!(config.application_components.len(), 1);
}

/// The paths of the published schema that core's own lacks: what subsystems own.
fn of_subsystems(published: &Value, core: &Value, parent: &str) -> Vec<String> {
    let keys = published["properties"].as_object().into_iter().flatten();
    let owned = keys.flat_map(|(key, part)| {
        let path = if parent.is_empty() {
            key.clone()
        } else {
            format!("{parent}.{key}")
        };
        match core["properties"].get(key) {
            Some(of_core) => of_subsystems(part, of_core, &path),
            None => vec![path],
        }
    });
    owned.collect()
}
