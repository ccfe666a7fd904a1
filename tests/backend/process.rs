//! The program itself, as its operator runs it.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{ExitStatus, Output, Stdio};
use std::{env, fs};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::NamedTempFile;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;
use xmtp_test_support::{PATIENCE, TestDatabase, eventually};

/// What the program did and said, once it has ended.
pub(crate) async fn run<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Output {
    output(program(arguments)).await
}

/// The same, with more in its environment.
#[cfg(feature = "auth")]
pub(crate) async fn run_in<A: AsRef<OsStr>>(
    environment: &[(&str, &str)],
    arguments: impl IntoIterator<Item = A>,
) -> Output {
    let mut program = program(arguments);
    program.envs(environment.iter().copied());
    output(program).await
}

async fn output(mut program: Command) -> Output {
    timeout(PATIENCE, program.output())
        .await
        .expect("the program ends by itself")
        .expect("the program starts")
}

/// The program with a clean environment: the configuration is in the arguments alone.
fn program<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    // `ci/boot-matrix` has other builds looked at.
    let built = || env!("CARGO_BIN_EXE_xmtp-backend").into();
    let mut command = Command::new(env::var_os("XMTP_BOOT_PROGRAM").unwrap_or_else(built));
    command
        .args(arguments)
        .env_remove("XMTP_CONFIG")
        .env_remove("OTEL_EXPORTER_OTLP_ENDPOINT")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// The least document that serves `database`, on a port that the system chooses; `settings` are lines of
/// dotted keys, which come before those that are here.
pub(crate) fn document(database: &TestDatabase, settings: &str) -> String {
    let url = format!("{:?}", database.url());
    let least = [
        ("server.identifier", "\"org.example.test\""),
        ("server.listen", "\"127.0.0.1:0\""),
        ("server.log_format", "\"json\""),
        ("telemetry.metrics_listen", "\"\""),
        ("database.url", &url),
    ];
    let mut lines = vec![settings.to_owned()];
    for (key, value) in least {
        if !settings.contains(key) {
            lines.push(format!("{key} = {value}"));
        }
    }
    lines.join("\n")
}

/// A running server, killed with the value.
pub(crate) struct Process {
    child: Child,
    /// Both of its outputs.
    log: NamedTempFile,
    pub(crate) address: SocketAddr,
}

impl Process {
    /// Serves `database`; answers when it does.
    pub(crate) async fn serve(database: &TestDatabase, settings: &str) -> Self {
        let document = document(database, settings);
        Self::start(program(["serve", "--config", &document]), serving).await
    }

    /// Serves what a whole document says, with these variables in its environment.
    pub(crate) async fn serve_document(document: &str, variables: &[(&str, &str)]) -> Self {
        let mut program = program(["serve", "--config", document]);
        program.envs(variables.iter().copied());
        Self::start(program, serving).await
    }

    /// Serves `database` with these variables in its environment.
    pub(crate) async fn serve_where(
        database: &TestDatabase,
        settings: &str,
        variables: &[(&str, &str)],
    ) -> Self {
        Self::serve_document(&document(database, settings), variables).await
    }

    /// Serves `database` on `address`, without a word in its log.
    #[cfg(feature = "otlp")]
    pub(crate) async fn serve_silently(
        database: &TestDatabase,
        address: SocketAddr,
        settings: &str,
    ) -> Self {
        let settings =
            format!("server.log_level = \"off\"\nserver.listen = \"{address}\"\n{settings}");
        let document = document(database, &settings);
        let answers = |_: &str| {
            let stream = std::net::TcpStream::connect(address);
            stream.is_ok().then_some(address)
        };
        let program = program(["serve", "--config", &document]);
        Self::start(program, answers).await
    }

    /// Serves with a database of the program's own, in `folder`.
    #[cfg(feature = "embedded-postgres")]
    pub(crate) async fn dev(folder: &Path) -> Self {
        let folder = folder.to_str().expect("a temporary path is Unicode");
        let ports = ["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"];
        let arguments = ["dev", "--folder", folder].into_iter().chain(ports);
        Self::start(program(arguments), |said| {
            let (_, rest) = said.split_once("listens on http://")?;
            rest.split_once(' ')?.0.parse().ok()
        })
        .await
    }

    /// Starts `program`, whose output says at which address it serves.
    async fn start(mut program: Command, address: impl Fn(&str) -> Option<SocketAddr>) -> Self {
        let log = NamedTempFile::new().expect("a temporary file");
        let output = || log.reopen().expect("the log can be opened again");
        let mut child = program
            .stdout(output())
            .stderr(output())
            .spawn()
            .expect("the program starts");
        let address = eventually("the server serves", async || {
            let said = read(log.path());
            let ended = child.try_wait().expect("the program can be waited for");
            assert!(ended.is_none(), "the server ended with {ended:?}: {said}");
            address(&said)
        })
        .await;
        Self {
            child,
            log,
            address,
        }
    }

    /// Serves `database` with a log that nobody reads any more once it serves; also answers the log, to be kept.
    pub(crate) async fn serve_unread(
        database: &TestDatabase,
        settings: &str,
    ) -> (Child, Lines<BufReader<ChildStdout>>, SocketAddr) {
        let document = document(database, settings);
        let mut child = program(["serve", "--config", &document])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let address = loop {
            let line = timeout(PATIENCE, lines.next_line())
                .await
                .expect("the server serves");
            let line = line.expect("it writes text").expect("it has not ended");
            if let Some(address) = serving(&line) {
                break address;
            }
        };
        (child, lines, address)
    }

    /// The URL for clients.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Everything that it has written.
    pub(crate) fn log(&self) -> String {
        read(self.log.path())
    }

    /// Where its telemetry is.
    #[cfg(feature = "otlp")]
    pub(crate) fn telemetry(&self) -> SocketAddr {
        announced(&self.log(), "telemetry is served").expect("it is configured")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("the program runs")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid().try_into().expect("a process id"));
        kill(pid, signal).expect("the program takes signals");
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        timeout(PATIENCE, self.child.wait())
            .await
            .expect("the program ends")
            .expect("the program can be waited for")
    }

    /// Ends it as a power cut would, and waits until it is gone.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("the program can be killed");
    }
}

/// The address at which a server serves.
fn serving(said: &str) -> Option<SocketAddr> {
    announced(said, "serving")
}

/// The address in the line with a message: `{..., "message": "serving", "local_addr": "127.0.0.1:50123", ...}`.
fn announced(said: &str, message: &str) -> Option<SocketAddr> {
    let (_, rest) = said.split_once(&format!("\"{message}\",\"local_addr\":\""))?;
    rest.split_once('"')?.0.parse().ok()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("the program writes text")
}
