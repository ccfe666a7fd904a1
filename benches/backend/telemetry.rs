//! What telemetry costs: publishes a second with the request log and the telemetry port on, against the same
//! program with both off and a silent log. Both serve databases of their own and measure in alternating
//! rounds; a scraper reads the metrics meanwhile. The processor time of both is printed as well: it says the
//! same with less noise, but of the program alone.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;
use xmtp_test_support::TestDatabase;

use crate::figures::{Verdict, at_least, median};
use crate::publish::load::Load;
use crate::server::{Server, free_address};

/// Rounds of each side, after one that warms up.
const ROUNDS: usize = 60;
/// Length of a round: short, so that both sides see the same machine.
const ROUND: Duration = Duration::from_secs(1);
/// Between two scrapes; operators take 15 seconds or more.
const SCRAPE_INTERVAL: Duration = Duration::from_secs(5);

/// Least share of the throughput that is left.
const LEAST_RATIO: f64 = 0.92;

pub(crate) async fn measure() -> Verdict {
    let databases = (TestDatabase::create().await, TestDatabase::create().await);
    let telemetry = free_address();
    let settings = format!(
        "server.log_level = \"info\"\nserver.log_format = \"json\"\nserver.request_logger = true\n\
         telemetry.metrics_listen = \"{telemetry}\""
    );
    let on = Server::with(&databases.0.url(), &settings).await;
    let settings = "server.log_level = \"off\"\nserver.request_logger = false\n\
                    telemetry.metrics_listen = \"\"";
    let off = Server::with(&databases.1.url(), settings).await;
    let scraper = tokio::spawn(async move {
        loop {
            scrape(telemetry).await;
            sleep(SCRAPE_INTERVAL).await;
        }
    });
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
    scraper.abort();
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
        "processor time of a publish: {:.0} us with telemetry, {:.0} us without",
        spent.0 * 1e6 / published.0,
        spent.1 * 1e6 / published.1,
    );
    at_least(
        "throughput with telemetry, median of the rounds' ratios",
        median(ratios),
        LEAST_RATIO,
    )
}

/// Reads the metrics once.
async fn scrape(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).await.expect("the port is open");
    let request = "GET /metrics HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    assert!(answer.starts_with("HTTP/1.1 200"), "metrics are served");
    assert!(answer.contains("grpc_server_handled_total"), "all of them");
}
