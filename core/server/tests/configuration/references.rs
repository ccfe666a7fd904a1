use xmtp_server::config::sections::LogLevel;
use xmtp_server::config::{Build, Config, ConfigErrors, Document};

use crate::{SECRET, minimal, shown, with};

fn load(text: &str) -> Result<Config, ConfigErrors> {
    let variable = |name: &str| match name {
        "LEVEL" => Some("debug".to_owned()),
        "REFERENCE" => Some("env:LEVEL".to_owned()),
        "EMPTY" => Some(String::new()),
        "SECRET" => Some(SECRET.to_owned()),
        _ => None,
    };
    Document::parse(text, Build::default(), variable).and_then(|mut it| Config::load(&mut it))
}

#[test]
fn arc_101_an_enum_can_come_from_the_environment() {
    let config = load(&with("server.log_level", "\"env:LEVEL\"")).expect("a configuration");
    assert_eq!(config.server.log_level, LogLevel::Debug);
}

#[test]
fn arc_101_references_resolve_in_nested_tables_and_arrays() {
    let text = with("telemetry.resource_attributes", "{ level = \"env:LEVEL\" }");
    let config = load(&text).expect("a configuration");
    assert_eq!(&*config.telemetry.resource_attributes["level"], "debug");

    let text = "mixed = [1, [\"env:LEVEL\"], { word = \"env:LEVEL\" }]";
    let variable = |_: &str| Some("found".to_owned());
    let mut document = Document::parse(text, Build::default(), variable).expect("a document");
    let mixed: (u8, Vec<String>, std::collections::BTreeMap<String, String>) =
        document.take("mixed").expect("decodes").expect("is there");
    assert_eq!(
        (mixed.1[0].as_str(), mixed.2["word"].as_str()),
        ("found", "found")
    );
}

#[test]
fn arc_101_a_resolved_text_is_not_looked_at_again() {
    let config = load(&with("telemetry.service_name", "\"env:REFERENCE\"")).expect("loads");
    assert_eq!(config.telemetry.service_name.as_str(), "env:LEVEL");
}

#[test]
fn arc_101_keys_are_not_resolved() {
    let text = with("telemetry.resource_attributes", "{ \"env:LEVEL\" = \"x\" }");
    let config = load(&text).expect("a configuration");
    assert!(
        config
            .telemetry
            .resource_attributes
            .contains_key("env:LEVEL")
    );
}

#[test]
fn arc_101_a_resolved_text_is_held_to_the_form_of_its_key() {
    let errors = load(&with("server.listen", "\"env:SECRET\"")).expect_err("not an address");
    assert!(shown(&errors)[0].starts_with("server.listen (line 2, column 10): expected"));
    let config = load(&with("telemetry.metrics_listen", "\"env:EMPTY\"")).expect("loads");
    assert_eq!(config.telemetry.metrics_listen.0, None);
}

#[test]
fn arc_101_every_missing_variable_is_named() {
    let text = with("server.log_level", "\"env:ABSENT_ONE\"") + "[stray]\nx = [\"env:ABSENT_TWO\"]";
    assert_eq!(
        shown(&load(&text).expect_err("two variables")),
        [
            "server.log_level (line 2, column 13): \
             environment variable ABSENT_ONE is not set, or is not Unicode",
            "stray.x[0] (line 7, column 6): \
             environment variable ABSENT_TWO is not set, or is not Unicode",
        ]
    );
}

#[test]
fn arc_101_a_reference_needs_a_possible_name() {
    for name in ["", "A=B", "A\\u0000B"] {
        let text = with("server.log_level", &format!("\"env:{name}\""));
        assert_eq!(
            shown(&load(&text).expect_err("no name")),
            ["server.log_level (line 2, column 13): the env: reference has no usable name"]
        );
    }
}

#[test]
fn arc_101_numbers_and_switches_cannot_come_from_the_environment() {
    for (key, expected) in [
        ("mls.max_group_members", "an integer from 1 to 65535"),
        ("mls.commit_log_enabled", "a boolean"),
    ] {
        let errors = load(&with(key, "\"env:SECRET\"")).expect_err("a string");
        assert!(shown(&errors)[0].ends_with(expected));
    }
    assert!(load(&minimal()).is_ok());
}
