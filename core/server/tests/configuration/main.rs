//! What an operator may write, what is refused and how, and what is published about it.

mod checks;
mod keys;
mod ownership;
mod published;
mod references;
mod sources;

use xmtp_server::config::{Build, Config, ConfigErrors, Document};

/// Stands wherever a refused document could hold a secret; no error may show it (ARC-101).
const SECRET: &str = "hunter2-Zx9";

/// The least that starts.
fn minimal() -> String {
    format!(
        "[server]\nidentifier = \"org.example.test\"\n\
         [database]\nurl = \"postgres://backend:{SECRET}@localhost/xmtp\"\n"
    )
}

/// The minimal document with one more key, wherever its table is.
fn with(path: &str, value: &str) -> String {
    let (table, key) = path.rsplit_once('.').expect("a path of two names or more");
    let header = format!("[{table}]\n");
    let mut text = minimal();
    if !text.contains(&header) {
        text.push_str(&header);
    }
    text.replace(&header, &format!("{header}{key} = {value}\n"))
}

fn load_in(build: Build, text: &str) -> Result<Config, ConfigErrors> {
    let variable = |name: &str| (name == "SECRET").then(|| SECRET.to_owned());
    Document::parse(text, build, variable).and_then(|mut document| Config::load(&mut document))
}

fn load(text: &str) -> Result<Config, ConfigErrors> {
    load_in(Build::default(), text)
}

/// The errors of a document that must be refused, one line each.
fn refused(text: &str) -> Vec<String> {
    shown(&load(text).expect_err("a refusal"))
}

fn shown(errors: &ConfigErrors) -> Vec<String> {
    assert!(
        !errors.to_string().contains(SECRET),
        "Display shows a secret"
    );
    assert!(
        !format!("{errors:?}").contains(SECRET),
        "Debug shows a secret"
    );
    errors.to_string().lines().map(str::to_owned).collect()
}

#[test]
fn arc_100_identifier_and_database_url_are_enough() {
    let config = load(&minimal()).expect("the minimal document");

    assert_eq!(config.server.identifier.as_str(), "org.example.test");
    assert_eq!(config.server.listen.0.to_string(), "0.0.0.0:5050");
    assert!(config.server.min_libxmtp_version.is_none());
    assert!(config.server.request_logger.0);
    assert!(config.mls.commit_log_enabled.0);
    assert_eq!(config.telemetry.service_name.as_str(), "xmtp-backend");
    assert!((config.telemetry.sample_ratio.get() - 1.0).abs() < f64::EPSILON);
    assert!(config.telemetry.resource_attributes.is_empty());
    assert!(config.application_components.is_empty());
    assert_eq!(config.database.url.scheme(), "postgres");
}

#[test]
fn arc_101_debug_of_document_and_configuration_shows_no_configured_text() {
    let text = with("telemetry.resource_attributes.team", "\"env:SECRET\"")
        .replace("org.example.test", "env:SECRET")
        + "[[application_components]]\ncomponent_id = 49152\nname = \"env:SECRET\"\n\
           component_type = \"bytes\"\ninsert_policy = \"allow\"\nupdate_policy = \"allow\"\n\
           delete_policy = \"deny\"\nin_groups = true\nin_dms = false\n";
    let variable = |_: &str| Some(SECRET.to_owned());
    let mut document = Document::parse(&text, Build::default(), variable).expect("a document");
    let before = format!("{document:?}");
    let config = Config::load(&mut document).expect("a configuration");

    assert_eq!(config.server.identifier.as_str(), SECRET);
    assert_eq!(config.application_components[0].name.as_str(), SECRET);
    assert!(!before.contains(SECRET));
    assert!(!format!("{config:?}").contains(SECRET));
}
