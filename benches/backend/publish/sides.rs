//! What something costs: publishes a second with it and without it. Both sides serve databases of their own and are
//! measured in alternating rounds. The processor time of both is printed as well: it says the same with less noise, but
//! of the program alone.

use std::time::Duration;

use super::load::Load;
use crate::figures::median;
use crate::server::Server;

/// Rounds of each side, after one that warms up.
const ROUNDS: usize = 60;
/// Length of a round: short, so that both sides see the same machine.
const ROUND: Duration = Duration::from_secs(1);

/// Measures both; answers the share of the throughput that is left with `what`, the median of the rounds' ratios.
pub(crate) async fn compare(on: &Server, off: &Server, what: &str) -> f64 {
    let loads = (
        Load::connect(on.address).await,
        Load::connect(off.address).await,
    );
    println!("rounds of {} s: publishes a second", ROUND.as_secs());
    println!("{:>6}  {:>8}  {:>8}", "round", "on", "off");
    let mut sides = (Vec::new(), Vec::new());
    let before = (on.processor_time(), off.processor_time());
    let mut ratios = Vec::new();
    let mut done = (0.0, 0.0);
    for round in 0..=ROUNDS {
        // Whoever comes first finds another machine than whoever comes second.
        let figures = if round % 2 == 0 {
            let on = loads.0.run(ROUND).await;
            (on, loads.1.run(ROUND).await)
        } else {
            let off = loads.1.run(ROUND).await;
            (loads.0.run(ROUND).await, off)
        };
        done = (done.0 + figures.0, done.1 + figures.1);
        let name = if round == 0 {
            "warmup".to_owned()
        } else {
            sides.0.push(figures.0);
            sides.1.push(figures.1);
            ratios.push(figures.0 / figures.1);
            round.to_string()
        };
        println!("{name:>6}  {:>8.0}  {:>8.0}", figures.0, figures.1);
    }
    println!(
        "{:>6}  {:>8.0}  {:>8.0}",
        "median",
        median(sides.0),
        median(sides.1)
    );
    let spent = (
        on.processor_time() - before.0,
        off.processor_time() - before.1,
    );
    // The first round counts here.
    let published = (done.0 * ROUND.as_secs_f64(), done.1 * ROUND.as_secs_f64());
    println!(
        "processor time of a publish: {:.0} us with {what}, {:.0} us without",
        spent.0 * 1e6 / published.0,
        spent.1 * 1e6 / published.1,
    );
    median(ratios)
}
