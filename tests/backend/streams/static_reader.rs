//! The client of one static stream.

use tonic::{Status, Streaming};
use xmtp_protocol::Topic;
use xmtp_protocol::proto::xmtp::backend::v1::subscribe_static_response::Response;
use xmtp_protocol::proto::xmtp::backend::v1::{
    SubscribeStaticRequest, SubscribeStaticResponse, TopicQuery,
};

use super::oracle::Oracle;
use crate::harness::{Backend, query, wire, within};

/// A static stream whose every frame is judged.
pub(super) struct StaticReader {
    frames: Streaming<SubscribeStaticResponse>,
    asked: Vec<(Topic, u64)>,
    oracle: Oracle,
}

/// What arrived.
#[derive(Debug, PartialEq)]
pub(super) enum Frame {
    /// Its targets and its interval, milliseconds.
    Started(Vec<u64>, u32),
    Rows,
    Keepalive,
}

impl StaticReader {
    /// Waits for the response's headers, and for no frame.
    pub(super) async fn open(backend: &Backend, asked: &[(Topic, u64)]) -> Self {
        let topics = asked
            .iter()
            .map(|(topic, after)| query(topic, *after))
            .collect();
        Self {
            frames: request(backend, topics).await.expect("admitted"),
            asked: asked.to_vec(),
            oracle: Oracle::default(),
        }
    }

    pub(super) async fn next(&mut self) -> Frame {
        let frame = self.try_next().await.expect("the stream is healthy");
        frame.expect("the stream is open")
    }

    pub(super) async fn try_next(&mut self) -> Result<Option<Frame>, Status> {
        let Some(frame) = within(self.frames.message()).await? else {
            return Ok(None);
        };
        Ok(Some(
            match frame.response.expect("a frame is of some kind") {
                Response::Started(started) => {
                    let topics: Vec<_> = started
                        .targets
                        .iter()
                        .map(|target| target.topic.clone())
                        .collect();
                    let asked: Vec<_> = self
                        .asked
                        .iter()
                        .map(|(topic, _)| Some(wire(topic)))
                        .collect();
                    assert_eq!(topics, asked, "a target for each topic, in request order");
                    for (topic, after) in &self.asked {
                        self.oracle.register(*topic, *after);
                    }
                    let targets = started
                        .targets
                        .iter()
                        .map(|target| target.through_sequence_id);
                    Frame::Started(targets.collect(), started.keepalive_interval_ms)
                }
                Response::Messages(messages) => {
                    self.oracle.observe(&messages.envelopes);
                    Frame::Rows
                }
                Response::Keepalive(_) => Frame::Keepalive,
            },
        ))
    }

    /// Reads until the topic has come to `id` or beyond.
    pub(super) async fn read_to(&mut self, topic: &Topic, id: u64) {
        while self.oracle.position(topic) < id {
            self.next().await;
        }
    }

    pub(super) fn ids(&self, topic: &Topic) -> Vec<u64> {
        self.oracle.ids(topic)
    }
}

/// Asks for a static stream.
pub(super) async fn request(
    backend: &Backend,
    topics: Vec<TopicQuery>,
) -> Result<Streaming<SubscribeStaticResponse>, Status> {
    let mut client = backend.subscriptions();
    let response = within(client.subscribe_static(SubscribeStaticRequest { topics })).await?;
    Ok(response.into_inner())
}
