//! `SubscriptionService`.

use std::num::NonZeroU32;
use std::pin::Pin;

use futures::{Stream, StreamExt};
use prost::Message;
use tonic::{Request, Response, Status, Streaming};
use xmtp_protocol::proto::xmtp::backend::v1::{
    CatchupTarget, Ping, Pong, Topic as WireTopic, TopicQuery, subscribe_request,
    subscribe_response, subscribe_static_response,
};
use xmtp_streams::{ClientFrame, End, Frame, Interest, Limits, Streams, Target, Update};

use super::xmtp::backend::v1::subscription_service_server::SubscriptionService;
use crate::request::{SubscribeRequest, SubscribeStaticRequest, Undecodable};
use crate::status;
use crate::transport::StreamResponse;
use crate::wire::{
    Messages, SubscribeFrame, SubscribeResponse, SubscribeStaticFrame, SubscribeStaticResponse,
};

/// Serves streams.
pub(crate) struct SubscriptionEndpoint {
    pub(crate) streams: Streams,
    pub(crate) keepalive_interval_ms: NonZeroU32,
}

/// Number of the field `SubscribeStaticRequest.topics`.
const TOPICS: u32 = 1;
/// Numbers of the fields `SubscribeRequest.update` and, in it, `adds` and `removes`.
const UPDATE: u32 = 1;
const ADDS: u32 = 2;
const REMOVES: u32 = 3;

type Frames<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl SubscriptionService for SubscriptionEndpoint {
    type SubscribeStream = Frames<SubscribeResponse>;
    type SubscribeStaticStream = Frames<SubscribeStaticResponse>;

    async fn subscribe(
        &self,
        request: Request<Streaming<SubscribeRequest>>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let streams = self.streams.clone();
        let inbound = request.into_inner().map(move |frame| match frame {
            Ok(frame) => client_frame(frame, streams.limits()),
            Err(status) => Err(broken(&status)),
        });
        let output = self
            .streams
            .subscribe(inbound)
            .map_err(status::stream_end)?;
        let interval = self.keepalive_interval_ms;
        let frames = output.map(move |frame| match frame {
            Ok(frame) => Ok(SubscribeResponse {
                response: Some(subscribe_frame(frame, interval)),
            }),
            Err(end) => Err(status::stream_end(end)),
        });
        Ok(stream_response(Box::pin(frames)))
    }

    async fn subscribe_static(
        &self,
        request: Request<SubscribeStaticRequest>,
    ) -> Result<Response<Self::SubscribeStaticStream>, Status> {
        let request = request.into_inner();
        if request.count(&[TOPICS]).map_err(status::undecodable)?
            > self.streams.limits().max_static_topics
        {
            return Err(status::stream_end(End::STATIC_REFUSED));
        }
        let request = request.decode().map_err(status::undecodable)?;
        let topics: Vec<Interest> = request.topics.into_iter().map(interest).collect();
        let output = self
            .streams
            .subscribe_static(&topics)
            .map_err(status::stream_end)?;
        let interval = self.keepalive_interval_ms;
        let frames = output.map(move |frame| match frame {
            Ok(frame) => Ok(SubscribeStaticResponse {
                response: Some(static_frame(frame, interval)),
            }),
            Err(end) => Err(status::stream_end(end)),
        });
        Ok(stream_response(Box::pin(frames)))
    }
}

/// A response that no drain waits for: its stream is told to end instead.
fn stream_response<T>(frames: Frames<T>) -> Response<Frames<T>> {
    let mut response = Response::new(frames);
    response.extensions_mut().insert(StreamResponse);
    response
}

/// How the transport's own end of the inbound side ends the stream.
fn broken(transport: &Status) -> End {
    match transport.code() {
        tonic::Code::OutOfRange => End::TooLong("request frame exceeds byte limit"),
        tonic::Code::Internal => End::Undecodable,
        _ => End::Client,
    }
}

/// A frame, unless its lists are too long to be decoded.
fn client_frame(frame: SubscribeRequest, limits: &Limits) -> Result<ClientFrame, End> {
    let undecodable = |_: Undecodable| End::Undecodable;
    if frame.count(&[UPDATE, ADDS]).map_err(undecodable)? > limits.max_update_adds
        || frame.count(&[UPDATE, REMOVES]).map_err(undecodable)? > limits.max_update_removes
    {
        return Ok(ClientFrame::OversizedUpdate);
    }
    let request = frame.decode().map_err(undecodable)?;
    let encoded_len = request.encoded_len();
    Ok(match request.request {
        None => ClientFrame::Unset,
        Some(subscribe_request::Request::Ping(ping)) => ClientFrame::Ping(ping.nonce),
        Some(subscribe_request::Request::Pong(pong)) => ClientFrame::Pong(pong.nonce),
        Some(subscribe_request::Request::Update(update)) => ClientFrame::Update(Update {
            id: update.id,
            adds: update.adds.into_iter().map(interest).collect(),
            removes: update
                .removes
                .into_iter()
                .map(|topic| Some(topic.topic))
                .collect(),
            encoded_len,
        }),
    })
}

fn interest(query: TopicQuery) -> Interest {
    Interest {
        topic: query.topic.map(|topic| topic.topic),
        after: query.cursor.map_or(0, |cursor| cursor.sequence_id),
    }
}

fn subscribe_frame(frame: Frame, interval: NonZeroU32) -> SubscribeFrame {
    match frame {
        Frame::Started => SubscribeFrame::Started(subscribe_response::Started {
            keepalive_interval_ms: interval.get(),
        }),
        Frame::Applied { id, targets } => SubscribeFrame::Applied(subscribe_response::Applied {
            id,
            added_targets: catchup_targets(&targets),
        }),
        Frame::Messages(envelopes) => SubscribeFrame::Messages(Messages { envelopes }),
        Frame::Ping(nonce) => SubscribeFrame::Ping(Ping { nonce }),
        Frame::Pong(nonce) => SubscribeFrame::Pong(Pong { nonce }),
        Frame::StartedStatic(_) | Frame::Keepalive => unreachable!("frames of a static stream"),
    }
}

fn static_frame(frame: Frame, interval: NonZeroU32) -> SubscribeStaticFrame {
    match frame {
        Frame::StartedStatic(targets) => {
            SubscribeStaticFrame::Started(subscribe_static_response::Started {
                keepalive_interval_ms: interval.get(),
                targets: catchup_targets(&targets),
            })
        }
        Frame::Messages(envelopes) => SubscribeStaticFrame::Messages(Messages { envelopes }),
        Frame::Keepalive => {
            SubscribeStaticFrame::Keepalive(subscribe_static_response::Keepalive {})
        }
        Frame::Started | Frame::Applied { .. } | Frame::Ping(_) | Frame::Pong(_) => {
            unreachable!("frames of a bidirectional stream")
        }
    }
}

fn catchup_targets(targets: &[Target]) -> Vec<CatchupTarget> {
    targets
        .iter()
        .map(|target| CatchupTarget {
            topic: Some(WireTopic {
                topic: bytes::Bytes::copy_from_slice(target.topic.as_bytes()),
            }),
            through_sequence_id: target.through.into(),
        })
        .collect()
}
