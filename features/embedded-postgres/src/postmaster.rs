//! The life of one server process: cluster, start, readiness, end.

use std::fs::{self, File};
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Child;
use tokio::time::{Instant, sleep, timeout};

use crate::error::{Error, While};
use crate::folder::Folder;
use crate::installation::Installation;

/// How often a state that only shows in files is looked at.
const POLL: Duration = Duration::from_millis(20);
/// A server that replays much of its log after a crash takes its time.
const START_LIMIT: Duration = Duration::from_mins(5);
/// How long a server of an earlier run has to stop.
const EARLIER_SERVER_LIMIT: Duration = Duration::from_mins(1);
/// How long a fast shutdown has before an immediate one.
const FAST_LIMIT: Duration = Duration::from_secs(30);
/// How long an immediate shutdown has before the process is killed.
const IMMEDIATE_LIMIT: Duration = Duration::from_secs(5);
/// How much of the server's log an error carries, in bytes.
const LOG_EXCERPT: usize = 4096;

/// Settings of every start, which outrank the cluster's own file.
///
/// Durability is not for sale. A log line of the server holds no statement, no key of a row and no parameter.
/// `max_locks_per_transaction` x `max_connections` (100) locks are enough for a full pool of the largest publishes.
const SETTINGS: [&str; 9] = [
    "listen_addresses=",
    "port=5432",
    "unix_socket_permissions=0700",
    "fsync=on",
    "full_page_writes=on",
    "synchronous_commit=on",
    "max_locks_per_transaction=256",
    "log_error_verbosity=terse",
    "log_min_error_statement=panic",
];

/// A running server that takes connections. Dropping it asks it for a fast shutdown, without waiting.
#[derive(Debug)]
pub(crate) struct Postmaster {
    process: Child,
    pid: u32,
}

impl Postmaster {
    /// Starts the server of `folder` and waits until it takes connections.
    pub(crate) async fn start(folder: &Folder, programs: &Installation) -> Result<Self, Error> {
        let lock = take_server_lock(folder, programs).await?;
        // The lock says that no server lives: the file is of one that was killed, and its process id may be another's.
        match fs::remove_file(folder.pid_file()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).to("remove the process id of a killed server");
            }
            _ => {}
        }
        initialise(folder, programs).await?;
        let log = File::create(folder.log()).to("open the server's log")?;
        let mut command = programs.command("postgres");
        command.arg("-D").arg(folder.data());
        for setting in SETTINGS {
            command.arg("-c").arg(setting);
        }
        command
            .arg("-c")
            .arg(format!(
                "unix_socket_directories={}",
                quoted(folder.socket_folder())
            ))
            .stdin(Stdio::from(lock))
            .stdout(Stdio::null())
            .stderr(Stdio::from(log));
        let process = command.spawn().to("start the server")?;
        let pid = process
            .id()
            .ok_or_else(|| io::Error::other("no process id"));
        let mut postmaster = Self {
            process,
            pid: pid.to("start the server")?,
        };
        postmaster.wait_until_ready(folder).await?;
        Ok(postmaster)
    }

    /// The process id of the server.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for the end of the server. Can be dropped and called again.
    pub(crate) async fn ended(&mut self) -> Result<ExitStatus, Error> {
        self.process.wait().await.to("wait for the server")
    }

    /// Stops the server: fast, which ends its sessions and writes everything back; when that takes more than
    /// [`FAST_LIMIT`] immediately; killed at last. Committed data survives each of them.
    pub(crate) async fn stop(&mut self) -> Result<(), Error> {
        for (signal, limit) in [
            (Signal::SIGINT, FAST_LIMIT),
            (Signal::SIGQUIT, IMMEDIATE_LIMIT),
        ] {
            self.send(signal)?;
            if let Ok(ended) = timeout(limit, self.ended()).await {
                return ended.map(|_| ());
            }
            tracing::warn!(%signal, ?limit, "the embedded PostgreSQL does not stop");
        }
        self.process.kill().await.to("kill the server")
    }

    fn send(&self, signal: Signal) -> Result<(), Error> {
        match (self.process.id(), i32::try_from(self.pid)) {
            // Not yet waited for, so the id is still this child's own.
            (Some(_), Ok(pid)) => kill(Pid::from_raw(pid), signal).to("signal the server"),
            _ => Ok(()),
        }
    }

    async fn wait_until_ready(&mut self, folder: &Folder) -> Result<(), Error> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if let Some(status) = self.process.try_wait().to("wait for the server")? {
                return Err(Error::ServerEnded {
                    status,
                    log: end_of_log(folder)?,
                });
            }
            if self.says_ready(folder)? {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Error::NotReady { limit: START_LIMIT });
            }
            sleep(POLL).await;
        }
    }

    /// Reads what the server says of itself: its process id in the first line of its file, its state in the eighth.
    fn says_ready(&self, folder: &Folder) -> Result<bool, Error> {
        let text = match fs::read_to_string(folder.pid_file()) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error).to("read the server's state"),
        };
        let mut lines = text.lines().map(str::trim);
        let is_ours = lines.next() == Some(&self.pid.to_string());
        Ok(is_ours && lines.nth(6) == Some("ready"))
    }
}

