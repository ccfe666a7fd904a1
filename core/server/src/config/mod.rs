//! Configuration: one TOML document, of which every part has one owner.
//!
//! [`Source`] selects where the document comes from and reads it. [`Document`] parses it, resolves
//! its `env:` references, and hands each subsystem the paths that it owns. [`Config::load`] then
//! takes core's [`sections`], refuses what nobody owns, and runs the [`checks`] across keys.
//! [`schema()`], [`example()`] and [`reference()`] describe the same types to editors and people;
//! [`Document::settings`] says what applies and where it comes from.
//!
//! The type of a key is its whole rule: bounds, form and default. No error and no `Debug` of
//! anything here shows a configured value (ARC-101).

pub mod checks;
mod decode;
mod document;
mod error;
mod example;
mod reference;
pub mod scalar;
mod schema;
pub mod sections;
mod settings;
mod socket;
mod source;
pub mod text;

use schemars::JsonSchema;

pub use document::{AbsentSubsystem, Build, Document};
pub use error::{ConfigError, ConfigErrors, Position, Refusal};
pub use example::example;
pub use reference::reference;
pub use schema::{OwnedSchema, schema};
pub use settings::{Origin, Setting};
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
    /// Everything that is wrong: what does not decode, every key that nobody owns, every key of an absent
    /// subsystem, and every check across keys that failed and concerns none of those (ARC-100).
    pub fn load(document: &mut Document) -> Result<Self, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        let sections = Sections::take(document, &mut errors);
        errors.extend(document.leftovers());
        let url = sections.database.as_ref().map(|database| &database.url);
        let url = url.and_then(|url| url.refusal(&document.build));
        let mut failed: Vec<_> = checks::check(&sections)
            .into_iter()
            .filter(|check| !check.keys().any(|key| errors.concern(key)))
            .map(|check| document.locate(&check.error))
            .collect();
        failed.extend(url.map(|refusal| document.error("database.url", refusal)));
        errors.extend(failed);
        match sections.whole() {
            Some(config) => errors.or(config),
            None => Err(errors),
        }
    }
}

/// Core's sections as far as the document has them, with defaults where a key was refused.
struct Sections {
    server: Option<Server>,
    telemetry: Option<Telemetry>,
    database: Option<Database>,
    publishing: Option<Publishing>,
    streams: Option<Streams>,
    retention: Option<Retention>,
    limits: Option<Limits>,
    mls: Option<Mls>,
    application_components: Vec<Option<ApplicationComponent>>,
}

impl Sections {
    fn take(document: &mut Document, errors: &mut ConfigErrors) -> Self {
        Self {
            server: document.section("server", errors),
            telemetry: document.section("telemetry", errors),
            database: document.section("database", errors),
            publishing: document.section("publishing", errors),
            streams: document.section("streams", errors),
            retention: document.section("retention", errors),
            limits: document.section("limits", errors),
            mls: document.section("mls", errors),
            application_components: document.tables("application_components", errors),
        }
    }

    /// The configuration, where no section is missing.
    fn whole(self) -> Option<Config> {
        Some(Config {
            server: self.server?,
            telemetry: self.telemetry?,
            database: self.database?,
            publishing: self.publishing?,
            streams: self.streams?,
            retention: self.retention?,
            limits: self.limits?,
            mls: self.mls?,
            application_components: self
                .application_components
                .into_iter()
                .collect::<Option<_>>()?,
        })
    }
}
