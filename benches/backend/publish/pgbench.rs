//! The other side: `pgbench`, with the statements of a publish as they were seen on the wire.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tempfile::NamedTempFile;
use tokio::process::Command;
use xmtp_test_support::TestDatabase;

use super::wire::Publish;
use super::{CLIENTS, load};

/// Names the folder of PostgreSQL's programs; set by `ci/postgres run`.
const BIN_VARIABLE: &str = "XMTP_POSTGRES_BIN";

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
    pub(crate) fn new(database: &TestDatabase, publish: &Publish) -> Self {
        let folder = env::var_os(BIN_VARIABLE).expect("XMTP_POSTGRES_BIN names the programs");
        let script = NamedTempFile::new().expect("a temporary file");
        fs::write(script.path(), self::script(publish)).expect("the script can be written");
        // Behind the question mark are parameters that only our driver knows.
        let url = database.url();
        let url = url.split('?').next().unwrap_or_default().to_owned();
        Self {
            program: PathBuf::from(folder).join("pgbench"),
            url,
            script,
        }
    }

    /// Runs the script for `time`, in whole seconds; answers transactions a second.
    pub(crate) async fn run(&self, time: Duration) -> f64 {
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

/// The statements, with pgbench's random numbers instead of the envelope that was sent.
fn script(publish: &Publish) -> String {
    let mut script = String::new();
    for variable in ["a", "b", "key"] {
        let _ = writeln!(script, "\\set {variable} random(1, 9000000000000000000)");
    }
    for message in &publish.before_answer {
        let statements: Vec<&str> = message.split(';').map(str::trim).collect();
        // What went in one message goes in one here; the extended protocol has pipelines for that.
        let pipeline = statements.len() > 1;
        if pipeline {
            script.push_str("\\startpipeline\n");
        }
        for statement in statements {
            let _ = writeln!(script, "{};", with_values(statement));
        }
        if pipeline {
            script.push_str("\\endpipeline\n");
        }
    }
    script
}

/// A statement with an expression in place of each parameter, and of the one key in a list of keys.
fn with_values(statement: &str) -> String {
    let topic = "ARRAY[decode('00', 'hex') || int8send(:a) || int8send(:b)]";
    let hash = "ARRAY[sha256(int8send(:a) || int8send(:b))]";
    let length = load::envelope_len();
    let payload = format!("ARRAY[convert_to(rpad(md5(int8send(:a)), {length}, 'x'), 'UTF8')]");
    let values = [
        topic,
        hash,
        "ARRAY[false]",
        "ARRAY[false]",
        "ARRAY[NULL]",
        "ARRAY[7776000]",
        &payload,
    ];
    let mut text = match (statement.find("'{"), statement.find("}'")) {
        (Some(begin), Some(end)) => {
            format!(
                "{}ARRAY[:key]{}",
                &statement[..begin],
                &statement[end + 2..]
            )
        }
        _ => statement.to_owned(),
    };
    for (number, value) in (1..).zip(values) {
        text = text.replace(&format!("${number}"), value);
    }
    text
}
