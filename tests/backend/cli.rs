//! The command line, from the outside.

use std::process::Output;

use nix::sys::signal::Signal;
use sqlx::Connection;
use tempfile::NamedTempFile;
use xmtp_fixtures::{KeyPackageBuilder, envelope};
use xmtp_protocol::ParsedEnvelope;
use xmtp_protocol::client::PublishServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::{ClientEnvelope, PublishRequest};
use xmtp_test_support::payloads::{group_message, identity_update, installation, recorded};
use xmtp_test_support::{TestDatabase, eventually};

use crate::harness::connect;
use crate::process::{Process, run};

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("the program writes text")
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("the program writes text")
}

/// Runs the demonstration against `server`, which has to succeed and to refuse what it cannot take today;
/// answers its table.
async fn demo(server: &Process) -> Vec<Vec<String>> {
    let (table, refused) = demo_of(server, &[]).await;
    let wallets = recorded().iter().filter(|it| it.needs_chain).count();
    let expired = recorded().len() - wallets - valid();
    let expected = [
        (wallets, "identity update", "UNAVAILABLE, as expected"),
        (expired, "key package", "INVALID_ARGUMENT, as expected"),
    ];
    let expected = expected.into_iter().filter(|(count, ..)| *count > 0);
    let expected: Vec<String> = expected
        .map(|(count, kind, why)| format!("{kind}, {count} refused: {why}"))
        .collect();
    assert_eq!(refused.len(), expected.len(), "{refused:?}");
    for (line, expected) in refused.iter().zip(&expected) {
        assert!(line.starts_with(expected), "{line}");
    }
    table
}

/// The table, and the lines below it that say what was refused.
async fn demo_of(server: &Process, arguments: &[&str]) -> (Vec<Vec<String>>, Vec<String>) {
    let url = server.url();
    let output = run(["demo", "--url", &url].iter().chain(arguments)).await;
    assert!(output.status.success(), "{}", stderr(&output));
    let mut lines: Vec<&str> = stdout(&output).lines().collect();
    assert_eq!(lines.pop(), Some("success"));
    let (refused, table): (Vec<&str>, Vec<_>) =
        lines.iter().partition(|line| line.contains(" refused: "));
    (
        table.into_iter().map(cells).collect(),
        refused.into_iter().map(str::to_owned).collect(),
    )
}

/// How many recorded envelopes a server without chains takes today.
fn valid() -> usize {
    recorded().iter().filter(|it| it.is_valid()).count()
}

/// The cells of a line, which two spaces or more part.
fn cells(line: &str) -> Vec<String> {
    let cells = line.split("  ").filter(|cell| !cell.is_empty());
    cells.map(|cell| cell.trim().to_owned()).collect()
}

/// The number of envelopes in a column of the table.
fn total(table: &[Vec<String>], column: &str) -> usize {
    let index = table[0].iter().position(|name| name == column);
    let index = index.expect("the table has the column");
    let cells = table[1..].iter().map(|row| &row[index]);
    cells
        .map(|cell| cell.parse::<usize>().expect("a count"))
        .sum()
}

/// A failure in one line that holds `text`.
async fn demo_fails(arguments: &[&str], text: &str) {
    let output = run(["demo"].iter().chain(arguments)).await;
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stdout(&output), "");
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains(text), "{}", stderr(&output));
}

#[tokio::test]
async fn api_211_the_demonstration_succeeds_again_on_what_it_stored() {
    let database = TestDatabase::create().await;
    let server = Process::serve(&database, "").await;
    let first = demo(&server).await;
    assert_eq!(first.len(), 6, "a header and five kinds: {first:?}");
    let published = total(&first, "published");
    assert_eq!(published, valid());
    assert_eq!(total(&first, "live"), published);

    let second = demo(&server).await;
    assert_eq!(total(&second, "published"), published);
    assert_eq!(total(&second, "live"), 0);
    let ids = |table: &[Vec<String>]| -> Vec<(String, String)> {
        let ids = |row: &Vec<String>| (row[5].clone(), row[6].clone());
        table[1..].iter().map(ids).collect()
    };
    assert_eq!(ids(&first), ids(&second));
}

#[tokio::test]
async fn the_demonstration_says_in_one_line_why_it_fails() {
    let database = TestDatabase::create().await;
    let server = Process::serve(&database, "limits.max_envelope_bytes = 300").await;
    let url = server.url();
    demo_fails(&["--url", &url], "publish: the server answers").await;
    demo_fails(&["--url", "https://127.0.0.1:1"], "http://").await;
    demo_fails(&["--url", "http://127.0.0.1:1"], "cannot connect").await;
    // A server of another kind: it does not speak gRPC.
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = other.local_addr().expect("a bound port has an address");
    let refuse = tokio::task::spawn_blocking(move || drop(other.accept()));
    demo_fails(&["--url", &format!("http://{address}")], "no XMTP backend").await;
    refuse.await.expect("the other server ends");

    // The recording is compared with what the server makes of it.
    let recorded = recorded();
    let line = |hash: &str, flag: bool| {
        let it = &recorded[0];
        let file = NamedTempFile::new().expect("a temporary file");
        let line = format!(
            "{{\"topic\": {:?}, \"hash\": {hash:?}, \"is_commit_or_proposal\": {flag}, \"envelope\": {:?}}}\n",
            it.topic, it.envelope
        );
        std::fs::write(file.path(), line).expect("the file can be written");
        file
    };
    let server = Process::serve(&database, "").await;
    let url = server.url();
    for (file, text) in [
        (
            line(&recorded[0].hash, true),
            "line 1 of the recording: the receipt has the wrong commit flag",
        ),
        (
            line("00", false),
            "line 1 of the recording: hash has not 32 bytes",
        ),
    ] {
        let path = file.path().to_str().expect("a temporary path is Unicode");
        demo_fails(&["--url", &url, "--file", path], text).await;
    }
}

