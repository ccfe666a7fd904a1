//! What a start waits for, and which servers it refuses (ARC-041, OPS-005; contract decisions, 2).

use std::net::SocketAddr;
use std::time::Duration;

use http::StatusCode;
use serde_json::Value;
use tokio::time::sleep;
use xmtp_protocol::client::QueryServiceClient;
use xmtp_server::{RunningServer, StartError};
use xmtp_test_support::{TestDatabase, eventually};

use super::{Pair, TAILER, caught_up, end_sessions, newest_of, setting};
use crate::harness::{Backend, configured_with_replica, connect, meta_id, within};
use crate::process::{Process, document, run};
use crate::streams::{group, messages};
use crate::telemetry::{free_address, get};
use crate::tools::fails_to_start;

/// Between two looks at a start.
const PAUSE: Duration = Duration::from_millis(10);

/// What `/readyz` says that the start waits for; `None` where nobody says anything.
async fn waiting(address: SocketAddr) -> Option<Vec<String>> {
    tokio::net::TcpStream::connect(address).await.ok()?;
    let (status, said) = get(address, "/readyz").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    let said: Value = serde_json::from_str(&said).expect("JSON");
    let words = said["waiting"].as_array().expect("a list").iter();
    Some(
        words
            .map(|word| word.as_str().expect("a word").to_owned())
            .collect(),
    )
}

/// Starts a server, resumes replay once the start waits for `words`, and answers when it serves.
async fn start_that_waits(pair: &Pair, database: &TestDatabase, words: &[&str]) -> RunningServer {
    let address = free_address();
    let settings = format!(
        "{}\ntelemetry.metrics_listen = \"{address}\"",
        pair.setting(database)
    );
    let starting = configured_with_replica(database, &settings).start();
    let looking = async {
        eventually("the start waits for the replica", async || {
            (waiting(address).await? == words).then_some(())
        })
        .await;
        // And goes on waiting: without that it would serve in the meantime.
        let goes_on = async || {
            for _ in 0..20 {
                assert_eq!(waiting(address).await.expect("it is there"), words);
                sleep(PAUSE).await;
            }
        };
        goes_on().await;
        // Whatever happens to the connection that it waits on.
        if words[0] == "streams" {
            assert_eq!(end_sessions(&pair.standby, TAILER).await, 1);
            goes_on().await;
        }
        pair.resume().await;
    };
    let (running, ()) = futures::future::join(starting, looking).await;
    running.expect("starts")
}

#[tokio::test]
async fn arc_041_ops_005_a_start_waits_for_the_migrations_and_then_for_the_boundary() {
    let (pair, database) = Pair::new().await;
    pair.pause().await;
    let after = ["boundary", "streams", "configuration", "listener"];
    let words = [&["replica"][..], &after].concat();
    let running = start_that_waits(&pair, &database, &words).await;
    running.stop().await;

    // The standby has the migrations now, and lacks what another instance takes.
    let backend = Backend::on(database, "").await;
    backend.publish(messages(1, [1])).await;
    pair.caught_up(&backend.database).await;
    pair.pause().await;
    let last = meta_id(&backend.publish(messages(1, [2])).await[0]);
    let database = backend.stop().await;
    let running = start_that_waits(&pair, &database, &after[1..]).await;
    let client = QueryServiceClient::new(connect(running.local_addr()).await);
    let shown = newest_of(client, &group(1)).await;
    assert_eq!(shown.expect("answered"), last);
    running.stop().await;
}

#[tokio::test]
async fn arc_060_a_start_that_waits_for_a_replica_follows_its_address_to_another() {
    let (pair, database) = Pair::new().await;
    let other = pair.primary.standby().await;
    pair.pause().await;
    let address = free_address();
    let settings = format!(
        "{}\ntelemetry.metrics_listen = \"{address}\"",
        pair.setting(&database)
    );
    let starting = configured_with_replica(&database, &settings).start();
    let leading = async {
        eventually("the start waits for the migrations", async || {
            (waiting(address).await?.first()? == "replica").then_some(())
        })
        .await;
        caught_up(&other, &database).await;
        // The one that is waited for lives, and never shows them.
        pair.address.lead_to(other.address());
    };
    let (running, ()) = futures::future::join(within(starting), leading).await;
    running.expect("starts").stop().await;
}

/// Why a server with this replica does not start.
async fn refusal(database: &TestDatabase, setting: &str) -> String {
    let starting = configured_with_replica(database, setting).start();
    let Err(error) = within(starting).await else {
        panic!("it has started");
    };
    assert!(matches!(
        error,
        StartError::ReadSource {
            word: "replica",
            ..
        }
    ));
    error.to_string()
}

