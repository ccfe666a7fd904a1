//! The stream's side: every envelope of the recording, exactly once, by history or live.

use std::collections::HashMap;
use std::pin::pin;

use futures::SinkExt;
use futures::channel::mpsc;
use tokio::select;
use tonic::Streaming;
use tonic::transport::Channel;
use xmtp_protocol::Topic;
use xmtp_protocol::client::SubscriptionServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::subscribe_request::{Request, Update};
use xmtp_protocol::proto::xmtp::backend::v1::subscribe_response::{Applied, Response};
use xmtp_protocol::proto::xmtp::backend::v1::{
    Ping, Pong, ServerEnvelope, SubscribeRequest, SubscribeResponse, Topic as WireTopic, TopicQuery,
};

use super::error::{DemoError, Fault, Step};
use super::recording::Recording;
use super::{Receipt, place};

/// Requests on their way; there is never more than one update, one ping and one pong.
const REQUESTS: usize = 4;

/// Of the one ping.
const NONCE: u64 = 1;

/// A stream on every topic of a recording, from its start.
pub(super) struct Feed {
    requests: mpsc::Sender<SubscribeRequest>,
    frames: Streaming<SubscribeResponse>,
    /// How far the history of each topic went when the stream was opened.
    targets: HashMap<Topic, u64>,
    /// The last delivery of each topic.
    heads: HashMap<Topic, u64>,
}

impl Feed {
    /// Opens the stream and waits until its topics are registered.
    pub(super) async fn open(channel: &Channel, recording: &Recording) -> Result<Self, DemoError> {
        let topics = recording.topics();
        let adds = topics.iter().map(from_start).collect();
        let (mut requests, inbound) = mpsc::channel(REQUESTS);
        let update = Update {
            id: 1,
            adds,
            removes: Vec::new(),
        };
        send(&mut requests, Request::Update(update)).await?;
        let frames = SubscriptionServiceClient::new(channel.clone())
            .max_decoding_message_size(usize::MAX)
            .subscribe(inbound)
            .await
            .map_err(Step::Stream.refused())?
            .into_inner();
        let mut feed = Self {
            requests,
            frames,
            targets: HashMap::new(),
            heads: HashMap::new(),
        };
        let Response::Started(_) = feed.next().await? else {
            return Err(DemoError::Frame);
        };
        let Response::Applied(applied) = feed.next().await? else {
            return Err(DemoError::Frame);
        };
        feed.targets = targets(&applied);
        if feed.targets.len() == topics.len() {
            Ok(feed)
        } else {
            Err(DemoError::Frame)
        }
    }

    /// Reads while `publishing`, then until every envelope that has a receipt has been there, and once more
    /// for what may be there twice.
    pub(super) async fn collect(
        &mut self,
        recording: &Recording,
        publishing: impl Future<Output = Result<Vec<Receipt>, DemoError>>,
    ) -> Result<(Vec<Receipt>, Vec<Option<ServerEnvelope>>), DemoError> {
        let mut seen: Vec<Option<ServerEnvelope>> = vec![None; recording.envelopes.len()];
        let mut publishing = pin!(publishing);
        let receipts = loop {
            select! {
                receipts = &mut publishing => break receipts?,
                response = self.next() => self.take(messages(response?)?, recording, &mut seen)?,
            }
        };
        let missing = |seen: &[Option<ServerEnvelope>]| {
            let mut pairs = receipts.iter().zip(seen);
            pairs.any(|(receipt, seen)| receipt.is_ok() && seen.is_none())
        };
        while missing(&seen) {
            let envelopes = messages(self.next().await?)?;
            self.take(envelopes, recording, &mut seen)?;
        }
        send(&mut self.requests, Request::Ping(Ping { nonce: NONCE })).await?;
        loop {
            match self.next().await? {
                Response::Pong(Pong { nonce: NONCE }) => return Ok((receipts, seen)),
                response => self.take(messages(response)?, recording, &mut seen)?,
            }
        }
    }

    /// Whether an envelope came after the history of its topic.
    pub(super) fn is_live(&self, topic: &Topic, position: u64) -> bool {
        self.targets
            .get(topic)
            .is_some_and(|target| position > *target)
    }

    /// Keeps what belongs to the recording.
    fn take(
        &mut self,
        envelopes: Vec<ServerEnvelope>,
        recording: &Recording,
        seen: &mut [Option<ServerEnvelope>],
    ) -> Result<(), DemoError> {
        for envelope in envelopes {
            let (key, position) = place(&envelope, Step::Stream)?;
            let index = recording.find(&key);
            if let Some(index) = index
                && seen[index].is_some()
            {
                return Err(DemoError::Envelope {
                    line: recording.envelopes[index].line,
                    fault: Fault::Twice(Step::Stream),
                });
            }
            let before = self.heads.insert(key.0, position);
            if before.is_some_and(|before| before >= position) {
                return Err(DemoError::Order { step: Step::Stream });
            }
            if let Some(index) = index {
                seen[index] = Some(envelope);
            }
        }
        Ok(())
    }

    /// The next frame that is for us; the server's pings are answered.
    async fn next(&mut self) -> Result<Response, DemoError> {
        loop {
            let frame = self
                .frames
                .message()
                .await
                .map_err(Step::Stream.refused())?;
            let frame = frame.ok_or(DemoError::StreamEnded)?;
            match frame.response.ok_or(DemoError::Frame)? {
                Response::Ping(Ping { nonce }) => {
                    send(&mut self.requests, Request::Pong(Pong { nonce })).await?;
                }
                response => return Ok(response),
            }
        }
    }
}

async fn send(
    requests: &mut mpsc::Sender<SubscribeRequest>,
    request: Request,
) -> Result<(), DemoError> {
    let request = SubscribeRequest {
        request: Some(request),
    };
    // The receiving end is gone when the call is.
    requests
        .send(request)
        .await
        .map_err(|_| DemoError::StreamEnded)
}

fn messages(response: Response) -> Result<Vec<ServerEnvelope>, DemoError> {
    match response {
        Response::Messages(messages) => Ok(messages.envelopes),
        _ => Err(DemoError::Frame),
    }
}

fn from_start(topic: &Topic) -> TopicQuery {
    TopicQuery {
        topic: Some(WireTopic {
            topic: topic.as_bytes().to_vec().into(),
        }),
        cursor: None,
    }
}

fn targets(applied: &Applied) -> HashMap<Topic, u64> {
    applied
        .added_targets
        .iter()
        .filter_map(|target| {
            let topic = Topic::parse(&target.topic.as_ref()?.topic).ok()?;
            Some((topic, target.through_sequence_id))
        })
        .collect()
}
