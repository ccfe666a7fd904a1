//! Who runs PostgreSQL's programs: this process's user, or, for root, another one.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::process::Stdio;

use nix::unistd::{User, geteuid};
use tokio::process::Command;

use crate::error::{Error, While};

/// The user that PostgreSQL's programs run as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    /// The user of this process.
    Own,
    /// Another one: PostgreSQL refuses to run as root.
    Other { uid: u32, gid: u32 },
}

impl Account {
    /// For root: the owner of `data` where that exists, else the user `postgres`, else `nobody`.
    pub(crate) fn for_data(data: &Path) -> Result<Self, Error> {
        if !geteuid().is_root() {
            return Ok(Self::Own);
        }
        match data.metadata() {
            Ok(data) if data.uid() != 0 => {
                return Ok(Self::Other {
                    uid: data.uid(),
                    gid: data.gid(),
                });
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).to("look at the data folder");
            }
            _ => {}
        }
        for name in ["postgres", "nobody"] {
            if let Some(user) = User::from_name(name).to("look up a user")? {
                return Ok(Self::Other {
                    uid: user.uid.as_raw(),
                    gid: user.gid.as_raw(),
                });
            }
        }
        Err(Error::NoAccount)
    }

    /// The user id that the programs run under.
    pub(crate) fn uid(self) -> u32 {
        match self {
            Self::Own => geteuid().as_raw(),
            Self::Other { uid, .. } => uid,
        }
    }

    /// A command that runs as this user, deaf to the terminal's signals and to the caller's `PG*` variables.
    pub(crate) fn command(self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.process_group(0).stdin(Stdio::null());
        for (name, _) in env::vars_os() {
            if name.as_bytes().starts_with(b"PG") {
                command.env_remove(name);
            }
        }
        if let Self::Other { uid, gid } = self {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Makes `path` belong to this user.
    pub(crate) fn own(self, path: &Path) -> io::Result<()> {
        match self {
            Self::Own => Ok(()),
            Self::Other { uid, gid } => chown(path, Some(uid), Some(gid)),
        }
    }

    /// Whether this user can enter `folder`.
    pub(crate) async fn can_enter(self, folder: &Path) -> Result<bool, Error> {
        // Asked of the system, because mode bits are not all that decides (access lists, mounts).
        self.command("sh")
            .args(["-c", r#"cd "$1""#, "sh"])
            .arg(folder)
            .current_dir("/")
            .stderr(Stdio::null())
            .status()
            .await
            .map(|status| status.success())
            .to("run sh")
    }
}
