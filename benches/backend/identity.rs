//! Lookups of identifiers over gRPC, against `pgbench` running the statement that the backend sends for one,
//! on the same server.
//!
//! Both sides have a database of their own with the same rows. Nearly all that is asked for is known, as
//! when a client looks up those it talks to.

use std::fmt::Write as _;
use std::time::Duration;

use tonic::transport::Channel;
use uuid::Uuid;
use xmtp_protocol::client::IdentityServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::{GetInboxIdsRequest, get_inbox_ids_request};
use xmtp_test_support::{Random, TestDatabase};

use crate::clients::{self, CLIENTS};
use crate::figures::{Verdict, at_least, at_most};
use crate::pgbench::{self, Pgbench};
use crate::server::Server;
use crate::wire::Recorder;

/// Accounts that belong to an inbox.
const ACCOUNTS: u64 = 100_000;
/// Accounts of one lookup.
const ASKED: usize = 20;
/// Lookups whose statements are counted.
const COUNTED: usize = 50;

/// Least share of pgbench's throughput.
const LEAST_RATIO: f64 = 0.5;
/// Statements of a lookup.
const MOST_STATEMENTS: f64 = 1.0;

/// Every tenth account was in another inbox before.
const ROWS: &str = "
    INSERT INTO identifier_association
    SELECT '0x' || lpad(to_hex(id), 40, '0'), 1, sha256(int8send(id)), id, NULL
    FROM generate_series(1, {accounts}) AS id;
    INSERT INTO identifier_association
    SELECT '0x' || lpad(to_hex(id), 40, '0'), 1, sha256(int4send(id)), id, {accounts} + id
    FROM generate_series(1, {accounts}, 10) AS id;
    VACUUM ANALYZE identifier_association";

pub(crate) async fn measure() -> Verdict {
    let (ours, theirs) = (TestDatabase::create().await, TestDatabase::create().await);
    for database in [&ours, &theirs] {
        xmtp_store::MIGRATOR
            .run(&mut database.connect().await)
            .await
            .expect("the tables can be made");
        for statement in ROWS.split(';') {
            let accounts = ACCOUNTS.to_string();
            database
                .execute(&statement.replace("{accounts}", &accounts))
                .await;
        }
    }
    let (statement, statements) = statement(&ours).await;
    let pgbench = Pgbench::new(&theirs, &script(&statement));
    let server = Server::start(&ours, "").await;
    let clients = connect(&server).await;
    println!("{CLIENTS} clients, {ASKED} identifiers a lookup: lookups a second");
    let ours = async |time: Duration| clients::run(&clients, time, look_up).await;
    let ratio = pgbench::share(ours, &pgbench).await;
    at_least("ratio to pgbench", ratio, LEAST_RATIO).and(at_most(
        "statements of a lookup",
        statements,
        MOST_STATEMENTS,
    ))
}

type Client = IdentityServiceClient<Channel>;

async fn connect(server: &Server) -> Vec<Client> {
    let channels = clients::connect(server.address).await;
    channels.into_iter().map(Client::new).collect()
}

async fn look_up(mut client: Client) {
    let mut random = Random::new(Uuid::new_v4().as_u64_pair().0);
    let requests = (0..ASKED).map(|_| get_inbox_ids_request::Request {
        identifier: format!("0x{:040x}", random.below(ACCOUNTS) + 1),
        identifier_kind: 1,
    });
    let request = GetInboxIdsRequest {
        requests: requests.collect(),
    };
    let answer = client.get_inbox_ids(request).await;
    let responses = answer.expect("a lookup succeeds").into_inner().responses;
    assert_eq!(responses.len(), ASKED);
    assert!(responses.iter().all(|found| found.inbox_id.is_some()));
}

/// The statement of a lookup as it was seen on the wire, and how many a lookup takes.
async fn statement(database: &TestDatabase) -> (String, f64) {
    let recorder = Recorder::start(database).await;
    let server = Server::on(&recorder.url, "").await;
    let client = connect(&server).await.remove(0);
    // Every connection prepares its statements once.
    look_up(client.clone()).await;
    recorder.clear();
    for _ in 0..COUNTED {
        look_up(client.clone()).await;
    }
    let mut executed = recorder.executed();
    executed.retain(|statement| statement.contains("identifier_association"));
    let count = u32::try_from(executed.len()).unwrap_or(u32::MAX);
    let lookups = u32::try_from(COUNTED).unwrap_or(u32::MAX);
    let statement = executed.pop().expect("lookups are recognised on the wire");
    (statement, f64::from(count) / f64::from(lookups))
}

/// The statement, with random accounts in place of its parameters.
fn script(statement: &str) -> String {
    let mut script = String::new();
    let mut accounts = Vec::new();
    for number in 0..ASKED {
        let _ = writeln!(script, "\\set account{number} random(1, {ACCOUNTS})");
        accounts.push(format!(
            "'0x' || lpad(to_hex(:account{number}::int), 40, '0')"
        ));
    }
    let kinds = vec!["1"; ASKED].join(",");
    let statement = statement
        .replace("$1", &format!("ARRAY[{}]", accounts.join(",")))
        .replace("$2", &format!("ARRAY[{kinds}]"));
    let _ = writeln!(script, "{statement};");
    script
}
