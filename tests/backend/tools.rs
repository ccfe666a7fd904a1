//! What an operator reaches for: `doctor`, `inspect`, `config show`, and why a start fails.

use std::net::TcpListener;
use std::process::Output;

use serde_json::Value;
use sqlx::Connection;
use xmtp_test_support::TestDatabase;

use crate::process::{Process, document, run};

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the program writes text")
}

/// Runs a command on the least document for `database`, with further `settings`.
async fn on(database: &TestDatabase, command: &[&str], settings: &str) -> Output {
    let document = document(database, settings);
    run(command.iter().copied().chain(["--config", &document])).await
}

/// The checks of `doctor --json`: name, outcome, finding.
async fn doctor(database: &TestDatabase, settings: &str) -> (Vec<[String; 3]>, Output) {
    let output = on(database, &["doctor", "--json"], settings).await;
    let checks: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let checks = checks.as_array().expect("a list").iter().map(|check| {
        ["name", "outcome", "finding"].map(|key| check[key].as_str().expect("text").to_owned())
    });
    (checks.collect(), output)
}

fn outcome<'a>(checks: &'a [[String; 3]], name: &str) -> &'a str {
    check(checks, name).0
}

/// Outcome and finding of one check.
fn check<'a>(checks: &'a [[String; 3]], name: &str) -> (&'a str, &'a str) {
    let check = checks.iter().find(|check| check[0] == name);
    let [_, outcome, finding] = check.unwrap_or_else(|| panic!("{name} is missing"));
    (outcome, finding)
}

async fn inspect(database: &TestDatabase) -> Value {
    let output = on(database, &["inspect", "--json"], "").await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[tokio::test]
async fn doctor_looks_at_a_database_and_changes_nothing() {
    let database = TestDatabase::create().await;
    let (checks, _) = doctor(&database, "").await;
    assert_eq!(outcome(&checks, "connection"), "ok");
    assert_eq!(outcome(&checks, "postgres-version"), "ok");
    assert_eq!(outcome(&checks, "schema"), "ok");
    assert_eq!(outcome(&checks, "sequence"), "skipped");
    let tables: i64 =
        sqlx::query_scalar("SELECT count(*) FROM pg_class WHERE relname LIKE '%sqlx%'")
            .fetch_one(&mut database.connect().await)
            .await
            .expect("a count");
    assert_eq!(tables, 0, "it has made something");

    let server = Process::serve(&database, "").await;
    let (checks, _) = doctor(&database, "").await;
    for name in ["schema", "rights", "sequence", "boundary", "retention"] {
        assert_eq!(outcome(&checks, name), "ok", "{name}");
    }
    server.kill().await;

    // Behind its rows, as after a restore.
    database
        .execute("UPDATE allocation_boundary SET closed_sequence_id = 99")
        .await;
    let (checks, output) = doctor(&database, "").await;
    assert_eq!(outcome(&checks, "boundary"), "failed");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("CHECKS_FAILED: "));
}

#[tokio::test]
async fn doctor_names_the_tables_that_are_gone_and_a_start_refuses_them() {
    let database = TestDatabase::create().await;
    Process::serve(&database, "").await.kill().await;
    database
        .execute("DROP TABLE topic_watermark, push_cursor")
        .await;
    let (checks, _) = doctor(&database, "").await;
    let gone = "missing: topic_watermark, push_cursor";
    assert_eq!(check(&checks, "schema"), ("failed", gone));
    for name in ["connection", "writable", "rights", "retention", "clock"] {
        assert_eq!(outcome(&checks, name), "ok", "{name}");
    }
    // OPS-005: nothing is ready on half a schema.
    let complained = fails_to_start(&elsewhere(&database.url()), "SCHEMA_INCOMPLETE").await;
    assert!(
        complained.contains("topic_watermark, push_cursor"),
        "{complained}"
    );
}

#[tokio::test]
async fn doctor_says_what_it_cannot_read_and_goes_on() {
    let database = TestDatabase::create().await;
    Process::serve(&database, "").await.kill().await;
    let settings = "database.max_statement_timeout_ms = 1500";
    for (table, failed) in [
        ("_sqlx_migrations", &["schema"][..]),
        ("envelopes", &["sequence", "boundary"]),
    ] {
        let mut holder = database.connect().await;
        let mut lock = holder.begin().await.expect("a transaction begins");
        let statement = format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE");
        sqlx::query(sqlx::AssertSqlSafe(statement))
            .execute(&mut *lock)
            .await
            .expect("the table is locked");
        let (checks, _) = doctor(&database, settings).await;
        lock.rollback().await.expect("the lock is given up");
        for name in [
            "connection",
            "schema",
            "rights",
            "sequence",
            "boundary",
            "clock",
        ] {
            let expected = if failed.contains(&name) {
                "failed"
            } else {
                "ok"
            };
            let (outcome, finding) = check(&checks, name);
            assert_eq!(outcome, expected, "{table}: {name} {finding}");
        }
        assert!(check(&checks, failed[0]).1.contains("57014"));
    }
}

