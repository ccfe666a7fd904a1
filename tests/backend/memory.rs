//! What a request can make the server hold.

use std::fs;

use bytes::Bytes;
use tonic::Code;
use xmtp_test_support::TestDatabase;

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
    for (path, body, code) in [
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

fn varint(value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    prost::encoding::encode_varint(value as u64, &mut bytes);
    bytes
}

/// The most memory that the server has held, in bytes.
fn peak_memory(server: &Process) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid()));
    let status = status.expect("the system tells");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    1024 * kilobytes
        .and_then(|text| text.parse::<usize>().ok())
        .expect("the system tells it in kB")
}
