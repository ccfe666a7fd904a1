//! The client of one stream.

use futures::channel::mpsc;
use tonic::transport::Channel;
use tonic::{Status, Streaming};
use xmtp_protocol::client::SubscriptionServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::subscribe_request::{Request, Update};
use xmtp_protocol::proto::xmtp::backend::v1::subscribe_response::Response;
use xmtp_protocol::proto::xmtp::backend::v1::{
    Cursor, Pong, ServerEnvelope, SubscribeRequest, SubscribeResponse, Topic as WireTopic,
    TopicQuery,
};
use xmtp_protocol::{Topic, TopicKind};

/// A message with 100,000 topics has about 3 MB.
const ANY_MESSAGE: usize = 64 << 20;

/// The topic of a group, by number.
pub(super) fn group(number: u32) -> Topic {
    Topic::new(TopicKind::GroupMessage, &group_id(number)).expect("16 bytes")
}

/// The id of a group.
pub(super) fn group_id(number: u32) -> [u8; 16] {
    u128::from(number).to_be_bytes()
}

/// An open stream.
pub(super) struct Stream {
    requests: mpsc::UnboundedSender<SubscribeRequest>,
    frames: Streaming<SubscribeResponse>,
}

impl Stream {
    /// Opens a stream that follows `topics` from their start, acknowledged.
    pub(super) async fn open(channel: &Channel, topics: impl IntoIterator<Item = Topic>) -> Self {
        let opened = Self::try_open(channel, topics).await;
        opened.expect("the stream is admitted and lives")
    }

    /// The same, of a server that may refuse.
    #[expect(
        clippy::disallowed_methods,
        reason = "what a benchmark sends is little"
    )]
    pub(super) async fn try_open(
        channel: &Channel,
        topics: impl IntoIterator<Item = Topic>,
    ) -> Result<Self, Status> {
        let (requests, outbound) = mpsc::unbounded();
        let mut client = SubscriptionServiceClient::new(channel.clone())
            .max_decoding_message_size(ANY_MESSAGE)
            .max_encoding_message_size(ANY_MESSAGE);
        let adds = topics.into_iter().map(|topic| TopicQuery {
            topic: Some(WireTopic {
                topic: topic.as_bytes().to_vec().into(),
            }),
            cursor: Some(Cursor { sequence_id: 0 }),
        });
        let update = Update {
            id: 1,
            adds: adds.collect(),
            removes: Vec::new(),
        };
        let frames = client.subscribe(outbound).await?.into_inner();
        let mut stream = Self { requests, frames };
        stream.send(Request::Update(update));
        loop {
            let frame = stream.frames.message().await?;
            let frame = frame.ok_or_else(|| Status::unavailable("the stream has ended"))?;
            if let Some(Response::Applied(_)) = frame.response {
                return Ok(stream);
            }
        }
    }

    fn send(&self, request: Request) {
        let request = Some(request);
        // A stream that has ended says so when it is read.
        let _ = self.requests.unbounded_send(SubscribeRequest { request });
    }

    /// The next rows.
    pub(super) async fn rows(&mut self) -> Vec<ServerEnvelope> {
        loop {
            let frame = self.frames.message().await.expect("the stream lives");
            match frame.expect("the server ends no stream").response {
                Some(Response::Messages(messages)) => return messages.envelopes,
                Some(Response::Ping(ping)) => {
                    self.send(Request::Pong(Pong { nonce: ping.nonce }));
                }
                _ => {}
            }
        }
    }

    /// Reads until `count` rows have come.
    pub(super) async fn take(&mut self, mut count: usize) {
        while count > 0 {
            count = count.saturating_sub(self.rows().await.len());
        }
    }
}

/// The sequence id of a row.
pub(super) fn sequence_id(row: &ServerEnvelope) -> u64 {
    row.meta
        .as_ref()
        .and_then(|meta| meta.cursor)
        .map_or(0, |cursor| cursor.sequence_id)
}
