//! The plug: how an optional capability joins the server.
//!
//! The composition root lists its subsystems explicitly. Each goes through phases, and each phase hands
//! it only what exists by then, through a context of that phase:
//!
//! 1. [`Subsystem::configure`]: take its own parts of the document, and register what it offers.
//!
//! A subsystem whose part of the document is absent registers nothing, and then costs nothing.

use std::error::Error;
use std::sync::Arc;

use futures::future::BoxFuture;
use secrecy::SecretString;
use xmtp_protocol::identity::{ChainVerifier, NoChainVerifier};
use xmtp_telemetry::Family;

use crate::config::{ConfigErrors, Document, OwnedSchema};
use crate::telemetry::route::Route;

/// What went wrong inside a subsystem. Shows no configured value.
pub type SubsystemError = Box<dyn Error + Send + Sync>;

/// One optional capability.
pub trait Subsystem: Send {
    /// The name of its cargo feature.
    fn name(&self) -> &'static str;

    /// Schemas of the dotted configuration paths that it owns.
    fn schemas(&self) -> Vec<OwnedSchema> {
        Vec::new()
    }

    /// The words that it adds to telemetry, configured or not: a build that has the subsystem describes its
    /// families (contract decisions, 3).
    fn telemetry(&self) -> TelemetryWords {
        TelemetryWords::default()
    }

    /// Takes its parts out of the document, checks them, and registers what they ask for.
    ///
    /// # Errors
    /// Every problem of its parts, located.
    fn configure(&mut self, context: &mut Configure<'_>) -> Result<(), ConfigErrors>;
}

/// Extension point: what telemetry says of a subsystem.
#[derive(Clone, Copy, Default)]
pub struct TelemetryWords {
    /// Its metric families.
    pub families: &'static [&'static Family],
    /// The paths that it serves.
    pub routes: &'static [Route],
    /// The names of its operation spans.
    pub operations: &'static [&'static str],
}

/// What a subsystem can do while the document is being taken apart.
pub struct Configure<'a> {
    /// The document, without what others have taken.
    pub document: &'a mut Document,
    registrar: &'a mut Registrar,
}

impl<'a> Configure<'a> {
    pub(crate) const fn new(document: &'a mut Document, registrar: &'a mut Registrar) -> Self {
        Self {
            document,
            registrar,
        }
    }

    /// Serves `database.url`s whose scheme is `scheme`.
    pub fn database_provider(
        &mut self,
        scheme: &'static str,
        provider: impl DatabaseProvider + 'static,
    ) {
        self.registrar
            .database_providers
            .push((scheme, Box::new(provider)));
    }

    /// Asks `verifier` about the signatures of contract wallets: those of identity updates, and those
    /// that clients want verified. There is one; the last that is registered is asked.
    pub fn chain_verifier(&mut self, verifier: Arc<dyn ChainVerifier>) {
        self.registrar.chain_verifier = Some(verifier);
    }
}

/// What the subsystems of a server have registered.
#[derive(Default)]
pub(crate) struct Registrar {
    database_providers: Vec<(&'static str, Box<dyn DatabaseProvider>)>,
    chain_verifier: Option<Arc<dyn ChainVerifier>>,
}

impl Registrar {
    /// The provider of a scheme, if a subsystem has registered one.
    pub(crate) fn database_provider(&self, scheme: &str) -> Option<&dyn DatabaseProvider> {
        let mut providers = self.database_providers.iter();
        providers
            .find(|(served, _)| *served == scheme)
            .map(|(_, provider)| provider.as_ref())
    }

    /// What to ask of chains; without a subsystem for it, what knows none.
    pub(crate) fn chain_verifier(&self) -> Arc<dyn ChainVerifier> {
        self.chain_verifier
            .clone()
            .unwrap_or_else(|| Arc::new(NoChainVerifier))
    }
}

/// Extension point: a database that the server brings along.
pub trait DatabaseProvider: Send + Sync {
    /// Starts the database that `address` names, which is the whole configured URL.
    fn start<'a>(
        &'a self,
        address: &'a SecretString,
    ) -> BoxFuture<'a, Result<Box<dyn ProvidedDatabase>, SubsystemError>>;
}

/// A database that runs for this process alone.
pub trait ProvidedDatabase: Send + Sync {
    /// Its `postgres://` address.
    fn url(&self) -> SecretString;

    /// Stops it, in bounded time.
    fn stop(self: Box<Self>) -> BoxFuture<'static, Result<(), SubsystemError>>;
}