impl Drop for Postmaster {
    fn drop(&mut self) {
        if let Err(error) = self.send(Signal::SIGINT) {
            tracing::warn!(%error, "cannot stop the embedded PostgreSQL");
        }
    }
}

/// Waits for the lock that says that no server lives, asking one of an earlier run to stop.
async fn take_server_lock(folder: &Folder, programs: &Installation) -> Result<File, Error> {
    if let Some(lock) = folder.try_server_lock()? {
        return Ok(lock);
    }
    tracing::warn!(
        "a PostgreSQL server of an earlier run still uses the database folder: stopping it"
    );
    // It may be on its way already, or its postmaster may be dead and only sessions left that will notice: whether
    // this succeeds says nothing, the lock does.
    programs
        .command("pg_ctl")
        .args(["stop", "--mode=fast", "--no-wait", "--silent", "--pgdata"])
        .arg(folder.data())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .await
        .to("run pg_ctl")?;
    let deadline = Instant::now() + EARLIER_SERVER_LIMIT;
    while Instant::now() < deadline {
        if let Some(lock) = folder.try_server_lock()? {
            return Ok(lock);
        }
        sleep(POLL).await;
    }
    Err(Error::EarlierServer {
        folder: folder.path().to_owned(),
        limit: EARLIER_SERVER_LIMIT,
    })
}

/// Creates the cluster unless there is one. It gets its name when it is whole, so that an interrupted attempt leaves
/// nothing that looks like data.
async fn initialise(folder: &Folder, programs: &Installation) -> Result<(), Error> {
    if folder.data_version()?.is_some() {
        return Ok(());
    }
    let unfinished = folder.path().join("data.unfinished");
    match fs::remove_dir_all(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).to("remove an unfinished database");
        }
        _ => {}
    }
    let done = programs
        .command("initdb")
        .arg("--pgdata")
        .arg(&unfinished)
        .args([
            "--username=postgres",
            "--auth-local=trust",
            "--auth-host=reject",
        ])
        .args(["--encoding=UTF8", "--locale=C", "--data-checksums"])
        .stdout(Stdio::null())
        .output()
        .await
        .to("run initdb")?;
    if !done.status.success() {
        return Err(Error::Initdb {
            status: done.status,
            stderr: String::from_utf8_lossy(&done.stderr).into_owned(),
        });
    }
    fs::rename(&unfinished, folder.data())
        .and_then(|()| File::open(folder.path())?.sync_all())
        .to("put the new database in place")
}

/// An element of a list setting, whatever characters the path has.
fn quoted(folder: &str) -> String {
    format!("\"{}\"", folder.replace('"', "\"\""))
}

fn end_of_log(folder: &Folder) -> Result<String, Error> {
    let log = fs::read(folder.log()).to("read the server's log")?;
    let excerpt = &log[log.len().saturating_sub(LOG_EXCERPT)..];
    Ok(String::from_utf8_lossy(excerpt).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::mem;

    use secrecy::ExposeSecret;
    use sqlx::{Connection, PgConnection, raw_sql};
    use tempfile::TempDir;

    use super::*;
    use crate::EmbeddedPostgres;

    #[tokio::test]
    async fn a_server_that_nobody_watches_any_more_is_stopped_at_the_next_start() {
        let path = TempDir::new().unwrap();
        let EmbeddedPostgres {
            mut watchdog,
            postmaster,
            folder,
        } = EmbeddedPostgres::start(path.path()).await.unwrap();
        let url = crate::url(&folder);
        let mut session = PgConnection::connect(url.expose_secret()).await.unwrap();
        raw_sql("CREATE TABLE kept (a int)")
            .execute(&mut session)
            .await
            .unwrap();
        // As after a kill of both this process and the watchdog: the server runs on.
        watchdog.dismiss().await.unwrap();
        mem::forget(postmaster);
        drop(folder);
        session.ping().await.unwrap();

        let server = EmbeddedPostgres::start(path.path()).await.unwrap();
        session.ping().await.unwrap_err();
        let mut session = PgConnection::connect(server.url().expose_secret())
            .await
            .unwrap();
        raw_sql("INSERT INTO kept VALUES (1)")
            .execute(&mut session)
            .await
            .unwrap();
        server.stop().await.unwrap();
    }

    #[test]
    fn list_settings_take_any_path() {
        assert_eq!(quoted(r#"/a,b "c""#), r#""/a,b ""c""""#);
    }
}
