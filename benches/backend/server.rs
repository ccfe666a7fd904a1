//! The program, serving one database.

use std::net::SocketAddr;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// A running server, killed with the value.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    _child: Child,
}

impl Server {
    /// Serves `database`, with the defaults.
    pub(crate) async fn start(database: &str) -> Self {
        let document = format!(
            "server.identifier = \"org.example.bench\"\n\
             server.listen = \"127.0.0.1:0\"\n\
             server.log_format = \"json\"\n\
             telemetry.metrics_listen = \"\"\n\
             database.url = {database:?}\n"
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
        Self {
            address,
            _child: child,
        }
    }
}
