//! The program, serving one database.

use std::ffi::OsStr;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::sink;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tonic::transport::{Channel, Endpoint};
use xmtp_test_support::{TestDatabase, eventually};

/// A running server, killed with the value.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    child: Child,
}

impl Server {
    /// Serves `database`; `settings` are further lines of dotted keys.
    pub(crate) async fn start(database: &TestDatabase, settings: &str) -> Self {
        Self::on(&database.url(), settings).await
    }

    /// Serves the database at `url`.
    pub(crate) async fn on(url: &str, settings: &str) -> Self {
        let settings =
            format!("server.log_format = \"json\"\ntelemetry.metrics_listen = \"\"\n{settings}");
        Self::with(url, &settings).await
    }

    /// Serves the database at `url` with these settings and no other.
    pub(crate) async fn with(url: &str, settings: &str) -> Self {
        Self::of(env!("CARGO_BIN_EXE_xmtp-backend"), url, settings).await
    }

    /// The same, by another build of the program.
    pub(crate) async fn of(program: impl AsRef<OsStr>, url: &str, settings: &str) -> Self {
        let address = free_address();
        let document = format!(
            "server.identifier = \"org.example.bench\"\n\
             server.listen = \"{address}\"\n\
             database.url = {url:?}\n\
             {settings}\n"
        );
        let mut child = Command::new(program)
            .args(["serve", "--config", &document])
            .env_remove("XMTP_CONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the program starts");
        let mut output = child.stdout.take().expect("the output is a pipe");
        // The program must not wait for a reader.
        tokio::spawn(async move { tokio::io::copy(&mut output, &mut sink()).await });
        eventually("the program serves", async || {
            TcpStream::connect(address).await.ok()
        })
        .await;
        Self { address, child }
    }

    /// A connection of its own.
    pub(crate) async fn connect(&self) -> Channel {
        connect(self.address).await
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) {
        let pid = self.child.id().expect("it runs").try_into();
        let pid = Pid::from_raw(pid.expect("a process id"));
        kill(pid, Signal::SIGTERM).expect("the program takes signals");
    }

    /// Waits for its end, which has to be a success.
    pub(crate) async fn ended(mut self) {
        let ended = self.child.wait().await.expect("it can be waited for");
        assert!(ended.success(), "the program ends by itself: {ended}");
    }

    /// Processor time that it has spent, seconds.
    pub(crate) fn processor_time(&self) -> f64 {
        let pid = self.child.id().expect("it runs");
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the system tells");
        // After the name, which may hold anything: the state, ten numbers, and the two that are wanted.
        let (_, fields) = stat.rsplit_once(')').expect("the name has an end");
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks = fields[11..13].iter().map(|ticks| {
            let ticks: u32 = ticks.parse().expect("a number");
            f64::from(ticks)
        });
        // A tick is a hundredth of a second.
        ticks.sum::<f64>() / 100.0
    }

    /// Resident memory, bytes.
    pub(crate) fn memory(&self) -> f64 {
        memory(&self.child)
    }
}

/// An address that nobody listens on.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|free| free.local_addr())
        .expect("there is a free port")
}

/// Connects with windows that hold back nobody.
pub(crate) async fn connect(address: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("a URL");
    endpoint
        .initial_stream_window_size(8 << 20)
        .initial_connection_window_size(32 << 20)
        .connect()
        .await
        .expect("the server takes connections")
}

/// Resident memory of a process, bytes.
pub(crate) fn memory(child: &Child) -> f64 {
    let pid = child.id().expect("it runs");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the system tells");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kilobytes: u32 = kilobytes
        .and_then(|text| text.parse().ok())
        .expect("the system tells it in kB");
    f64::from(kilobytes) * 1024.0
}
