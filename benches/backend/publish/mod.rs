//! One-envelope publishes on distinct topics, by as many clients at once over gRPC, against `pgbench`
//! running the statements that the backend sends, in their order, on the same server.
//!
//! Both sides have a database of their own with the same tables. Their rounds alternate, and medians are
//! compared.

pub(crate) mod load;
mod script;
pub(crate) mod sides;

use load::Load;
use xmtp_test_support::TestDatabase;

use crate::clients::CLIENTS;
use crate::figures::{Verdict, at_least, at_most};
use crate::pgbench::{self, Pgbench};
use crate::server::Server;
use crate::wire::{Publish, Recorder};

/// Publishes whose round trips are counted.
const COUNTED: usize = 200;

/// Least share of pgbench's throughput.
const LEAST_RATIO: f64 = 0.5;
/// Where this goes.
const AIM: f64 = 0.8;
/// Most round trips before the answer.
const MOST_ROUND_TRIPS: f64 = 5.0;

pub(crate) async fn measure() -> Verdict {
    let (ours, theirs) = (TestDatabase::create().await, TestDatabase::create().await);
    check_durability(&ours).await;
    xmtp_store::MIGRATOR
        .run(&mut theirs.connect().await)
        .await
        .expect("the tables can be made");

    let publish = count_round_trips(&ours).await;
    print_round_trips(&publish);

    let pgbench = Pgbench::new(&theirs, &script::script(&publish));
    let server = Server::start(&ours, "").await;
    let load = Load::connect(server.address).await;
    println!(
        "\n{CLIENTS} clients, {} bytes an envelope: publishes a second",
        load::envelope_len()
    );
    let ratio = pgbench::share(async |time| load.run(time).await, &pgbench).await;
    println!("the ratio is to become {AIM}");
    let trips = u32::try_from(publish.before_answer.len()).unwrap_or(u32::MAX);
    at_least("ratio to pgbench", ratio, LEAST_RATIO).and(at_most(
        "round trips",
        trips.into(),
        MOST_ROUND_TRIPS,
    ))
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
    let server = Server::on(&recorder.url, "").await;
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
