//! What telemetry costs: publishes a second with the request log and the telemetry port on, against the same
//! program with both off and a silent log. A scraper reads the metrics meanwhile.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;
use xmtp_test_support::TestDatabase;

use crate::figures::{Verdict, at_least};
use crate::publish::sides::compare;
use crate::server::{Server, free_address};

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
    let ratio = compare(&on, &off, "telemetry").await;
    scraper.abort();
    at_least(
        "throughput with telemetry, median of the rounds' ratios",
        ratio,
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