/// A recording of this envelope alone.
fn recording(envelope: &ClientEnvelope) -> NamedTempFile {
    let parsed = ParsedEnvelope::parse(envelope.clone()).expect("it parses");
    let file = NamedTempFile::new().expect("a temporary file");
    let line = format!(
        "{{\"topic\": \"{}\", \"hash\": \"{}\", \"is_commit_or_proposal\": false, \"envelope\": \"{}\"}}\n",
        hex::encode(parsed.topic.as_bytes()),
        hex::encode(parsed.hash.as_bytes()),
        hex::encode(&parsed.payload),
    );
    std::fs::write(file.path(), line).expect("the file can be written");
    file
}

#[tokio::test]
async fn the_demonstration_tells_an_aged_recording_from_a_faulty_server() {
    let database = TestDatabase::create().await;
    let server = Process::serve(&database, "").await;
    let url = server.url();
    let installation = installation();
    let package = |change: &dyn Fn(&mut KeyPackageBuilder<'_>)| {
        let mut package = KeyPackageBuilder::new(&installation, &"ab".repeat(32));
        change(&mut package);
        recording(&envelope(package.build()))
    };
    let path = |file: &NamedTempFile| file.path().to_str().expect("Unicode").to_owned();

    let expired = package(&|package| package.not_after = 2);
    let (table, refused) = demo_of(&server, &["--file", &path(&expired)]).await;
    assert_eq!(total(&table, "published"), 0);
    let text = "key package, 1 refused: INVALID_ARGUMENT, as expected";
    assert!(
        refused.len() == 1 && refused[0].starts_with(text),
        "{refused:?}"
    );

    // Nothing else may be refused: a wrong signature, and an update without the one before it.
    let unsigned = package(&|package| package.signature = Some(vec![0; 64]));
    let early = recording(&identity_update(1, 2));
    for file in [unsigned, early] {
        let text = "publish: the server answers InvalidArgument";
        demo_fails(&["--url", &url, "--file", &path(&file)], text).await;
    }
}

#[tokio::test]
async fn arc_100_a_refused_document_is_named_by_key_and_place() {
    let text = "server.identifier = \"org.example.test\"\n\
                database.url = \"postgres://localhost/xmtp\"\n\
                limits.max_query_topics = 0\n\
                server.colour = \"red\"\n";
    let output = run(["config", "check", "--config", text]).await;
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stdout(&output), "");
    let lines: Vec<&str> = stderr(&output).lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].starts_with("CONFIG_VALUE: limits.max_query_topics (line 3, column "),
        "{}",
        lines[0]
    );
    assert!(
        lines[1].starts_with("CONFIG_UNKNOWN_KEY: server.colour (line 4, column "),
        "{}",
        lines[1]
    );
}

#[tokio::test]
async fn a_valid_document_is_checked_without_being_served() {
    let text = "server.identifier = \"org.example.test\"\n\
                database.url = \"postgres://127.0.0.1:1/nowhere\"\n";
    let output = run(["config", "check", "--config", text]).await;
    assert!(output.status.success(), "{}", stderr(&output));
}

#[tokio::test]
async fn arc_100_a_missing_source_is_a_usage_error() {
    for command in [&["serve"][..], &["config", "check"], &["doctor"]] {
        let output = run(command).await;
        assert_eq!(output.status.code(), Some(2));
        assert!(
            stderr(&output).contains("--config-file"),
            "{}",
            stderr(&output)
        );
    }
}

#[tokio::test]
async fn no_arguments_show_the_commands() {
    let output = run::<&str>([]).await;
    assert_eq!(output.status.code(), Some(2));
    for said in ["--health-probe", "serve", "config"] {
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
    }
}

#[tokio::test]
async fn a_log_level_that_does_not_exist_is_a_usage_error() {
    let output = run(["serve", "--log-level", "loud", "--config", "a = 1"]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("off, error, warn, info, debug or trace"));
}

/// What the committed files describe is the build with every feature.
#[cfg(all(
    feature = "auth",
    feature = "embedded-postgres",
    feature = "otlp",
    feature = "replica",
    feature = "scw"
))]
mod full_build {
    use super::*;

    #[tokio::test]
    async fn the_committed_schema_is_the_printed_one() {
        let output = run(["config", "schema"]).await;
        assert!(
            stdout(&output) == include_str!("../../schemas/backend-v1.json"),
            "stale: run ci/generated"
        );
    }

