//! The folder of an embedded server, and the locks that say who uses it.
//!
//! Two locks, because two processes can outlive each other. `owner.lock` is held by the program that started the
//! server. `server.lock` is the standard input of the server: the postmaster and every process it forks inherit it, so
//! that the lock is free exactly when none of them lives, whatever `postmaster.pid` says and whatever process has that
//! id by now.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::account::Account;
use crate::error::{Error, While};

const OWNER_LOCK: &str = "owner.lock";
const SERVER_LOCK: &str = "server.lock";
const SOCKET: &str = ".s.PGSQL.5432";

/// The longest path of a socket, in bytes: one less than `sun_path` holds.
const SOCKET_PATH_LIMIT: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// A folder that this process owns for as long as the value lives.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    path_text: String,
    account: Account,
    owner: File,
}

impl Folder {
    /// Takes `path` for this process, creating it when needed.
    pub(crate) async fn take(path: &Path) -> Result<Self, Error> {
        refuse_folder_of_others(path)?;
        create(path)?;
        let path = path.canonicalize().to("resolve the database folder")?;
        let path_text = socket_folder(&path)?;
        let owner = open_lock(&path.join(OWNER_LOCK))?;
        match owner.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::FolderInUse { folder: path }),
            Err(TryLockError::Error(error)) => return Err(error).to("lock the database folder"),
        }
        let account = Account::for_data(&path.join("data"))?;
        let folder = Self {
            path,
            path_text,
            account,
            owner,
        };
        // The server lets every local user in that reaches its socket: nobody else may.
        fs::set_permissions(&folder.path, Permissions::from_mode(0o700))
            .and_then(|()| account.own(&folder.path))
            .to("close the database folder to others")?;
        if account.can_enter(&folder.path).await? {
            Ok(folder)
        } else {
            Err(Error::FolderClosed {
                folder: folder.path.clone(),
                uid: account.uid(),
            })
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of the server's socket, which is this one, as text.
    pub(crate) fn socket_folder(&self) -> &str {
        &self.path_text
    }

    pub(crate) fn account(&self) -> Account {
        self.account
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    /// The file in which a live postmaster writes its process id and its state.
    pub(crate) fn pid_file(&self) -> PathBuf {
        self.data().join("postmaster.pid")
    }

    /// The log of the present server; that of the one before is gone.
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("postgres.log")
    }

    /// The major version that wrote the data; `None` when there is none yet.
    pub(crate) fn data_version(&self) -> Result<Option<u32>, Error> {
        match fs::read_to_string(self.data().join("PG_VERSION")) {
            Ok(version) => Ok(version.trim().parse().ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).to("read the version of the data"),
        }
    }

    /// The lock to hand to a server; `None` while an earlier one lives.
    pub(crate) fn try_server_lock(&self) -> Result<Option<File>, Error> {
        let lock = open_lock(&self.path.join(SERVER_LOCK))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(lock)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error).to("lock the server's data"),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Closing alone would leave the lock to a child that was forked just now and has not yet become its program.
        if let Err(error) = self.owner.unlock() {
            tracing::warn!(%error, "cannot unlock the database folder");
        }
    }
}

/// A typing mistake must not close somebody's folder to them.
fn refuse_folder_of_others(path: &Path) -> Result<(), Error> {
    let is_empty = match fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(error).to("look into the database folder"),
    };
    if is_empty || path.join(OWNER_LOCK).exists() {
        Ok(())
    } else {
        Err(Error::FolderNotOurs {
            folder: path.to_owned(),
        })
    }
}

fn create(path: &Path) -> Result<(), Error> {
    const ACTION: &str = "create the database folder";
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).to(ACTION)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error).to(ACTION),
        _ => Ok(()),
    }
}

fn socket_folder(path: &Path) -> Result<String, Error> {
    let limit = SOCKET_PATH_LIMIT - "/".len() - SOCKET.len();
    match path.to_str() {
        Some(text) if text.len() <= limit => Ok(text.to_owned()),
        _ => Err(Error::FolderPath {
            folder: path.to_owned(),
            limit,
        }),
    }
}

fn open_lock(path: &Path) -> Result<File, Error> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .to("open a lock file")
}
