//! What the boundary task costs publishers while one slow publish holds the barrier, printed.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use xmtp_protocol::client::PublishServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::PublishRequest;
use xmtp_store::{Primary, Settings, publish::PublishLocks};
use xmtp_test_support::TestDatabase;
use xmtp_test_support::payloads::{ContentType, mls_message};

use super::client::{Stream, group, group_id};
use crate::figures::{Verdict, milliseconds, percentile};
use crate::server::Server;

const PUBLISHERS: u32 = 8;
const TIME: Duration = Duration::from_secs(8);

pub(crate) async fn measure() -> Verdict {
    let database = TestDatabase::create().await;
    let server = Server::start(&database, "").await;
    // The tailer and the boundary task work for somebody.
    let mut stream = Stream::open(&server.connect().await, (0..PUBLISHERS).map(group)).await;
    let reading = tokio::spawn(async move {
        loop {
            stream.rows().await;
        }
    });
    let primary = Primary::connect(Settings {
        url: database.url().into(),
        max_connections: 1,
        statement_timeout: Duration::from_mins(1),
        transaction_timeout: Duration::from_mins(1),
    })
    .await
    .expect("the database is there");
    println!("{PUBLISHERS} publishers: a publish, ms");
    publish(&server, 0, "warmup").await;
    publish(&server, 1, "barrier free").await;
    // A publish that has its locks and its id, and takes its time.
    let slow = primary.publish().await.expect("a connection");
    let slow = slow.begin(&PublishLocks::new([&group(1000)])).await;
    let mut connection = database.connect().await;
    sqlx::query("SELECT nextval('envelope_sequence')")
        .execute(&mut connection)
        .await
        .expect("an id is passed over");
    publish(&server, 2, "barrier held").await;
    slow.expect("it has its locks").rollback().await;
    reading.abort();
    Verdict::Good
}

async fn publish(server: &Server, round: u32, name: &str) {
    let mut tasks = JoinSet::new();
    for publisher in 0..PUBLISHERS {
        let mut client = PublishServiceClient::new(server.connect().await);
        tasks.spawn(async move {
            let (begin, mut times) = (Instant::now(), Vec::new());
            for number in 0_u32.. {
                if begin.elapsed() > TIME {
                    break;
                }
                let text = [round.to_be_bytes(), number.to_be_bytes()].concat();
                let message = mls_message(&group_id(publisher), ContentType::Application, &text);
                let called = Instant::now();
                let envelopes = vec![message];
                client
                    .publish(PublishRequest { envelopes })
                    .await
                    .expect("a publish succeeds");
                times.push(milliseconds(called.elapsed()));
            }
            times
        });
    }
    let times: Vec<f64> = tasks.join_all().await.concat();
    println!(
        "{name}: {} publishes, p50 {:.1}, p99 {:.1}",
        times.len(),
        percentile(times.clone(), 50),
        percentile(times, 99)
    );
}
