//! A PostgreSQL server of the program's own, for `xmtp-backend dev` and for small installations: one folder holds all
//! of it, and it lives as long as the program.
//!
//! The server listens on a socket inside the folder, which only the user that runs it can enter: there is no port to
//! find and no password to keep. Committed data is durable, as with any other server. One process at a time uses a
//! folder; what an earlier one left behind when it was killed, a running server included, is cleared at the next start.
//!
//! PostgreSQL refuses to run as root. Where this process is root, the server runs as the owner of the data, and for new
//! data as the user `postgres` or else `nobody`; the folder then belongs to that user.

#![cfg(unix)]

mod account;
mod error;
mod folder;
mod installation;
mod postmaster;
mod subsystem;
mod watchdog;

use std::path::Path;
use std::process::ExitStatus;

use secrecy::SecretString;

use account::Account;
use folder::Folder;
use installation::Installation;
use postmaster::Postmaster;
use watchdog::Watchdog;

pub use error::Error;
pub use installation::{BIN_VARIABLE, OLDEST_VERSION};
pub use subsystem::{EmbeddedPostgresSubsystem, SCHEME};

/// A running server. Dropping it asks the server for a fast shutdown without waiting for it; so does the end of this
/// process, in whatever way it ends.
#[derive(Debug)]
pub struct EmbeddedPostgres {
    // In the order in which they go when the value is dropped: the folder is free for others last.
    watchdog: Watchdog,
    postmaster: Postmaster,
    folder: Folder,
}

impl EmbeddedPostgres {
    /// Starts the server of `folder`, which is created when it is not there, and waits until it takes connections.
    ///
    /// The programs are those in the folder that [`BIN_VARIABLE`] names; else the newest installed ones of version
    /// [`OLDEST_VERSION`] or later, of the version that wrote the data where there is some; else a pinned release,
    /// fetched into `folder`.
    ///
    /// # Errors
    /// Every variant of [`Error`]. The server is told to stop then, as it is when the future is dropped.
    pub async fn start(folder: &Path) -> Result<Self, Error> {
        let folder = Folder::take(folder).await?;
        if let Account::Other { uid, .. } = folder.account() {
            tracing::info!(
                uid,
                "this process is root: PostgreSQL runs as another user, which owns its folder"
            );
        }
        let installation = Installation::find(&folder).await?;
        let postmaster = Postmaster::start(&folder, &installation).await?;
        let watchdog = Watchdog::over(postmaster.pid(), &folder)?;
        tracing::info!(
            pid = postmaster.pid(),
            "the embedded PostgreSQL takes connections"
        );
        Ok(Self {
            watchdog,
            postmaster,
            folder,
        })
    }

    /// The URL of the server's database, for its superuser.
    pub fn url(&self) -> SecretString {
        url(&self.folder)
    }

    /// The process id of the server.
    pub fn pid(&self) -> u32 {
        self.postmaster.pid()
    }

    /// Waits for the end of a server that nobody stopped: a backend without its database has to end too. Can be
    /// dropped and called again.
    ///
    /// # Errors
    /// [`Error::Io`] when the process cannot be waited for.
    pub async fn ended(&mut self) -> Result<ExitStatus, Error> {
        let status = self.postmaster.ended().await?;
        self.watchdog.dismiss().await?;
        Ok(status)
    }

    /// Stops the server within 35 seconds: its sessions end, open transactions roll back, everything is written back.
    ///
    /// # Errors
    /// [`Error::Io`] when a process cannot be signalled or waited for.
    pub async fn stop(mut self) -> Result<(), Error> {
        self.postmaster.stop().await?;
        self.watchdog.dismiss().await
    }
}

fn url(folder: &Folder) -> SecretString {
    let host: String = folder
        .socket_folder()
        .bytes()
        .map(percent_encoded)
        .collect();
    format!("postgres://postgres@{host}:5432/postgres").into()
}

/// One byte of a path as the host part of a URL.
fn percent_encoded(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() {
        char::from(byte).to_string()
    } else {
        format!("%{byte:02X}")
    }
}
