//! The client of one bidirectional stream.

use std::collections::VecDeque;
use std::net::SocketAddr;

use futures::channel::mpsc;
use tonic::{Status, Streaming};
use xmtp_protocol::Topic;
use xmtp_protocol::client::SubscriptionServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::subscribe_request::{Request, Update};
use xmtp_protocol::proto::xmtp::backend::v1::subscribe_response::Response;
use xmtp_protocol::proto::xmtp::backend::v1::{
    CatchupTarget, Ping, Pong, ServerEnvelope, SubscribeRequest, SubscribeResponse,
};

use super::oracle::Oracle;
use crate::harness::{Backend, query, try_connect, wire, within};

/// Requests that may wait to be sent.
const UNSENT: usize = 4096;

/// A stream on a connection of its own. Every frame that it reads is judged by an [`Oracle`], and every
/// acknowledgement against the updates that were sent.
pub(crate) struct Reader {
    requests: mpsc::Sender<SubscribeRequest>,
    frames: Streaming<SubscribeResponse>,
    keepalive_interval_ms: u32,
    last_update: u64,
    unacknowledged: VecDeque<Sent>,
    oracle: Oracle,
}

/// An update on its way.
struct Sent {
    id: u64,
    adds: Vec<(Topic, u64)>,
    removes: Vec<Topic>,
}

/// What arrived.
#[derive(Debug, PartialEq)]
pub(crate) enum Frame {
    /// The next update is in force; its targets.
    Applied(Vec<u64>),
    Rows(Vec<ServerEnvelope>),
    Ping(u64),
    Pong(u64),
}

impl Reader {
    /// Opens a stream and takes its first frame, having sent none (API-250).
    pub(crate) async fn try_open(backend: &Backend) -> Result<Self, Status> {
        Self::try_open_at(backend.address).await
    }

    /// Opens a stream on a server that may be gone.
    pub(crate) async fn try_open_at(address: SocketAddr) -> Result<Self, Status> {
        let client = SubscriptionServiceClient::new(try_connect(address).await?);
        Self::try_open_with(client.max_decoding_message_size(64 << 20)).await
    }

    pub(crate) async fn try_open_with(
        mut client: SubscriptionServiceClient<tonic::transport::Channel>,
    ) -> Result<Self, Status> {
        let (requests, outbound) = mpsc::channel(UNSENT);
        let mut frames = within(client.subscribe(outbound)).await?.into_inner();
        let first = within(frames.message())
            .await?
            .and_then(|frame| frame.response);
        let Some(Response::Started(started)) = first else {
            panic!("Started comes first, not {first:?}")
        };
        Ok(Self {
            requests,
            frames,
            keepalive_interval_ms: started.keepalive_interval_ms,
            last_update: 0,
            unacknowledged: VecDeque::new(),
            oracle: Oracle::default(),
        })
    }

    pub(crate) async fn open(backend: &Backend) -> Self {
        Self::try_open(backend)
            .await
            .expect("the stream is admitted")
    }

    /// A stream that follows `adds`, acknowledged.
    pub(crate) async fn following(backend: &Backend, adds: &[(Topic, u64)]) -> Self {
        let mut reader = Self::open(backend).await;
        reader.update(adds, &[]);
        reader.applied().await;
        reader
    }

    /// What Started said.
    pub(crate) const fn keepalive_interval_ms(&self) -> u32 {
        self.keepalive_interval_ms
    }

    /// Sends any frame.
    pub(crate) fn send(&mut self, request: Option<Request>) {
        // A stream that the server has ended takes nothing more: its end is what the test then sees.
        let _ = self.requests.try_send(SubscribeRequest { request });
    }

    pub(crate) fn ping(&mut self, nonce: u64) {
        self.send(Some(Request::Ping(Ping { nonce })));
    }

    pub(crate) fn pong(&mut self, nonce: u64) {
        self.send(Some(Request::Pong(Pong { nonce })));
    }

    /// Sends the next update.
    pub(crate) fn update(&mut self, adds: &[(Topic, u64)], removes: &[Topic]) {
        self.last_update += 1;
        let update = Update {
            id: self.last_update,
            adds: adds
                .iter()
                .map(|(topic, after)| query(topic, *after))
                .collect(),
            removes: removes.iter().map(wire).collect(),
        };
        self.unacknowledged.push_back(Sent {
            id: update.id,
            adds: adds.to_vec(),
            removes: removes.to_vec(),
        });
        self.send(Some(Request::Update(update)));
    }

