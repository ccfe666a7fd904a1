//! The embedded server against the real PostgreSQL: what it keeps, and what it survives.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use secrecy::ExposeSecret;
use sqlx::{Connection, PgConnection, Row};
use tempfile::TempDir;
use tokio::time::timeout;
use xmtp_embedded_postgres::{EmbeddedPostgres, Error};

fn new_folder() -> TempDir {
    TempDir::new().expect("a temporary folder")
}

async fn start(folder: &TempDir) -> EmbeddedPostgres {
    EmbeddedPostgres::start(folder.path())
        .await
        .expect("the server starts")
}

async fn connect(server: &EmbeddedPostgres) -> PgConnection {
    PgConnection::connect(server.url().expose_secret())
        .await
        .expect("the server takes connections")
}

async fn write(server: &EmbeddedPostgres) {
    sqlx::raw_sql("CREATE TABLE kept (a int); INSERT INTO kept VALUES (42)")
        .execute(&mut connect(server).await)
        .await
        .expect("the row is written");
}

async fn read(server: &EmbeddedPostgres) -> i32 {
    sqlx::query("SELECT a FROM kept")
        .fetch_one(&mut connect(server).await)
        .await
        .expect("the row is there")
        .get(0)
}

async fn setting(server: &EmbeddedPostgres, name: &str) -> String {
    sqlx::query("SELECT current_setting($1)")
        .bind(name)
        .fetch_one(&mut connect(server).await)
        .await
        .expect("the setting exists")
        .get(0)
}

fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).expect("a process id");
    kill(Pid::from_raw(pid), signal).expect("the process is there");
}

/// Waits until no process of a server on `folder` lives, the last of which frees the lock that it inherited.
async fn server_gone(folder: &Path) {
    let lock = File::open(folder.join("server.lock")).expect("there was a server");
    let locked = tokio::task::spawn_blocking(move || lock.lock());
    timeout(Duration::from_mins(1), locked)
        .await
        .expect("the server ends by itself")
        .expect("the waiting thread lives")
        .expect("the lock can be taken");
}

/// Another process that holds a server: the example of this crate, which cargo builds beside the tests.
fn other_process(folder: &Path) -> Child {
    let test = std::env::current_exe().expect("this program has a path");
    let profile: PathBuf = test.ancestors().skip(2).take(1).collect();
    let mut process = Command::new(profile.join("examples/hold"))
        .arg(folder)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the example `hold` is built");
    let mut url = String::new();
    BufReader::new(process.stdout.take().expect("it is piped"))
        .read_line(&mut url)
        .expect("it prints its URL");
    assert!(
        url.starts_with("postgres://"),
        "the other process has started: {url}"
    );
    process
}

