//! What optional subsystems cost where they are built in and not configured: publishes and deliveries a second of the
//! full build, against those of the minimal one.

use std::env;

use xmtp_test_support::TestDatabase;

use crate::figures::{Verdict, at_least, median};
use crate::publish::sides::compare;
use crate::server::{Server, free_address};
use crate::streams::fan_out::{SETTINGS, deliver};

/// Names the minimal build's program.
const MINIMAL: &str = "XMTP_MINIMAL_PROGRAM";

/// Many, since a round takes a second and its figure strays by a tenth.
const ROUNDS: u32 = 60;

/// Least share that is left.
const LEAST_RATIO: f64 = 0.97;

pub(crate) async fn measure() -> Verdict {
    let minimal = env::var_os(MINIMAL).expect("ci/bench names the minimal program");
    let databases = (TestDatabase::create().await, TestDatabase::create().await);
    let settings = || {
        let telemetry = free_address();
        format!(
            "server.log_format = \"json\"\ntelemetry.metrics_listen = \"{telemetry}\"\n{SETTINGS}"
        )
    };
    let full = Server::with(&databases.0.url(), &settings()).await;
    let minimal = Server::of(minimal, &databases.1.url(), &settings()).await;
    let published = compare(&full, &minimal, "every feature").await;
    println!("deliveries a second");
    println!("{:>6}  {:>9}  {:>9}", "round", "full", "minimal");
    let mut ratios = Vec::new();
    let before = (full.processor_time(), minimal.processor_time());
    for round in 0..=ROUNDS {
        // Whoever comes first finds another machine than whoever comes second.
        let rates = if round % 2 == 0 {
            let full = deliver(&full, round).await;
            (full, deliver(&minimal, round).await)
        } else {
            let minimal = deliver(&minimal, round).await;
            (deliver(&full, round).await, minimal)
        };
        println!("{round:>6}  {:>9.0}  {:>9.0}", rates.0, rates.1);
        if round > 0 {
            ratios.push(rates.0 / rates.1);
        }
    }
    let spent = (
        full.processor_time() - before.0,
        minimal.processor_time() - before.1,
    );
    println!(
        "processor time of the full build, of the minimal: {:.3}",
        spent.0 / spent.1
    );
    at_least("publishes of the minimal build", published, LEAST_RATIO).and(at_least(
        "deliveries of the minimal build, median of the rounds' ratios",
        median(ratios),
        LEAST_RATIO,
    ))
}