#[tokio::test]
async fn arc_060_a_start_refuses_what_is_no_standby_of_its_primary() {
    let (pair, database) = Pair::new().await;
    let not_one = "replica: the server is not a standby";
    let of_another =
        "replica: the server is not a standby of the primary, or its database is another one";
    let primary = setting(&database.options());
    assert_eq!(refusal(&database, &primary).await, not_one);
    let other_database = setting(&pair.standby.options());
    assert_eq!(refusal(&database, &other_database).await, of_another);
    // The same standby, for a backend whose primary is another cluster.
    let stranger = TestDatabase::create().await;
    let theirs = pair.setting(&database);
    assert_eq!(refusal(&stranger, &theirs).await, of_another);
    pair.standby.kill().await;
    let gone = refusal(&database, &theirs).await;
    assert!(
        gone.starts_with("replica: database connection failed ("),
        "{gone}"
    );
    for text in [primary, other_database, theirs] {
        assert!(!gone.contains(&text));
    }
}

#[tokio::test]
async fn arc_005_arc_060_a_start_waits_for_no_replica_whose_schema_is_not_this_programs() {
    let (pair, database) = Pair::new().await;
    let settings = pair.setting(&database);
    let database = Backend::on(database, "").await.stop().await;
    for (code, spoil, mend) in [
        (
            "SCHEMA_NEWER",
            "INSERT INTO _sqlx_migrations VALUES (9000, 'later', now(), true, '\\x00', 0)",
            "DELETE FROM _sqlx_migrations WHERE version = 9000",
        ),
        (
            "SCHEMA_EDITED",
            "UPDATE _sqlx_migrations SET checksum = 'x' || checksum",
            "UPDATE _sqlx_migrations SET checksum = substr(checksum, 2)",
        ),
        (
            "SCHEMA_PARTIAL",
            "UPDATE _sqlx_migrations SET success = false",
            "UPDATE _sqlx_migrations SET success = true",
        ),
    ] {
        // The replica alone shows it.
        database.execute(spoil).await;
        pair.caught_up(&database).await;
        pair.pause().await;
        database.execute(mend).await;
        let said = fails_to_start(&document(&database, &settings), code).await;
        assert!(
            said.contains("replica: migration ") && said.contains(" of the database "),
            "{said}"
        );
        pair.resume().await;
    }
    // What it lacks comes.
    pair.caught_up(&database).await;
    Backend::with_replica(database, &settings)
        .await
        .stop()
        .await;
}

#[tokio::test]
async fn ops_009_the_program_serves_from_a_replica_and_doctor_looks_at_it() {
    let (pair, database) = Pair::new().await;
    let replica = pair.setting(&database);
    let server = Process::serve(&database, &replica).await;
    let demo = run(["demo", "--url", &server.url()]).await;
    assert!(
        demo.status.success(),
        "{}",
        String::from_utf8_lossy(&demo.stderr)
    );
    let log = server.log();
    assert!(
        log.contains("waiting for the replica to show the migrations"),
        "{log}"
    );
    assert!(log.contains("the replica shows the migrations"), "{log}");

    let healthy = ["ok", "ok", "ok"];
    assert_eq!(doctor(&database, &replica).await, healthy);
    pair.pause().await;
    assert_eq!(doctor(&database, &replica).await, ["ok", "warning", "ok"]);
    pair.resume().await;
    let off = [
        "ALTER SYSTEM SET hot_standby_feedback = off",
        "SELECT pg_reload_conf()",
    ];
    pair.standby.execute(&off).await;
    eventually("the setting is off", async || {
        (doctor(&database, &replica).await == ["ok", "ok", "warning"]).then_some(())
    })
    .await;
    let of_primary = setting(&database.options());
    assert_eq!(doctor(&database, &of_primary).await, ["failed"]);
    server.kill().await;
}

/// The outcomes of what `doctor` says of the replica.
async fn doctor(database: &TestDatabase, setting: &str) -> Vec<String> {
    let document = document(database, setting);
    let output = run(["doctor", "--json", "--config", &document]).await;
    let checks: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = |check: &Value, key: &str| check[key].as_str().expect("text").to_owned();
    let checks = checks.as_array().expect("a list").iter();
    let of_replica = checks.filter(|check| text(check, "name").starts_with("replica"));
    of_replica.map(|check| text(check, "outcome")).collect()
}
