//! Configuration: one TOML document, of which every part has one owner.
//!
//! [`Source`] selects where the document comes from and reads it. [`Document`] parses it, resolves
//! its `env:` references, and hands each subsystem the paths that it owns. [`Config::load`] then
//! takes core's [`sections`], refuses what nobody owns, and runs the [`checks`] across keys.
//! [`schema()`] and [`example()`] describe the same types to editors and people.
//!
//! The type of a key is its whole rule: bounds, form and default. No error and no `Debug` of
//! anything here shows a configured value (ARC-101).

pub mod checks;
mod decode;
mod document;
mod error;
mod example;
pub mod scalar;
mod schema;
pub mod sections;
mod socket;
mod source;
pub mod text;

use schemars::JsonSchema;

pub use document::{AbsentSubsystem, Build, Document};
pub use error::{ConfigError, ConfigErrors, Position, Refusal};
pub use example::example;
pub use schema::{OwnedSchema, schema};
pub use source::{Source, SourceError};

use sections::{
    ApplicationComponent, Database, Limits, Mls, Publishing, Retention, Server, Streams, Telemetry,
};

/// Core's part of the document, checked.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(
    deny_unknown_fields,
    title = "Configuration of xmtp-backend",
    description = "Every key, with its meaning, bounds and default."
)]
#[expect(
    missing_docs,
    reason = "the type of each section describes it, here and in the schema"
)]
pub struct Config {
    pub server: Server,
    #[schemars(default)]
    pub telemetry: Telemetry,
    pub database: Database,
    #[schemars(default)]
    pub publishing: Publishing,
    #[schemars(default)]
    pub streams: Streams,
    #[schemars(default)]
    pub retention: Retention,
    #[schemars(default)]
    pub limits: Limits,
    #[schemars(default)]
    pub mls: Mls,
    #[schemars(default)]
    pub application_components: Vec<ApplicationComponent>,
}

impl Config {
    /// Takes core's sections, after every subsystem has taken its parts.
    ///
    /// # Errors
    ///
    /// At least one error for each section that does not decode, every key that nobody owns and
    /// every key of an absent subsystem; where all sections decode, also every check that failed
    /// (ARC-100).
    pub fn load(document: &mut Document) -> Result<Self, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        let server = errors.keep(document.section("server"));
        let telemetry = errors.keep(document.section("telemetry"));
        let database = errors.keep(document.section("database"));
        let publishing = errors.keep(document.section("publishing"));
        let streams = errors.keep(document.section("streams"));
        let retention = errors.keep(document.section("retention"));
        let limits = errors.keep(document.section("limits"));
        let mls = errors.keep(document.section("mls"));
        let components = errors.keep(document.take("application_components"));
        errors.extend(document.leftovers());
        let (
            Some(server),
            Some(telemetry),
            Some(database),
            Some(publishing),
            Some(streams),
            Some(retention),
            Some(limits),
            Some(mls),
            Some(components),
        ) = (
            server, telemetry, database, publishing, streams, retention, limits, mls, components,
        )
        else {
            return Err(errors);
        };
        let application_components = components.unwrap_or_default();
        let config = Self {
            server,
            telemetry,
            database,
            publishing,
            streams,
            retention,
            limits,
            mls,
            application_components,
        };
        let url = config.database.url.refusal(&document.build);
        errors.extend(url.map(|refusal| document.error("database.url", refusal)));
        errors.extend(
            checks::check(&config)
                .iter()
                .map(|check| document.locate(check)),
        );
        errors.or(config)
    }
}
