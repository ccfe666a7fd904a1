//! History on one stream, against a binary COPY of the same rows to a client of the same machine.

use std::time::Instant;

use futures::StreamExt;
use prost::Message;
use sqlx::PgConnection;
use xmtp_test_support::TestDatabase;
use xmtp_test_support::payloads::{ContentType, mls_message};

use super::client::{Stream, group};
use crate::figures::{Verdict, at_least, median};
use crate::server::Server;

const TOPICS: u32 = 1000;
const ROWS_OF_A_TOPIC: u32 = 200;
const ROWS: u32 = TOPICS * ROWS_OF_A_TOPIC;
const ROUNDS: usize = 3;
const CIPHERTEXT: [u8; 480] = [0x5a; 480];

const LEAST_RATIO: f64 = 0.25;
const AIM: f64 = 0.35;

pub(crate) async fn measure() -> Verdict {
    let database = TestDatabase::create().await;
    let mut connection = database.connect().await;
    fill(&mut connection).await;
    let server = Server::start(&database, "").await;
    println!("{ROWS} envelopes of {TOPICS} topics: a second");
    println!("{:>6}  {:>9}  {:>9}", "round", "stream", "COPY");
    let (mut streams, mut copies) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let figures = (stream(&server).await, copy(&mut connection).await);
        println!("{round:>6}  {:>9.0}  {:>9.0}", figures.0, figures.1);
        // The first one warms the caches.
        if round > 0 {
            streams.push(figures.0);
            copies.push(figures.1);
        }
    }
    println!("the ratio is to become {AIM}");
    at_least(
        "ratio to COPY",
        median(streams) / median(copies),
        LEAST_RATIO,
    )
}

/// Rows as publishes would have stored them.
async fn fill(connection: &mut PgConnection) {
    xmtp_store::MIGRATOR
        .run(&mut *connection)
        .await
        .expect("the tables can be made");
    let payload = mls_message(&[0; 16], ContentType::Application, &CIPHERTEXT).encode_to_vec();
    let statements = [
        "INSERT INTO envelopes (sequence_id, topic, server_ns, expiry_ns, message_hash,
                                is_commit_or_proposal, push_eligible, sender_hmac, payload)
         SELECT nextval('envelope_sequence'), '\\x00'::bytea || decode(lpad(to_hex(topic), 32, '0'), 'hex'),
                1, NULL, sha256(int8send(row * 1000000 + topic)), false, false, NULL, $3
         FROM generate_series(1, $2::bigint) AS row, generate_series(0, $1::bigint - 1) AS topic",
        "INSERT INTO topic_watermark (topic, last_sequence_id)
         SELECT topic, max(sequence_id) FROM envelopes
         WHERE $1::bigint + $2::bigint + length($3::bytea) > 0 GROUP BY topic",
    ];
    for statement in statements {
        sqlx::query(statement)
            .bind(i64::from(TOPICS))
            .bind(i64::from(ROWS_OF_A_TOPIC))
            .bind(&payload)
            .execute(&mut *connection)
            .await
            .expect("the rows are stored");
    }
    sqlx::raw_sql("VACUUM ANALYZE")
        .execute(connection)
        .await
        .expect("the tables are tidied");
}

async fn stream(server: &Server) -> f64 {
    let channel = server.connect().await;
    let begin = Instant::now();
    let mut stream = Stream::open(&channel, (0..TOPICS).map(group)).await;
    stream.take(ROWS as usize).await;
    f64::from(ROWS) / begin.elapsed().as_secs_f64()
}

async fn copy(connection: &mut PgConnection) -> f64 {
    let begin = Instant::now();
    let mut rows = connection
        .copy_out_raw("COPY envelopes TO STDOUT (FORMAT binary)")
        .await
        .expect("COPY begins");
    while let Some(chunk) = rows.next().await {
        chunk.expect("COPY goes on");
    }
    f64::from(ROWS) / begin.elapsed().as_secs_f64()
}
