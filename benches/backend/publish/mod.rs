//! One-envelope publishes on distinct topics, by as many clients at once over gRPC, against `pgbench`
//! running the statements that the backend sends, in their order, on the same server. Run by `ci/bench`.
//!
//! Both sides have a database of their own with the same tables. Their rounds alternate, and medians are
//! compared. The exit status is 1 when the ratio or the number of round trips is not what is required.

#![expect(clippy::print_stdout, reason = "figures are what a benchmark is for")]

mod load;
mod pgbench;
mod server;
mod wire;

use std::process::ExitCode;
use std::time::Duration;

use load::Load;
use pgbench::Pgbench;
use server::Server;
use wire::{Publish, Recorder};
use xmtp_test_support::TestDatabase;

/// Clients at once, on either side.
const CLIENTS: usize = 16;
/// Rounds of each side, after one that warms up.
const ROUNDS: usize = 9;
/// Length of a round.
const ROUND: Duration = Duration::from_secs(5);
/// Publishes whose round trips are counted.
const COUNTED: usize = 200;

/// Least share of pgbench's throughput.
const LEAST_RATIO: f64 = 0.5;
/// Where this goes.
const AIM: f64 = 0.8;
/// Most round trips before the answer.
const MOST_ROUND_TRIPS: usize = 5;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be built");
    if runtime.block_on(bench()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Measures and prints; whether everything is as required.
async fn bench() -> bool {
    let (ours, theirs) = (TestDatabase::create().await, TestDatabase::create().await);
    check_durability(&ours).await;
    xmtp_store::MIGRATOR
        .run(&mut theirs.connect().await)
        .await
        .expect("the tables can be made");

    let publish = count_round_trips(&ours).await;
    print_round_trips(&publish);

    let pgbench = Pgbench::new(&theirs, &publish);
    let server = Server::start(&ours.url()).await;
    let load = Load::connect(server.address).await;
    println!(
        "\n{CLIENTS} clients, {} bytes an envelope, rounds of {} s: publishes a second",
        load::envelope_len(),
        ROUND.as_secs()
    );
    println!("{:>6}  {:>8}  {:>8}", "round", "backend", "pgbench");
    let mut sides = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let figures = (load.run(ROUND).await, pgbench.run(ROUND).await);
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
    let ratio = medians.0 / medians.1;
    println!("\nratio {ratio:.2}: at least {LEAST_RATIO} is required, {AIM} is where this goes");
    ratio >= LEAST_RATIO && publish.before_answer.len() <= MOST_ROUND_TRIPS
}

/// A server that does not wait for its disk shows nothing of what users get.
async fn check_durability(database: &TestDatabase) {
    for setting in ["fsync", "synchronous_commit", "full_page_writes"] {
        let value: String = sqlx::query_scalar("SELECT current_setting($1)")
            .bind(setting)
            .fetch_one(&mut database.connect().await)
            .await
            .expect("settings can be read");
        assert_eq!(value, "on", "{setting} has to be on: run this by ci/bench");
    }
}

/// The longest of many publishes, as seen between the backend and PostgreSQL.
async fn count_round_trips(database: &TestDatabase) -> Publish {
    let recorder = Recorder::start(database).await;
    let server = Server::start(&recorder.url).await;
    let load = Load::connect(server.address).await;
    // Every connection prepares its statements once.
    load.publish(COUNTED).await;
    recorder.clear();
    load.publish(COUNTED).await;
    let publishes = recorder.publishes();
    assert!(
        publishes.len() > COUNTED / 2,
        "publishes are not recognised on the wire"
    );
    publishes
        .into_iter()
        .max_by_key(|publish| publish.before_answer.len())
        .expect("there are publishes")
}

fn print_round_trips(publish: &Publish) {
    println!(
        "round trips of a publish: {} before its answer (at most {MOST_ROUND_TRIPS}), the most of {COUNTED}",
        publish.before_answer.len()
    );
    let print = |statement: &str| {
        let line = statement.split_whitespace().collect::<Vec<_>>().join(" ");
        let line = if line.is_empty() { "(Sync)" } else { &line };
        println!("    {}", line.chars().take(90).collect::<String>());
    };
    publish.before_answer.iter().for_each(|it| print(it));
    println!(
        "and {} after it, while the connection returns to its pool",
        publish.after_answer.len()
    );
    publish.after_answer.iter().for_each(|it| print(it));
}

fn print_line(name: &str, (ours, theirs): (f64, f64)) {
    println!("{name:>6}  {ours:>8.0}  {theirs:>8.0}");
}

/// Of an odd number of figures.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
