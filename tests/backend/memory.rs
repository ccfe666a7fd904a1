//! What a request can make the server hold.

use std::fs;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::time::{sleep, timeout};
use tonic::Code;
use xmtp_protocol::TopicKind;
use xmtp_protocol::client::PublishServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::{PublishRequest, QueryRequest};
use xmtp_test_support::TestDatabase;
use xmtp_test_support::payloads::{group_message, topic};

use crate::harness::{connect, query};
use crate::http2::{DATA, END_STREAM, HEADERS, SETTINGS, Wire};
use crate::process::Process;
use crate::raw::{self, frame};

/// Items of two bytes each.
const ITEMS: usize = 3_000_000;

/// What serving one may take at most, in bytes of memory for each of its bytes: the transport's buffer
/// while it grows, and the request in one piece.
const MOST: usize = 5;

/// Every list that a client can send. Each item is an empty message.
#[tokio::test]
async fn api_130_a_long_list_is_refused_before_it_takes_memory() {
    let list = [0x0a, 0].repeat(ITEMS);
    // Field 1, the update, which holds field 2, the adds.
    let update = [&[0x0a][..], &varint(list.len()), &[0x12, 0].repeat(ITEMS)].concat();
    // Field 1, an envelope, which holds field 4, an identity update of nothing but actions.
    let actions = [&[0x22][..], &varint(list.len()), &list].concat();
    let envelope = [&[0x0a][..], &varint(actions.len()), &actions].concat();
    for (path, body, code) in [
        ("PublishService/Publish", &envelope, Code::InvalidArgument),
        ("PublishService/Publish", &list, Code::InvalidArgument),
        ("QueryService/Query", &list, Code::InvalidArgument),
        ("QueryService/QueryNewest", &list, Code::InvalidArgument),
        (
            "SubscriptionService/SubscribeStatic",
            &list,
            Code::InvalidArgument,
        ),
        (
            "SubscriptionService/Subscribe",
            &update,
            Code::InvalidArgument,
        ),
    ] {
        let database = TestDatabase::create().await;
        let server = Process::serve(&database, "limits.max_request_bytes = 26214400").await;
        let before = peak_memory(&server);
        let body: Bytes = frame(body);
        let path = format!("/xmtp.backend.v1.{path}");
        let answer = raw::native(server.address, &path, body.clone(), &[]).await;
        assert_eq!(answer.code(), code, "{path}: {:?}", answer.status());
        let taken = peak_memory(&server) - before;
        assert!(taken < MOST * body.len(), "{path} took {taken} bytes");
    }
}

/// Calls on each connection, which is as many as one may have.
const CALLS: u32 = 100;
const CONNECTIONS: usize = 4;

/// What the server may hold of answers altogether, and of those that wait for room, in bytes: the `answers` of its
/// transport. On top come pages that are being read, and what the transport has of each answer.
const MOST_ANSWERS: usize = (256 + 64) << 20;

#[tokio::test]
async fn answers_that_nobody_reads_take_a_bounded_memory_and_give_it_back() {
    let database = TestDatabase::create().await;
    let server = Process::serve(&database, "").await;
    let channel = connect(server.address).await;
    let message = vec![7; 900_000];
    for _ in 0..4 {
        let request = PublishRequest {
            envelopes: vec![group_message(1, &message)],
        };
        let mut publisher = PublishServiceClient::new(channel.clone());
        publisher.publish(request).await.expect("it is published");
    }
    let request = QueryRequest {
        queries: vec![query(&topic(TopicKind::GroupMessage, 1), 0)],
        limit: 0,
    };
    let request = frame(&request.encode_to_vec());
    let before = memory(&server, "VmRSS");
    let mut wires = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut wire = Wire::open(server.address).await;
        // SETTINGS_INITIAL_WINDOW_SIZE = 0.
        wire.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]).await;
        for call in 0..CALLS {
            let stream = 2 * call + 1;
            let opened = wire.open_stream(stream, "/xmtp.backend.v1.QueryService/Query");
            opened.await.expect("opened");
            wire.send(DATA, END_STREAM, stream, &request).await;
        }
        wires.push(wire);
    }
    for wire in &mut wires {
        for _ in 0..CALLS {
            wire.wait_for(|frame| frame.kind == HEADERS).await;
        }
    }
    let taken = memory(&server, "VmHWM") - before;
    assert!(taken < 2 * MOST_ANSWERS, "{taken} bytes");
    let all = CALLS as usize * CONNECTIONS * message.len() * 4;
    assert!(taken < all / 2, "{taken} bytes of {all}");
    // They are let go while their peers still say nothing: after half a minute, which is no time of this test's. After
    // two minutes the connections would go, whose peers answer no PING.
    let given_back = async {
        while memory(&server, "VmRSS").saturating_sub(before) > MOST_ANSWERS / 4 {
            sleep(Duration::from_secs(1)).await;
        }
    };
    timeout(Duration::from_secs(90), given_back)
        .await
        .expect("the memory comes back");
    drop(wires);
}

fn varint(value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    prost::encoding::encode_varint(value as u64, &mut bytes);
    bytes
}

/// The most memory that the server has held, in bytes.
fn peak_memory(server: &Process) -> usize {
    memory(server, "VmHWM")
}

/// Memory of the server, as the system calls it, in bytes.
fn memory(server: &Process, name: &str) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid()));
    let status = status.expect("the system tells");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    1024 * kilobytes
        .and_then(|text| text.parse::<usize>().ok())
        .expect("the system tells it in kB")
}
