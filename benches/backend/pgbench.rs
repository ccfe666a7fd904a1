//! The other side: `pgbench`, with the statements of the backend, and rounds of both in turns.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tempfile::NamedTempFile;
use tokio::process::Command;
use xmtp_test_support::TestDatabase;

use crate::clients::CLIENTS;
use crate::figures::median;

/// Names the folder of PostgreSQL's programs; set by `ci/postgres run`.
const BIN_VARIABLE: &str = "XMTP_POSTGRES_BIN";

/// Rounds of each side, after one that warms up.
const ROUNDS: usize = 9;
/// Length of a round.
const ROUND: Duration = Duration::from_secs(5);

/// Threads of pgbench.
const THREADS: usize = 2;

/// The bounds that the backend gives each of its sessions: PostgreSQL keeps a timer for every one of them.
const SESSION: &str = "-c statement_timeout=5000 -c transaction_timeout=10000 \
                       -c client_connection_check_interval=500";

/// A database and what to run on it.
pub(crate) struct Pgbench {
    program: PathBuf,
    url: String,
    script: NamedTempFile,
}

impl Pgbench {
    /// Runs `script` on `database`.
    pub(crate) fn new(database: &TestDatabase, script: &str) -> Self {
        let folder = env::var_os(BIN_VARIABLE).expect("XMTP_POSTGRES_BIN names the programs");
        let file = NamedTempFile::new().expect("a temporary file");
        fs::write(file.path(), script).expect("the script can be written");
        // Behind the question mark are parameters that only our driver knows.
        let url = database.url();
        let url = url.split('?').next().unwrap_or_default().to_owned();
        Self {
            program: PathBuf::from(folder).join("pgbench"),
            url,
            script: file,
        }
    }

    /// Runs the script for `time`, in whole seconds; answers transactions a second.
    async fn run(&self, time: Duration) -> f64 {
        let output = Command::new(&self.program)
            .args(["--no-vacuum", "--protocol=prepared"])
            .arg(format!("--client={CLIENTS}"))
            .arg(format!("--jobs={THREADS}"))
            .arg(format!("--time={}", time.as_secs()))
            .arg("--file")
            .arg(self.script.path())
            .arg(&self.url)
            .env("PGOPTIONS", SESSION)
            .stdin(Stdio::null())
            .output()
            .await
            .expect("pgbench starts");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("number of failed transactions: 0 "),
            "pgbench failed: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let line = said.lines().find_map(|line| line.strip_prefix("tps = "));
        let figure = line.and_then(|line| line.split(' ').next());
        figure
            .and_then(|figure| figure.parse().ok())
            .expect("pgbench says its throughput")
    }
}

/// Runs the backend and pgbench in turns, and prints what each did a second; answers the share of pgbench's
/// median that the backend's is. `ours` loads the backend with [`CLIENTS`] clients for a time.
pub(crate) async fn share(ours: impl AsyncFn(Duration) -> f64, pgbench: &Pgbench) -> f64 {
    println!("{:>6}  {:>8}  {:>8}", "round", "backend", "pgbench");
    let mut sides = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let figures = (ours(ROUND).await, pgbench.run(ROUND).await);
        if round == 0 {
            print_line("warmup", figures);
        } else {
            print_line(&round.to_string(), figures);
            sides.0.push(figures.0);
            sides.1.push(figures.1);
        }
    }
    let medians = (median(sides.0), median(sides.1));
    print_line("median", medians);
    medians.0 / medians.1
}

fn print_line(name: &str, (ours, theirs): (f64, f64)) {
    println!("{name:>6}  {ours:>8.0}  {theirs:>8.0}");
}
