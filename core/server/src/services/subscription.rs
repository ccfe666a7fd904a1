//! `SubscriptionService`.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use http::{Request, Response};
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower::Service;
use uuid::Uuid;
use xmtp_protocol::proto::xmtp::backend::v1::{self, TopicQuery, subscribe_request};
use xmtp_streams::{ClientFrame, End, Frame, Interest, Limits, OutputStream, Streams, Update};

use crate::frames::{self, Parts};
use crate::request::{Encoded, Undecodable};
use crate::status;
use crate::telemetry::route;
use crate::transport::{RequestId, streaming};

/// Serves streams.
#[derive(Clone)]
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

impl NamedService for SubscriptionEndpoint {
    const NAME: &'static str = "xmtp.backend.v1.SubscriptionService";
}

impl Service<Request<Body>> for SubscriptionEndpoint {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let endpoint = self.clone();
        match request.uri().path() {
            route::SUBSCRIBE => {
                let answer = endpoint
                    .subscribe(request)
                    .unwrap_or_else(Status::into_http);
                Box::pin(std::future::ready(Ok(answer)))
            }
            route::SUBSCRIBE_STATIC => Box::pin(async move {
                let answer = endpoint.subscribe_static(request).await;
                Ok(answer.unwrap_or_else(Status::into_http))
            }),
            _ => Box::pin(std::future::ready(
                Ok(Status::unimplemented("").into_http()),
            )),
        }
    }
}

impl SubscriptionEndpoint {
    fn subscribe(&self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let streams = self.streams.clone();
        let max_bytes = streams.limits().max_request_bytes;
        let request_id = request_id(&request);
        let inbound = streaming::messages::<v1::SubscribeRequest>(request, max_bytes);
        let inbound = inbound.map(move |frame| match frame {
            Ok(frame) => client_frame(frame, streams.limits()),
            Err(status) => Err(broken(&status)),
        });
        let output = self
            .streams
            .subscribe(request_id, inbound)
            .map_err(status::stream_end)?;
        Ok(self.answer(output, frames::subscribe_response))
    }

    async fn subscribe_static(&self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let limits = self.streams.limits();
        let request_id = request_id(&request);
        let mut inbound =
            streaming::messages::<v1::SubscribeStaticRequest>(request, limits.max_request_bytes);
        let request = inbound
            .try_next()
            .await?
            .ok_or_else(status::request_missing)?;
        // To the end: the connection is watched for its peer's leaving only then.
        inbound.trailers().await?;
        if request.count(&[TOPICS]).map_err(status::undecodable)? > limits.max_static_topics {
            return Err(status::stream_end(End::STATIC_REFUSED));
        }
        let request = request.decode().map_err(status::undecodable)?;
        let topics: Vec<Interest> = request.topics.into_iter().map(interest).collect();
        let output = self
            .streams
            .subscribe_static(request_id, &topics)
            .map_err(status::stream_end)?;
        Ok(self.answer(output, frames::subscribe_static_response))
    }

    fn answer(&self, output: OutputStream, encode: fn(&Frame, u32) -> Parts) -> Response<Body> {
        let interval = self.keepalive_interval_ms.get();
        streaming::response(output.map(move |frame| match frame {
            Ok(frame) => Ok(encode(&frame, interval)),
            Err(end) => Err(status::stream_end(end)),
        }))
    }
}

/// Of the layer around every service; nil where a service is called without it.
fn request_id(request: &Request<Body>) -> Uuid {
    let id = request.extensions().get();
    id.map_or_else(Uuid::nil, |RequestId(id)| *id)
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
fn client_frame(frame: Encoded<v1::SubscribeRequest>, limits: &Limits) -> Result<ClientFrame, End> {
    let undecodable = |_: Undecodable| End::Undecodable;
    if frame.count(&[UPDATE, ADDS]).map_err(undecodable)? > limits.max_update_adds
        || frame.count(&[UPDATE, REMOVES]).map_err(undecodable)? > limits.max_update_removes
    {
        return Ok(ClientFrame::Update(Update::oversized(frame.len())));
    }
    // Decoded topics share the bytes of the frame, unknown fields and all.
    let wire_len = frame.len();
    let request = frame.decode().map_err(undecodable)?;
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
            encoded_len: wire_len,
        }),
    })
}

fn interest(query: TopicQuery) -> Interest {
    Interest {
        topic: query.topic.map(|topic| topic.topic),
        after: query.cursor.map_or(0, |cursor| cursor.sequence_id),
    }
}