#[tokio::test]
async fn s38_doctor_knows_a_sequence_that_gives_no_more_ids() {
    let database = TestDatabase::create().await;
    Process::serve(&database, "").await.kill().await;
    for (change, expected) in [
        ("MAXVALUE 9", "warning"),
        ("RESTART 9; SELECT nextval('envelope_sequence')", "failed"),
        ("NO MAXVALUE CYCLE", "failed"),
        ("NO CYCLE INCREMENT 2", "failed"),
        ("INCREMENT 1 CACHE 2", "failed"),
        ("CACHE 1", "ok"),
    ] {
        database
            .execute(&format!("ALTER SEQUENCE envelope_sequence {change}"))
            .await;
        let (checks, _) = doctor(&database, "").await;
        let (outcome, finding) = check(&checks, "sequence");
        assert_eq!(outcome, expected, "{change}: {finding}");
    }
}

#[tokio::test]
async fn doctor_writes_one_line_a_check_and_no_secret() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = listener.local_addr().expect("it is bound");
    let document = format!(
        "server.identifier = \"org.example.test\"\nserver.listen = \"{taken}\"\n\
         telemetry.metrics_listen = \"\"\n\
         database.url = \"postgres://someone:hunter2-Zx9@127.0.0.1:1/nowhere\"\n"
    );
    let output = run(["doctor", "--config", &document]).await;
    assert_eq!(output.status.code(), Some(1));
    let (said, complained) = (text(&output.stdout), text(&output.stderr));
    assert!(!said.contains("hunter2-Zx9") && !complained.contains("hunter2-Zx9"));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 16, "{said}");
    for (index, start) in [
        (0, "failed   connection           database.url: "),
        (1, "skipped  postgres-version "),
        (14, "failed   grpc-port "),
        (15, "skipped  metrics-port "),
    ] {
        assert!(lines[index].starts_with(start), "{}", lines[index]);
    }
    assert_eq!(complained, "CHECKS_FAILED: 2 of 16 checks failed\n");

    let output = run(["doctor", "--serving", "--config", &document]).await;
    assert!(text(&output.stdout).contains("ok       grpc-port "));
}

#[tokio::test]
async fn inspect_counts_what_is_stored_and_names_nobody() {
    let database = TestDatabase::create().await;
    let server = Process::serve(&database, "").await;
    let empty = inspect(&database).await;
    assert_eq!(empty["envelopes"], 0);
    assert_eq!(empty["age_seconds"]["oldest"], Value::Null);

    let url = server.url();
    let demo = run(["demo", "--url", &url]).await;
    assert!(demo.status.success(), "{}", text(&demo.stderr));
    let (stored, greatest): (i64, i64) =
        sqlx::query_as("SELECT count(*), max(sequence_id) FROM envelopes")
            .fetch_one(&mut database.connect().await)
            .await
            .expect("a count");
    let counted = inspect(&database).await;
    assert_eq!(counted["envelopes"], stored);
    assert_eq!(counted["sequence"]["greatest"], greatest);
    assert!(counted["sequence"]["allocated"].as_i64() >= Some(greatest));
    let kinds = counted["kinds"].as_object().expect("kinds");
    assert_eq!(kinds.len(), 5);
    let sum: i64 = kinds
        .values()
        .filter_map(|kind| kind["envelopes"].as_i64())
        .sum();
    assert_eq!(sum, stored);
    assert!(counted["age_seconds"]["oldest"].as_i64() >= Some(0));
    let above = counted["sequence"]["above_boundary"].as_i64();
    assert!((0..=greatest).contains(&above.expect("a number")));

    // Numbers and fixed words, one a line.
    let output = on(&database, &["inspect"], "").await;
    for line in text(&output.stdout).lines() {
        let (name, number) = line.split_once(' ').expect("a name and a number");
        assert!(
            name.chars()
                .all(|c| c.is_ascii_lowercase() || "._".contains(c)),
            "{line}"
        );
        assert!(
            number.trim() == "none" || number.trim().parse::<i64>().is_ok(),
            "{line}"
        );
    }
}

#[tokio::test]
async fn arc_101_config_show_hides_what_is_secret() {
    let database = TestDatabase::create().await;
    let output = on(&database, &["config", "show", "--log-level", "warn"], "").await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let origin = |key: &str| {
        let line = said.lines().find(|line| line.starts_with(key));
        line.unwrap_or_else(|| panic!("{key} is missing"))
            .to_owned()
    };
    assert!(origin("database.url").contains("\"<redacted>\""));
    // The document begins with an empty line, that of no further settings.
    assert!(origin("database.url").ends_with("# line 6"));
    assert!(origin("server.log_level = \"warn\"").ends_with("# --log-level"));
    assert!(origin("streams.poll_interval_ms = 100").ends_with("# default"));

    let settings = "telemetry.resource_attributes = { team = \"hunter2-Zx9\" }";
    let output = on(&database, &["config", "show"], settings).await;
    let said = text(&output.stdout);
    assert!(
        said.contains("telemetry.resource_attributes.team = \"<redacted>\""),
        "{said}"
    );
    assert!(!said.contains("hunter2-Zx9"));

    let output = on(&database, &["config", "show"], "limits.max_ping_burst = 0").await;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("CONFIG_VALUE: limits.max_ping_burst "));
}

