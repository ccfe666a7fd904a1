//! `xmtp-backend demo`: a smoke test of a running server.
//!
//! Recorded envelopes are published, streamed back and queried, and the three answers are compared with
//! the recording and with each other. A server that has them already answers with what it stored then,
//! and the stream's history shows them instead of its live part. What a server may refuse ([`Expected`]) is
//! counted apart.

mod error;
mod feed;
mod query;
mod recording;
mod refusal;
mod report;

use std::fs;
use std::path::Path;
use std::time::Duration;

use tokio::runtime;
use tokio::time::{Instant, timeout_at};
use tonic::transport::{Channel, Endpoint, Uri};
use xmtp_protocol::client::{ConfigurationServiceClient, PublishServiceClient};
use xmtp_protocol::proto::xmtp::backend::v1::{
    EnvelopeMeta, GetConfigurationRequest, PublishRequest, ServerEnvelope,
};
use xmtp_protocol::{MessageHash, Topic};

pub(crate) use error::DemoError;
use error::{Fault, Step};
use feed::Feed;
use recording::Recording;
use refusal::Expected;
pub(crate) use report::Report;

/// The recording that the program brings along.
const RECORDED: &str = include_str!("../../tests/data/recorded-envelopes.jsonl");

/// Time for everything together.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time for the connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What an envelope is known by (API-211).
type Key = (Topic, MessageHash);

/// What a publish of one envelope gives.
type Receipt = Result<EnvelopeMeta, Expected>;

/// Shows the envelopes of `file`, or those that the program brings along, to the server at `url`.
///
/// # Errors
/// [`DemoError`]: the first thing that is not as it should be, at the latest after 30 seconds.
pub(crate) fn run(url: &Uri, file: Option<&Path>) -> Result<Report, DemoError> {
    let recording = match file {
        Some(path) => fs::read_to_string(path).map_err(DemoError::File)?.parse()?,
        None => RECORDED.parse()?,
    };
    runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(DemoError::Runtime)?
        .block_on(show(url, &recording))
}

async fn show(url: &Uri, recording: &Recording) -> Result<Report, DemoError> {
    let deadline = Instant::now() + PATIENCE;
    let channel = connect(url).await?;
    within(deadline, Step::Configuration, greet(&channel)).await?;
    // Before anything is published, so that what is new arrives live.
    let mut feed = within(deadline, Step::Stream, Feed::open(&channel, recording)).await?;
    let publishing = within(deadline, Step::Publish, publish(&channel, recording));
    let (receipts, streamed) =
        within(deadline, Step::Stream, feed.collect(recording, publishing)).await?;
    let queried = within(
        deadline,
        Step::Query,
        query::run(&channel, recording, &receipts),
    )
    .await?;

    let mut report = Report::default();
    for (index, recorded) in recording.envelopes.iter().enumerate() {
        let fault = |fault| DemoError::Envelope {
            line: recorded.line,
            fault,
        };
        let (receipt, streamed) = match (&receipts[index], &streamed[index]) {
            (Ok(receipt), Some(streamed)) => (receipt, streamed),
            (Ok(_), None) => return Err(fault(Fault::Missing(Step::Stream))),
            (Err(expected), None) if queried[index].is_none() => {
                report.refuse(recorded.topic.kind(), *expected);
                continue;
            }
            (Err(_), _) => return Err(fault(Fault::Stored)),
        };
        recorded.check_receipt(receipt).map_err(fault)?;
        recorded
            .check_delivery(receipt, streamed, Step::Stream)
            .map_err(fault)?;
        if let Some(queried) = &queried[index] {
            recorded
                .check_delivery(receipt, queried, Step::Query)
                .map_err(fault)?;
        }
        let id = position(receipt).ok_or(fault(Fault::NoCursor))?;
        report.add(
            recorded.topic.kind(),
            id,
            feed.is_live(&recorded.topic, id),
            queried[index].is_some(),
        );
    }
    Ok(report)
}

/// Ends `work` with an error at the deadline.
async fn within<T>(
    deadline: Instant,
    step: Step,
    work: impl Future<Output = Result<T, DemoError>>,
) -> Result<T, DemoError> {
    timeout_at(deadline, work)
        .await
        .unwrap_or(Err(DemoError::Late { step }))
}

async fn connect(url: &Uri) -> Result<Channel, DemoError> {
    if url.scheme_str() != Some("http") {
        return Err(DemoError::Scheme);
    }
    Endpoint::from(url.clone())
        .connect_timeout(CONNECT_TIMEOUT)
        .connect()
        .await
        .map_err(|_| DemoError::Connect)
}

/// Makes sure that it is an XMTP backend that answers.
async fn greet(channel: &Channel) -> Result<(), DemoError> {
    ConfigurationServiceClient::new(channel.clone())
        .get_configuration(GetConfigurationRequest {})
        .await
        .map_err(|status| DemoError::WrongServer(status.code()))?;
    Ok(())
}

/// Publishes one envelope after the other, as clients do; the receipts are in the recording's order.
async fn publish(channel: &Channel, recording: &Recording) -> Result<Vec<Receipt>, DemoError> {
    let mut publisher = PublishServiceClient::new(channel.clone());
    let mut receipts = Vec::with_capacity(recording.envelopes.len());
    for recorded in &recording.envelopes {
        let request = PublishRequest {
            envelopes: vec![recorded.envelope.clone()],
        };
        let metas = match publisher.publish(request).await {
            Ok(answer) => answer.into_inner().envelope_metas,
            Err(status) => {
                let expected = Expected::of(&recorded.envelope, status.code())
                    .ok_or_else(|| Step::Publish.refused()(status))?;
                receipts.push(Err(expected));
                continue;
            }
        };
        let Ok([receipt]) = <[EnvelopeMeta; 1]>::try_from(metas) else {
            return Err(DemoError::Envelope {
                line: recorded.line,
                fault: Fault::ReceiptCount,
            });
        };
        receipts.push(Ok(receipt));
    }
    Ok(receipts)
}

/// Which envelope metadata speaks of; `None` where it is incomplete.
fn key(meta: &EnvelopeMeta) -> Option<Key> {
    use xmtp_protocol::proto::xmtp::backend::v1::message_hash::Hash;
    let topic = Topic::parse(&meta.topic.as_ref()?.topic).ok()?;
    let Hash::Sha256(hash) = meta.message_hash.as_ref()?.hash.as_ref()?;
    let hash: [u8; MessageHash::LEN] = hash[..].try_into().ok()?;
    Some((topic, hash.into()))
}

/// The sequence id in metadata.
fn position(meta: &EnvelopeMeta) -> Option<u64> {
    Some(meta.cursor?.sequence_id)
}

/// The topic and the sequence id of a delivery.
fn place(delivery: &ServerEnvelope, step: Step) -> Result<(Key, u64), DemoError> {
    let meta = delivery.meta.as_ref();
    meta.and_then(|meta| Some((key(meta)?, position(meta)?)))
        .ok_or(DemoError::NoMetadata { step })
}