#[tokio::test]
async fn data_is_there_after_stop_and_start() {
    let folder = new_folder();
    let server = start(&folder).await;
    write(&server).await;
    server.stop().await.unwrap();
    let server = start(&folder).await;
    assert_eq!(read(&server).await, 42);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let folder = new_folder();
    let mut server = start(&folder).await;
    write(&server).await;
    signal(server.pid(), Signal::SIGKILL);
    assert_eq!(server.ended().await.unwrap().signal(), Some(9));
    drop(server);
    let server = start(&folder).await;
    assert_eq!(read(&server).await, 42);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_ends_with_the_process_that_started_it() {
    let folder = new_folder();
    let mut other = other_process(folder.path());
    other.kill().unwrap();
    other.wait().unwrap();
    server_gone(folder.path()).await;
}

#[tokio::test]
async fn a_folder_is_free_again_as_soon_as_its_process_is_killed() {
    let folder = new_folder();
    let server = start(&folder).await;
    write(&server).await;
    server.stop().await.unwrap();
    for _ in 0..3 {
        let mut other = other_process(folder.path());
        other.kill().unwrap();
        other.wait().unwrap();
        // At once: the earlier server has had no time to end.
        let server = start(&folder).await;
        assert_eq!(read(&server).await, 42);
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_dropped_server_stops() {
    let folder = new_folder();
    drop(start(&folder).await);
    server_gone(folder.path()).await;
}

#[tokio::test]
async fn a_folder_in_use_is_refused() {
    let folder = new_folder();
    let server = start(&folder).await;
    write(&server).await;
    let refused = EmbeddedPostgres::start(folder.path()).await.unwrap_err();
    assert!(matches!(refused, Error::FolderInUse { .. }), "{refused:?}");
    assert_eq!(read(&server).await, 42);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_process_id_left_behind_may_be_another_process_s() {
    let folder = new_folder();
    start(&folder).await.stop().await.unwrap();
    let mut innocent = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let data = folder.path().join("data");
    fs::write(
        data.join("postmaster.pid"),
        format!("{}\n{}\n", innocent.id(), data.display()),
    )
    .unwrap();
    start(&folder).await.stop().await.unwrap();
    drop(innocent.stdin.take());
    assert!(innocent.wait().unwrap().success(), "it was left alone");
}

#[tokio::test]
async fn an_interrupted_initialisation_is_done_again() {
    let folder = new_folder();
    fs::write(folder.path().join("owner.lock"), "").unwrap();
    let unfinished = folder.path().join("data.unfinished");
    fs::create_dir(&unfinished).unwrap();
    fs::write(unfinished.join("PG_VERSION"), "17\n").unwrap();
    start(&folder).await.stop().await.unwrap();
    assert!(!unfinished.exists());
}

#[tokio::test]
async fn the_server_is_durable_and_off_the_network() {
    let folder = new_folder();
    let server = start(&folder).await;
    for (name, value) in [
        ("fsync", "on"),
        ("full_page_writes", "on"),
        ("synchronous_commit", "on"),
        ("data_checksums", "on"),
        ("listen_addresses", ""),
        ("server_encoding", "UTF8"),
    ] {
        assert_eq!(setting(&server, name).await, value, "{name}");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn the_server_s_log_holds_no_statement_and_no_key() {
    let folder = new_folder();
    let server = start(&folder).await;
    sqlx::raw_sql("CREATE TABLE t (a text PRIMARY KEY); INSERT INTO t VALUES ('secret')")
        .execute(&mut connect(&server).await)
        .await
        .unwrap();
    sqlx::raw_sql("INSERT INTO t VALUES ('secret')")
        .execute(&mut connect(&server).await)
        .await
        .unwrap_err();
    server.stop().await.unwrap();
    let log = fs::read_to_string(folder.path().join("postgres.log")).unwrap();
    assert!(log.contains("t_pkey"), "the failure is logged");
    assert!(!log.contains("secret"), "{log}");
}

#[tokio::test]
async fn a_path_with_any_characters_is_usable() {
    let parent = new_folder();
    // The user that runs the server, where it is not this one, has to pass.
    fs::set_permissions(
        parent.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let server = EmbeddedPostgres::start(&parent.path().join("a b,\"c\"%é@:/d"))
        .await
        .unwrap();
    write(&server).await;
    assert_eq!(read(&server).await, 42);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_path_too_long_for_a_socket_is_refused() {
    let parent = new_folder();
    let refused = EmbeddedPostgres::start(&parent.path().join("x".repeat(100)))
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::FolderPath { .. }), "{refused:?}");
}

#[tokio::test]
async fn a_folder_of_other_things_is_left_alone() {
    let folder = new_folder();
    fs::write(folder.path().join("letter.txt"), "dear").unwrap();
    let refused = EmbeddedPostgres::start(folder.path()).await.unwrap_err();
    assert!(
        matches!(refused, Error::FolderNotOurs { .. }),
        "{refused:?}"
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_folder_that_the_server_s_user_cannot_enter_is_refused() {
    let parent = new_folder();
    fs::set_permissions(
        parent.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o600),
    )
    .unwrap();
    let refused = EmbeddedPostgres::start(&parent.path().join("data"))
        .await
        .unwrap_err();
    match refused {
        // Root itself can enter, and the other user that it runs the server as cannot.
        Error::FolderClosed { uid, .. } => assert_ne!(uid, 0),
        Error::Io { source, .. } => assert_eq!(source.kind(), io::ErrorKind::PermissionDenied),
        other => panic!("{other:?}"),
    }
}