/// Serving fails in one line that starts with `code`.
pub(crate) async fn fails_to_start(document: &str, code: &str) -> String {
    let output = run(["serve", "--config", document]).await;
    assert_eq!(output.status.code(), Some(1), "{code}");
    let complained = text(&output.stderr);
    assert_eq!(complained.lines().count(), 1, "{complained}");
    assert!(
        complained.starts_with(&format!("{code}: ")),
        "{code}: {complained}"
    );
    complained.to_owned()
}

/// The least document, with another address of the database.
fn elsewhere(url: &str) -> String {
    format!(
        "server.identifier = \"org.example.test\"\nserver.listen = \"127.0.0.1:0\"\n\
         telemetry.metrics_listen = \"\"\nserver.log_level = \"off\"\ndatabase.url = {url:?}\n"
    )
}

#[tokio::test]
async fn ops_020_ops_022_s41_a_start_that_fails_says_why_with_a_stable_code() {
    let database = TestDatabase::create().await;
    let options = |name: &str| database.options().database(name);
    let url = |options: sqlx::postgres::PgConnectOptions| {
        use sqlx::ConnectOptions;
        options.to_url_lossy().to_string()
    };
    fails_to_start(
        &elsewhere("postgres://127.0.0.1:1/nowhere"),
        "DATABASE_UNREACHABLE",
    )
    .await;
    fails_to_start(
        &elsewhere(&url(options("no_such_database"))),
        "DATABASE_MISSING",
    )
    .await;
    let stranger = database
        .options()
        .username("no_such_user")
        .password("wrong");
    fails_to_start(&elsewhere(&url(stranger)), "DATABASE_LOGIN").await;

    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = listener.local_addr().expect("it is bound");
    let document = elsewhere(&database.url());
    let too_long = format!("{document}retention.welcome_seconds = 9223372036\n");
    let complained = fails_to_start(&too_long, "RETENTION_TOO_LONG").await;
    assert!(complained.contains("retention.welcome_seconds"), "OPS-020");
    for (key, occupied) in [
        (
            "server.listen",
            document.replace("127.0.0.1:0", &taken.to_string()),
        ),
        (
            "telemetry.metrics_listen",
            document.replace(
                "metrics_listen = \"\"",
                &format!("metrics_listen = \"{taken}\""),
            ),
        ),
    ] {
        let complained = fails_to_start(&occupied, "LISTEN_FAILED").await;
        let named = complained.contains(key) && complained.contains(&taken.to_string());
        assert!(named, "OPS-022: {complained}");
    }

    // The migration is there by now.
    database
        .execute("INSERT INTO _sqlx_migrations VALUES (9000, 'later', now(), true, '\\x00', 0)")
        .await;
    fails_to_start(&document, "SCHEMA_NEWER").await;
    database
        .execute("UPDATE _sqlx_migrations SET success = false WHERE version = 9000")
        .await;
    fails_to_start(&document, "SCHEMA_PARTIAL").await;
    database
        .execute("DELETE FROM _sqlx_migrations WHERE version = 9000; UPDATE allocation_boundary SET closed_sequence_id = 5")
        .await;
    fails_to_start(&document, "SEQUENCE_BEHIND").await;
    database
        .execute("UPDATE _sqlx_migrations SET checksum = '\\x00'")
        .await;
    fails_to_start(&document, "SCHEMA_EDITED").await;
    database.execute("DROP TABLE _sqlx_migrations").await;
    fails_to_start(&document, "MIGRATION_FAILED").await;
}

#[tokio::test]
async fn s15_a_start_on_what_cannot_be_written_says_so() {
    let database = TestDatabase::create().await;
    let name: String = sqlx::query_scalar("SELECT current_database()")
        .fetch_one(&mut database.connect().await)
        .await
        .expect("a name");
    // Without CREATE on the schema, which the owner of the database alone has.
    let role = format!("{name}_guest");
    database
        .execute(&format!("CREATE ROLE {role} LOGIN PASSWORD 'guest'"))
        .await;
    let options = database.options().username(&role).password("guest");
    let guest = {
        use sqlx::ConnectOptions;
        elsewhere(options.to_url_lossy().as_str())
    };
    let output = run(["inspect", "--config", &guest]).await;
    assert!(text(&output.stderr).starts_with("SCHEMA_MISSING: "));
    fails_to_start(&guest, "DATABASE_RIGHTS").await;
    let output = run(["doctor", "--config", &guest]).await;
    assert!(text(&output.stdout).contains("failed   schema "));
    database.execute(&format!("DROP ROLE {role}")).await;

    database
        .execute(&format!(
            "ALTER DATABASE {name} SET default_transaction_read_only = on"
        ))
        .await;
    fails_to_start(&elsewhere(&database.url()), "DATABASE_READ_ONLY").await;
    let (checks, _) = doctor(&database, "").await;
    assert_eq!(outcome(&checks, "writable"), "failed");
}