    #[tokio::test]
    async fn the_committed_example_is_the_printed_one() {
        let output = run(["config", "example"]).await;
        assert!(
            stdout(&output) == include_str!("../../docs/example.toml"),
            "stale: run ci/generated"
        );
    }

    #[tokio::test]
    async fn the_committed_reference_is_the_printed_one() {
        let output = run(["config", "reference"]).await;
        assert!(
            stdout(&output) == include_str!("../../docs/configuration.md"),
            "stale: run ci/generated"
        );
    }

    #[tokio::test]
    async fn ops_016_the_committed_page_of_metrics_is_the_printed_one() {
        let output = run(["metrics"]).await;
        assert!(
            stdout(&output) == include_str!("../../docs/metrics.md"),
            "stale: run ci/generated"
        );
    }

    #[tokio::test]
    async fn the_committed_alerts_and_dashboard_are_the_printed_ones() {
        let committed = [
            ("alerts", include_str!("../../docs/monitoring/alerts.yml")),
            (
                "dashboard",
                include_str!("../../docs/monitoring/dashboard.json"),
            ),
        ];
        for (command, file) in committed {
            let output = run([command]).await;
            assert!(stdout(&output) == file, "stale: run ci/generated");
        }
    }
}

#[cfg(feature = "embedded-postgres")]
#[tokio::test]
async fn dev_serves_and_keeps_its_data_when_it_is_killed() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let data = folder.path().join("data");
    let server = Process::dev(&data).await;
    let first = demo(&server).await;
    assert!(total(&first, "live") > 0);
    server.kill().await;

    let mut server = Process::dev(&data).await;
    let second = demo(&server).await;
    assert_eq!(total(&second, "published"), total(&first, "published"));
    assert_eq!(total(&second, "live"), 0, "everything was there");
    server.signal(Signal::SIGINT);
    assert_eq!(server.ended().await.code(), Some(0));
}

#[tokio::test]
async fn subsystems_lists_what_the_build_has() {
    let output = run(["subsystems"]).await;
    assert!(output.status.success());
    let expected: &[&str] = &[
        #[cfg(feature = "auth")]
        "auth",
        #[cfg(feature = "embedded-postgres")]
        "embedded-postgres",
        #[cfg(feature = "otlp")]
        "otlp",
        #[cfg(feature = "replica")]
        "replica",
        #[cfg(feature = "scw")]
        "scw",
    ];
    assert_eq!(stdout(&output).lines().collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn ops_008_sigterm_drains_and_ends_with_status_0() {
    let database = TestDatabase::create().await;
    let mut server = Process::serve(&database, "").await;
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended().await.code(), Some(0), "{}", server.log());
}

#[tokio::test]
async fn a_second_signal_ends_the_process_at_once() {
    let database = TestDatabase::create().await;
    // Longer than the test may take, each.
    let mut server = Process::serve(
        &database,
        "server.max_drain_duration_ms = 120000\n\
         database.max_statement_timeout_ms = 120000\n\
         publishing.max_publish_duration_ms = 150000",
    )
    .await;
    // A publish that cannot end holds the drain.
    let mut blocker = database.connect().await;
    let mut lock = blocker.begin().await.expect("a transaction begins");
    sqlx::query("LOCK TABLE envelopes IN ACCESS EXCLUSIVE MODE")
        .execute(&mut *lock)
        .await
        .expect("the table is locked");
    let mut client = PublishServiceClient::new(connect(server.address).await);
    let request = PublishRequest {
        envelopes: vec![group_message(1, "held")],
    };
    let publish = tokio::spawn(async move { client.publish(request).await });
    let mut observer = database.connect().await;
    eventually("the publish waits", async || {
        let waiting: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
             AND application_name = 'xmtp-backend' AND wait_event_type = 'Lock' \
             AND query LIKE '%message_hash%'",
        )
        .fetch_one(&mut observer)
        .await
        .expect("sessions can be looked at");
        (waiting > 0).then_some(())
    })
    .await;

    server.signal(Signal::SIGTERM);
    eventually("the drain begins", async || {
        server.log().contains("draining").then_some(())
    })
    .await;
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended().await.code(), Some(1), "{}", server.log());
    assert!(server.log().contains("SECOND_SIGNAL: "), "{}", server.log());
    let answer = publish.await.expect("the client ends");
    assert!(answer.is_err(), "the publish had no chance");
    lock.rollback().await.expect("the lock is given up");
}

#[cfg(not(feature = "otlp"))]
#[tokio::test]
async fn arc_097_a_build_without_the_exporter_says_that_it_ignores_the_endpoint() {
    let database = TestDatabase::create().await;
    let planted = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://planted:4317")];
    let server = Process::serve_where(&database, "", &planted).await;
    let log = server.log();
    let warnings = log.lines().filter(|line| line.contains("\"WARN\""));
    let warnings: Vec<&str> = warnings.collect();
    assert_eq!(warnings.len(), 1, "{log}");
    assert!(warnings[0].contains("OTEL_EXPORTER_OTLP_ENDPOINT is ignored"));
    assert!(!log.contains("planted"));
}
