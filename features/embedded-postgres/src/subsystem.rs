//! How the server reaches this crate: `database.url = "embedded:FOLDER"`.

use std::path::{Path, PathBuf};

use futures::FutureExt;
use futures::future::BoxFuture;
use secrecy::{ExposeSecret, SecretString};
use xmtp_server::config::ConfigErrors;
use xmtp_server::subsystem::{
    Configure, DatabaseProvider, ProvidedDatabase, Subsystem, SubsystemError,
};

use crate::EmbeddedPostgres;

/// Scheme of the database URLs that name a folder.
pub const SCHEME: &str = "embedded";

/// The subsystem. It does nothing unless the configuration asks for an embedded database.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmbeddedPostgresSubsystem;

impl Subsystem for EmbeddedPostgresSubsystem {
    fn name(&self) -> &'static str {
        "embedded-postgres"
    }

    fn configure(&mut self, context: &mut Configure<'_>) -> Result<(), ConfigErrors> {
        context.database_provider(SCHEME, *self);
        Ok(())
    }
}

impl DatabaseProvider for EmbeddedPostgresSubsystem {
    fn start<'a>(
        &'a self,
        address: &'a SecretString,
    ) -> BoxFuture<'a, Result<Box<dyn ProvidedDatabase>, SubsystemError>> {
        async move {
            let folder = folder(address.expose_secret());
            let database = EmbeddedPostgres::start(&folder).await?;
            Ok(Box::new(database) as Box<dyn ProvidedDatabase>)
        }
        .boxed()
    }
}

impl ProvidedDatabase for EmbeddedPostgres {
    fn url(&self) -> SecretString {
        EmbeddedPostgres::url(self)
    }

    fn stop(self: Box<Self>) -> BoxFuture<'static, Result<(), SubsystemError>> {
        async move { Ok(EmbeddedPostgres::stop(*self).await?) }.boxed()
    }
}

/// The folder that `embedded:FOLDER` names.
fn folder(address: &str) -> PathBuf {
    let folder = address
        .split_once(':')
        .map_or(address, |(_, folder)| folder);
    Path::new(folder).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_what_follows_the_scheme() {
        assert_eq!(folder("embedded:data/postgres"), Path::new("data/postgres"));
        assert_eq!(folder("embedded:/var/lib/x:y"), Path::new("/var/lib/x:y"));
    }
}
