//! Core's sections, one file each. The doc comment of a key is also its description in the schema
//! and in the example document.

mod application_components;
mod database;
mod limits;
mod mls;
mod publishing;
mod retention;
mod server;
mod streams;
mod telemetry;

pub use application_components::{
    ApplicationComponent, ComponentName, ComponentType, Policy, WELL_KNOWN_NAMES,
};
pub use database::{Database, DatabaseUrl, PostgresUrl};
pub(super) use limits::ENVELOPE_OVERHEAD;
pub use limits::Limits;
pub use mls::Mls;
pub use publishing::Publishing;
pub use retention::Retention;
pub use server::{ClientVersion, Identifier, ListenAddress, LogFormat, LogLevel, Server};
pub use streams::Streams;
pub use telemetry::{MetricsAddress, ResourceAttributes, ServiceName, Telemetry};
