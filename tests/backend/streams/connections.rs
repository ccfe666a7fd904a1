//! Streams that share one connection (field case S03).

use xmtp_protocol::client::{HealthClient, QueryServiceClient, SubscriptionServiceClient};
use xmtp_protocol::proto::grpc::health::v1::HealthCheckRequest;
use xmtp_protocol::proto::xmtp::backend::v1::QueryRequest;

use super::reader::Reader;
use super::{group, messages};
use crate::harness::{Backend, query, within};
use crate::leaks::Leaks;

#[tokio::test]
async fn st_39_s03_only_the_stream_beyond_the_limit_waits() {
    const LIMIT: usize = 8;
    let backend = Backend::with(&format!("limits.max_http2_streams = {LIMIT}")).await;
    let leaks = Leaks::watch(&backend).await;
    let channel = backend.connect().await;
    // The client keeps to the limit once it has been told.
    let told = HealthClient::new(channel.clone())
        .check(HealthCheckRequest::default())
        .await;
    told.expect("health answers");
    let open = || Reader::try_open_with(SubscriptionServiceClient::new(channel.clone()));
    let mut readers = Vec::new();
    for _ in 0..LIMIT {
        readers.push(follow(open().await.expect("below the limit")).await);
    }
    let extra = tokio::spawn(open());
    let mut elsewhere = Reader::following(&backend, &[(group(1), 0)]).await;
    for number in 1..=5 {
        backend.publish(messages(1, [number])).await;
        for reader in readers.iter_mut().chain([&mut elsewhere]) {
            reader.read_to(&group(1), number).await;
            reader.probe(number).await;
        }
    }
    assert!(!extra.is_finished(), "one stream more than the limit");

    drop(readers.pop());
    let extra = within(extra).await.expect("no panic");
    readers.push(follow(extra.expect("a place is free")).await);
    drop(readers.pop());
    let request = QueryRequest {
        queries: vec![query(&group(1), 0)],
        limit: 0,
    };
    let answer = within(QueryServiceClient::new(channel.clone()).query(request)).await;
    let rows = answer.expect("a place is free").into_inner().envelopes;
    assert_eq!(rows.len(), 5);
    backend.publish(messages(1, [6])).await;
    for reader in readers.iter_mut().chain([&mut elsewhere]) {
        reader.read_to(&group(1), 6).await;
        assert_eq!(reader.ids(&group(1)), [1, 2, 3, 4, 5, 6]);
    }
    drop((readers, elsewhere, channel));
    leaks.none(backend).await;
}

async fn follow(mut reader: Reader) -> Reader {
    reader.update(&[(group(1), 0)], &[]);
    reader.applied().await;
    reader
}
