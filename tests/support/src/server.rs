//! A PostgreSQL server of the tests' own, and physical standbys of it.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Weak};

use nix::unistd::{User, geteuid};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use uuid::Uuid;

/// Names the folder of PostgreSQL's programs.
const PROGRAMS_VARIABLE: &str = "XMTP_POSTGRES_BIN";

/// Settings of every server here. A write-ahead log that is kept lets a standby that was down catch up; and it has whole
/// pages, or one that was killed could not replay what it says of databases that were dropped since.
const SETTINGS: &str = "-c listen_addresses=127.0.0.1 -c unix_socket_directories= -c max_connections=200 \
     -c shared_buffers=32MB -c fsync=off -c wal_keep_size=256MB -c autovacuum=off \
     -c wal_receiver_status_interval=1 -c wal_retrieve_retry_interval=100";

/// Waits for the end of its standard input, which is that of the test's process or of the value here; then the server
/// and its folder go.
const CARETAKER: &str =
    r#"read -r _; "$1/pg_ctl" stop --silent --mode=immediate --pgdata "$2/data"; rm -rf "$2""#;

/// A server on a loopback port. It ends with the value, and with the test's process in whatever way that ends.
#[derive(Debug)]
pub struct PostgresServer {
    programs: Programs,
    folder: PathBuf,
    port: u16,
    password: String,
    caretaker: Child,
}

impl PostgresServer {
    /// The primary that the tests of this process share while one of them uses it.
    ///
    /// # Panics
    /// When the server does not start.
    pub async fn shared_primary() -> Arc<Self> {
        static SHARED: Mutex<Weak<PostgresServer>> = Mutex::const_new(Weak::new());
        let mut shared = SHARED.lock().await;
        if let Some(server) = shared.upgrade() {
            return server;
        }
        let server = Arc::new(Self::primary().await);
        *shared = Arc::downgrade(&server);
        server
    }

    /// A cluster of its own.
    ///
    /// # Panics
    /// When the server does not start.
    pub async fn primary() -> Self {
        Self::create(|server| {
            let password = server.folder.join("password");
            fs::write(&password, &server.password).expect("a password can be written");
            server.programs.own(&password);
            let mut initdb = server.programs.command("initdb");
            initdb
                .args([
                    "--username=postgres",
                    "--auth=scram-sha-256",
                    "--encoding=UTF8",
                ])
                .args(["--locale=C", "--no-sync", "--pwfile"])
                .arg(password);
            initdb
        })
        .await
    }

