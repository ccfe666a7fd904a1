//! `Publish`: what it stores, says and refuses.

mod admission;
mod bounds;
pub(crate) mod canonical;
mod duplicates;
mod faults;
mod identity;
mod metadata;
mod order;
mod races;
mod vectors;

use bytes::Bytes;
use prost::Message;
use tonic::{Code, Status};
use xmtp_protocol::proto::xmtp::backend::v1::publish_error::Reason;
use xmtp_protocol::proto::xmtp::backend::v1::{ClientEnvelope, PublishRequest};
use xmtp_test_support::payloads::group_message;

use crate::harness::{Backend, publish_error};

pub(crate) const PATH: &str = "/xmtp.backend.v1.PublishService/Publish";

/// An envelope that no position of a request may have.
fn malformed() -> ClientEnvelope {
    ClientEnvelope { payload: None }
}

/// A group message whose canonical encoding has exactly `length` bytes.
fn sized(group: u8, length: usize) -> ClientEnvelope {
    let envelope = |text: usize| group_message(group, vec![b'.'; text]);
    (0..length)
        .rev()
        .map(envelope)
        .find(|envelope| envelope.encoded_len() == length)
        .expect("the length can be had")
}

fn request(envelopes: impl IntoIterator<Item = ClientEnvelope>) -> PublishRequest {
    PublishRequest {
        envelopes: envelopes.into_iter().collect(),
    }
}

pub(crate) fn encoded(envelopes: impl IntoIterator<Item = ClientEnvelope>) -> Bytes {
    request(envelopes).encode_to_vec().into()
}

/// What a refused publish says to programs: the position and the reason's name.
pub(crate) type Refusal = (Option<u32>, &'static str);

pub(crate) fn at(index: Option<u32>, reason: Reason) -> Refusal {
    (index, reason.as_str_name())
}

#[track_caller]
pub(crate) fn refusal<T: std::fmt::Debug>(result: Result<T, Status>) -> Refusal {
    let status = result.expect_err("the publish is refused");
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    let detail = publish_error(&status).expect("a refusal has its detail");
    assert_eq!(detail.message, status.message());
    at(detail.index, detail.reason())
}

/// Asserts that a publish failed with `code`, and with no detail.
#[track_caller]
pub(crate) fn failed<T: std::fmt::Debug>(result: Result<T, Status>, code: Code) {
    let status = result.expect_err("the publish fails");
    assert_eq!(status.code(), code, "{status:?}");
    assert_eq!(publish_error(&status), None);
}

/// Asserts how many rows there are, and how many topics have a head. Each inbox of these tests has one
/// wallet, which is found if the inbox is stored and not otherwise.
async fn stored(backend: &Backend, rows: i64, topics: i64) {
    let inboxes = "topic_watermark WHERE get_byte(topic, 0) = 2";
    assert_eq!(
        [
            backend.count("envelopes").await,
            backend.count("topic_watermark").await,
            backend.count("identifier_association").await,
        ],
        [rows, topics, backend.count(inboxes).await]
    );
}
