//! The program, serving one database.

use std::fs;
use std::net::SocketAddr;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tonic::transport::{Channel, Endpoint};
use xmtp_test_support::TestDatabase;

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
        let document = format!(
            "server.identifier = \"org.example.bench\"\n\
             server.listen = \"127.0.0.1:0\"\n\
             server.log_format = \"json\"\n\
             telemetry.metrics_listen = \"\"\n\
             database.url = {url:?}\n\
             {settings}\n"
        );
        let mut child = Command::new(env!("CARGO_BIN_EXE_xmtp-backend"))
            .args(["serve", "--config", &document])
            .env_remove("XMTP_CONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the program starts");
        let output = child.stdout.take().expect("the output is a pipe");
        let mut lines = BufReader::new(output).lines();
        let address = loop {
            let line = lines.next_line().await.expect("the program writes text");
            let line = line.expect("the program serves");
            if let Some((_, rest)) = line.split_once("\"serving\",\"local_addr\":\"") {
                let (address, _) = rest.split_once('"').expect("an address has an end");
                break address.parse().expect("an address");
            }
        };
        // Nobody reads on, and the program must not wait for that.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { address, child }
    }

    /// A connection of its own.
    pub(crate) async fn connect(&self) -> Channel {
        connect(self.address).await
    }

    /// Resident memory, bytes.
    pub(crate) fn memory(&self) -> f64 {
        memory(&self.child)
    }
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