    /// A standby that streams from this server.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn standby(&self) -> Self {
        let (port, password) = (self.port, &self.password);
        let source = format!("host=127.0.0.1 port={port} user=postgres password={password}");
        let password = self.password.clone();
        Self::create(move |server| {
            server.password = password;
            let mut backup = server.programs.command("pg_basebackup");
            backup
                .args([
                    "--write-recovery-conf",
                    "--checkpoint=fast",
                    "--no-sync",
                    "--dbname",
                ])
                .arg(source);
            backup
        })
        .await
    }

    /// Fills a folder with what `filled` runs, which gets the folder of the data as its last argument.
    async fn create(filled: impl FnOnce(&mut Self) -> Command + Send + 'static) -> Self {
        spawn_blocking(|| {
            let programs = Programs::find();
            let folder = programs.scratch();
            let mut caretaker = programs.command("sh");
            caretaker
                .args(["-c", CARETAKER, "caretaker"])
                .args([&programs.folder, &folder])
                .process_group(0)
                .stdin(Stdio::piped());
            let mut server = Self {
                caretaker: caretaker.spawn().expect("a shell starts"),
                programs,
                folder,
                port: free_port(),
                password: Uuid::new_v4().simple().to_string(),
            };
            let mut filling = filled(&mut server);
            let data = server.folder.join("data");
            run(filling.arg("--pgdata").arg(&data));
            // Not among the arguments, so that a test can change it.
            let configuration = data.join("postgresql.conf");
            let file = File::options().append(true).open(configuration);
            let written = file.and_then(|mut file| writeln!(file, "hot_standby_feedback = on"));
            written.expect("a setting can be written");
            server.start_now();
            server
        })
        .await
        .expect("the server starts")
    }

    fn start_now(&mut self) {
        for _ in 0..5 {
            let options = format!("{SETTINGS} -c port={}", self.port);
            let mut start = self.pg_ctl("start");
            start
                .args(["--wait", "--timeout=60", "--options", &options, "--log"])
                .arg(self.folder.join("log"));
            if start.status().expect("pg_ctl runs").success() {
                return;
            }
            // Somebody else may have taken the port.
            self.port = free_port();
        }
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        panic!("the server does not start: {log}");
    }

    /// Starts it again, on another port.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start(mut self) -> Self {
        self.port = free_port();
        let started = spawn_blocking(|| {
            self.start_now();
            self
        });
        started.await.expect("the server starts")
    }

    /// Ends it as a power cut would.
    ///
    /// # Panics
    /// When it cannot be ended.
    pub async fn kill(&self) {
        self.control(["stop", "--mode=immediate"]).await;
    }

    /// Makes a primary of a standby.
    ///
    /// # Panics
    /// When it is none.
    pub async fn promote(&self) {
        self.control(["promote", "--wait"]).await;
    }

    async fn control<const N: usize>(&self, arguments: [&'static str; N]) {
        let mut command = self.pg_ctl(arguments[0]);
        command.args(&arguments[1..]);
        let done = spawn_blocking(move || run(&mut command));
        done.await.expect("the server obeys");
    }

    fn pg_ctl(&self, action: &str) -> Command {
        let mut command = self.programs.command("pg_ctl");
        command
            .args([action, "--silent", "--pgdata"])
            .arg(self.folder.join("data"));
        command
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// How to connect to it, as its superuser.
    pub fn options(&self) -> PgConnectOptions {
        PgConnectOptions::new()
            .host("127.0.0.1")
            .port(self.port)
            .username("postgres")
            .password(&self.password)
            .database("postgres")
    }

    /// Opens a connection to its database `name`.
    ///
    /// # Panics
    /// When the server refuses it.
    pub async fn connect(&self, name: &str) -> PgConnection {
        let options = self.options().database(name);
        let connected = options.connect().await;
        connected.expect("the server takes connections")
    }

    /// Runs statements that answer nothing, each as a transaction of its own.
    ///
    /// # Panics
    /// When one of them fails.
    pub async fn execute(&self, statements: &[&str]) {
        let mut connection = self.connect("postgres").await;
        for statement in statements {
            let done = connection.execute(AssertSqlSafe(*statement)).await;
            done.expect("the test's statements run");
        }
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        drop(self.caretaker.stdin.take());
        // Nothing can be done about a shell that fails.
        let _ = self.caretaker.wait();
    }
}

/// PostgreSQL's programs, and who runs them: it refuses to run as root.
#[derive(Debug)]
struct Programs {
    folder: PathBuf,
    account: Option<(u32, u32)>,
}

impl Programs {
    fn find() -> Self {
        let folder = env::var_os(PROGRAMS_VARIABLE).unwrap_or_else(|| {
            panic!(
                "{PROGRAMS_VARIABLE} is not set: run the tests with `ci/test`, or one command with \
                 `ci/postgres run -- COMMAND`"
            )
        });
        let account = geteuid().is_root().then(|| {
            let mut users = ["postgres", "nobody"].into_iter();
            let user = users.find_map(|name| User::from_name(name).ok().flatten());
            let user = user.expect("there is a user to run PostgreSQL");
            (user.uid.as_raw(), user.gid.as_raw())
        });
        Self {
            folder: folder.into(),
            account,
        }
    }

    /// A folder that the account can enter; root's temporary files may lie where it cannot.
    fn scratch(&self) -> PathBuf {
        let parent = match self.account {
            Some(_) => PathBuf::from("/var/tmp"),
            None => env::temp_dir(),
        };
        let folder = parent.join(format!("xmtp-test-{}", Uuid::new_v4().simple()));
        fs::create_dir(&folder).expect("a folder can be made");
        let private = fs::Permissions::from_mode(0o700);
        fs::set_permissions(&folder, private).expect("a folder can be closed to others");
        self.own(&folder);
        folder
    }

    fn own(&self, path: &Path) {
        if let Some((uid, gid)) = self.account {
            chown(path, Some(uid), Some(gid)).expect("root gives files away");
        }
    }

    /// A program as the account, without the caller's `PG*` variables; `sh` is the system's.
    fn command(&self, name: &str) -> Command {
        let program = match name {
            "sh" => PathBuf::from("sh"),
            name => self.folder.join(name),
        };
        let mut command = Command::new(program);
        command
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let is_theirs = |name: &OsStr| name.as_encoded_bytes().starts_with(b"PG");
        for (name, _) in env::vars_os().filter(|(name, _)| is_theirs(name)) {
            command.env_remove(name);
        }
        if let Some((uid, gid)) = self.account {
            command.uid(uid).gid(gid);
        }
        command
    }
}

fn run(command: &mut Command) {
    let output = command.stderr(Stdio::piped()).output();
    let output = output.expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    let program = command.get_program().display();
    assert!(output.status.success(), "{program}: {said}");
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it is bound").port()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_standby_follows_its_primary_and_both_end_with_the_test() {
        let primary = PostgresServer::primary().await;
        let standby = primary.standby().await;
        primary.execute(&["CREATE TABLE seen ()"]).await;
        let mut connection = standby.connect("postgres").await;
        crate::eventually("the table is there", async || {
            let seen = sqlx::query_scalar("SELECT to_regclass('seen') IS NOT NULL");
            let seen: bool = seen.fetch_one(&mut connection).await.unwrap();
            seen.then_some(())
        })
        .await;
        let folders = [primary.folder.clone(), standby.folder.clone()];
        drop((primary, standby));
        assert!(folders.iter().all(|folder| !folder.exists()));
    }
}
