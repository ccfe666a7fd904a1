//! What a collector gets, and what the backend does when there is none, or a bad one: the `otlp` subsystem around the
//! program itself.

pub(crate) mod collector;
mod faults;
mod logs;
mod metrics;
mod traces;

use std::collections::BTreeMap;

use bytes::Bytes;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tonic::Code;
use xmtp_protocol::proto::xmtp::backend::v1::PublishRequest;
use xmtp_test_support::eventually;
use xmtp_test_support::payloads::group_message;

use crate::process::Process;
use crate::publish;
use crate::raw::{self, Answer, frame};
use collector::{Collector, Received};

/// Name of the request span of a publish.
const PUBLISH: &str = "xmtp.backend.v1.PublishService/Publish";

const FAILURES: &str = "xmtp_telemetry_export_failures_total";

/// Publishes one envelope, with these headers.
async fn publish_one(server: &Process, number: u8, headers: &[(&str, &str)]) -> Answer {
    let body = publish_body(number);
    let answer = raw::native(server.address, publish::PATH, body, headers).await;
    assert_eq!(answer.code(), Code::Ok);
    answer
}

/// A publish of one envelope, on a topic of this number.
fn publish_body(number: u8) -> Bytes {
    let body = PublishRequest {
        envelopes: vec![group_message(number, "text")],
    };
    frame(&body.encode_to_vec())
}

/// Attributes as text, by name.
fn texts(attributes: &[KeyValue]) -> BTreeMap<&str, String> {
    let text = |value: &Value| match value {
        Value::StringValue(text) => text.clone(),
        other => format!("{other:?}"),
    };
    attributes
        .iter()
        .map(|attribute| {
            let value = attribute
                .value
                .as_ref()
                .and_then(|value| value.value.as_ref());
            (&*attribute.key, value.map(text).unwrap_or_default())
        })
        .collect()
}

impl Received {
    /// Every span.
    pub(crate) fn spans(&self) -> Vec<&Span> {
        let resources = self.traces.iter().flat_map(|batch| &batch.resource_spans);
        let scopes = resources.flat_map(|resource| &resource.scope_spans);
        scopes.flat_map(|scope| &scope.spans).collect()
    }

    /// The spans with this name.
    fn named(&self, name: &str) -> Vec<&Span> {
        let spans = self.spans().into_iter();
        spans.filter(|span| span.name == name).collect()
    }
}

/// Waits until this many spans of a name have come, and answers all that has.
async fn until_spans(collector: &Collector, name: &str, count: usize) -> Received {
    eventually("the spans have come", async || {
        let received = collector.received();
        (received.named(name).len() >= count).then_some(received)
    })
    .await
}
