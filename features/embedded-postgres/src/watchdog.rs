//! Stops the server when this process ends without doing so.

use std::process::Stdio;

use tokio::process::Child;

use crate::error::{Error, While};
use crate::folder::Folder;

/// Waits for the end of its standard input, then asks the postmaster for a fast shutdown.
///
/// The process id is compared with `postmaster.pid`, so that one given to another process by then gets no signal.
const SCRIPT: &str =
    r#"read -r _; read -r running <"$1" && [ "$running" = "$2" ] && kill -INT "$2""#;

/// A process that outlives this one by a moment. It holds the reading end of a pipe whose writing end is here: the
/// system closes that however this process ends.
#[derive(Debug)]
pub(crate) struct Watchdog(Child);

impl Watchdog {
    /// Watches over the postmaster `pid` of `folder`.
    pub(crate) fn over(pid: u32, folder: &Folder) -> Result<Self, Error> {
        let mut command = folder.account().command("sh");
        command
            .args(["-c", SCRIPT, "xmtp-postgres-watchdog"])
            .arg(folder.pid_file())
            .arg(pid.to_string())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(Self(command.spawn().to("start the server's watchdog")?))
    }

    /// Ends the watch, because there is no server any more.
    pub(crate) async fn dismiss(&mut self) -> Result<(), Error> {
        self.0.kill().await.to("end the server's watchdog")
    }
}
