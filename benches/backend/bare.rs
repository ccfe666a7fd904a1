//! What the transport alone can do: a tonic server whose streams get the same frames from one broadcast.
//!
//! It runs in a process of its own, like the backend: this program again, with an argument.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{Stream, StreamExt};
use http::uri::PathAndQuery;
use tokio::net::TcpListener;
use tokio::process::Child;
use tokio::sync::broadcast;
use tokio_stream::wrappers::{BroadcastStream, TcpListenerStream};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::{Grpc, NamedService, StreamingService, UnaryService};
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::child;

/// Makes this program the bare server.
pub(crate) const ARGUMENT: &str = "bare";

/// Frames that one order may ask for.
const MOST_FRAMES: usize = 4096;

/// Serves until it is killed; says where.
pub(crate) async fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    println!("{}", listener.local_addr().expect("a bound port"));
    tonic::transport::Server::builder()
        .max_concurrent_streams(u32::MAX)
        .tcp_nodelay(true)
        .add_service(Bare {
            frames: broadcast::Sender::new(MOST_FRAMES),
        })
        .serve_with_incoming(TcpListenerStream::new(listener))
        .await
        .expect("the bare server serves");
}

#[derive(Clone)]
struct Bare {
    frames: broadcast::Sender<Bytes>,
}

impl NamedService for Bare {
    const NAME: &'static str = "bench.Bare";
}

/// `Follow(stream)` answers with everything that is sent from then on, and keeps what it is asked.
struct Follow(Bare);

impl StreamingService<()> for Follow {
    type Response = Bytes;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;
    type Future = BoxFuture<'static, Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<()>>) -> Self::Future {
        let frames = BroadcastStream::new(self.0.frames.subscribe());
        let asked = request.into_inner();
        let frames = frames.map(move |frame| {
            let _ = &asked;
            frame.map_err(|_| Status::internal("lagged"))
        });
        Box::pin(async { Ok(Response::new(Box::pin(frames) as Self::ResponseStream)) })
    }
}

/// `Send(frame)` sends it to every stream.
struct SendFrame(Bare);

impl UnaryService<Bytes> for SendFrame {
    type Response = ();
    type Future = BoxFuture<'static, Result<Response<()>, Status>>;

    fn call(&mut self, frame: Request<Bytes>) -> Self::Future {
        // Nobody listening is as good as everybody served.
        let _ = self.0.frames.send(frame.into_inner());
        Box::pin(async { Ok(Response::new(())) })
    }
}

impl Service<http::Request<Body>> for Bare {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let bare = self.clone();
        Box::pin(async move {
            Ok(if request.uri().path().ends_with("/Follow") {
                let codec = ProstCodec::<Bytes, ()>::default();
                Grpc::new(codec).streaming(Follow(bare), request).await
            } else {
                let codec = ProstCodec::<(), Bytes>::default();
                Grpc::new(codec).unary(SendFrame(bare), request).await
            })
        })
    }
}

/// A running bare server, killed with the value.
pub(crate) struct BareServer {
    pub(crate) address: SocketAddr,
    pub(crate) child: Child,
}

impl BareServer {
    pub(crate) async fn start() -> Self {
        let (child, line) = child::start(&[ARGUMENT]).await;
        let address = line.parse().expect("an address");
        Self { address, child }
    }
}

/// Opens a stream.
pub(crate) async fn follow(channel: &Channel) -> Streaming<Bytes> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.expect("the connection is open");
    let path = PathAndQuery::from_static("/bench.Bare/Follow");
    let answer = client
        .streaming(
            Request::new(futures::stream::pending()),
            path,
            ProstCodec::<(), Bytes>::default(),
        )
        .await;
    answer.expect("the stream is opened").into_inner()
}

/// Has a frame sent to every stream.
pub(crate) async fn send(channel: &Channel, frame: Bytes) {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.expect("the connection is open");
    let path = PathAndQuery::from_static("/bench.Bare/Send");
    let answer: Result<Response<()>, Status> = client
        .unary(
            Request::new(frame),
            path,
            ProstCodec::<Bytes, ()>::default(),
        )
        .await;
    answer.expect("the frame is taken");
}