    /// Gives the next update this id.
    pub(crate) const fn skip_updates_to(&mut self, id: u64) {
        self.last_update = id - 1;
    }

    /// The next frame; `None` at the end.
    pub(crate) async fn try_next(&mut self) -> Result<Option<Frame>, Status> {
        let Some(frame) = within(self.frames.message()).await? else {
            return Ok(None);
        };
        Ok(Some(
            match frame.response.expect("a frame is of some kind") {
                Response::Started(_) => panic!("Started comes once"),
                Response::Applied(applied) => {
                    Frame::Applied(self.acknowledge(applied.id, &applied.added_targets))
                }
                Response::Messages(messages) => {
                    self.oracle.observe(&messages.envelopes);
                    Frame::Rows(messages.envelopes)
                }
                Response::Ping(ping) => Frame::Ping(ping.nonce),
                Response::Pong(pong) => Frame::Pong(pong.nonce),
            },
        ))
    }

    /// The next frame of a healthy stream.
    pub(crate) async fn next(&mut self) -> Frame {
        self.try_next()
            .await
            .expect("the stream is healthy")
            .expect("the stream is open")
    }

    /// Reads to the next acknowledgement; its targets.
    pub(crate) async fn applied(&mut self) -> Vec<u64> {
        loop {
            if let Frame::Applied(targets) = self.next().await {
                return targets;
            }
        }
    }

    /// Reads until the topic has come to `id` or beyond.
    pub(crate) async fn read_to(&mut self, topic: &Topic, id: u64) {
        while self.position(topic) < id {
            self.next().await;
        }
    }

    /// Reads to the answer of a probe: what was in the stream before it has been judged then.
    pub(crate) async fn probe(&mut self, nonce: u64) {
        self.ping(nonce);
        while self.next().await != Frame::Pong(nonce) {}
    }

    /// Reads to the end of the stream: `Ok` where it is clean.
    pub(crate) async fn end(&mut self) -> Result<(), Status> {
        while self.try_next().await?.is_some() {}
        Ok(())
    }

    /// Ends the request stream.
    pub(crate) fn half_close(&mut self) {
        self.requests.close_channel();
    }

    pub(crate) fn is_registered(&self, topic: &Topic) -> bool {
        self.oracle.is_registered(topic)
    }

    /// Whether an update is not acknowledged yet.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.unacknowledged.is_empty()
    }

    /// Whether the topic is removed by an update that is not acknowledged yet: its rows may still come.
    pub(crate) fn is_leaving(&self, topic: &Topic) -> bool {
        let mut unacknowledged = self.unacknowledged.iter();
        unacknowledged.any(|sent| sent.removes.contains(topic))
    }

    pub(crate) fn position(&self, topic: &Topic) -> u64 {
        self.oracle.position(topic)
    }

    pub(crate) fn ids(&self, topic: &Topic) -> Vec<u64> {
        self.oracle.ids(topic)
    }

    pub(crate) fn rows(&self, topic: &Topic) -> &[ServerEnvelope] {
        self.oracle.rows(topic)
    }

    /// Compares an acknowledgement with the update that is due: its id, and the topics that are new, in their
    /// order.
    fn acknowledge(&mut self, id: u64, targets: &[CatchupTarget]) -> Vec<u64> {
        let sent = self
            .unacknowledged
            .pop_front()
            .expect("an update is unacknowledged");
        assert_eq!(id, sent.id, "acknowledged in order");
        for topic in &sent.removes {
            self.oracle.release(topic);
        }
        let new: Vec<(Topic, u64)> = sent
            .adds
            .into_iter()
            .filter(|(topic, _)| !self.oracle.is_registered(topic))
            .collect();
        let topics: Vec<_> = new.iter().map(|(topic, _)| Some(wire(topic))).collect();
        assert_eq!(
            targets
                .iter()
                .map(|target| target.topic.clone())
                .collect::<Vec<_>>(),
            topics,
            "a target for each new topic, in the order of the adds"
        );
        for (topic, after) in new {
            self.oracle.register(topic, after);
        }
        targets
            .iter()
            .map(|target| target.through_sequence_id)
            .collect()
    }
}
