//! Connections of the one plaintext port: gRPC over HTTP/2, gRPC-Web over HTTP/1.1 and HTTP/2.
//!
//! The library's own server is not used: it answers `grpc-timeout` outside every layer of ours, leaves
//! `TCP_NODELAY` off on listeners that it is given, and cannot end connections at a deadline.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use http::Version;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::answers::OwnConnection;
use super::opening::Opening;
use super::{Incoming, Stack};
use crate::subsystem::Connection;

/// Time for a peer to say which protocol it speaks, and to send the head of an HTTP/1.1 request.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Idle time before an HTTP/2 PING, and the time for its answer: a peer that vanished gives its socket
/// back, and a network that stalls for less than this costs nobody a stream.
const HTTP2_KEEPALIVE: Duration = Duration::from_mins(1);

/// Time for connections to close by themselves once every request has been answered.
const CLOSE_GRACE: Duration = Duration::from_millis(100);

/// Pause after a failed accept: usually the process is out of file descriptors, and says so in the log.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// A bound port.
pub(crate) struct Listener {
    socket: TcpListener,
    connections: TaskTracker,
    /// Connections finish what they have and take nothing more.
    close: CancellationToken,
    /// Connections are dropped.
    abort: CancellationToken,
}

impl Listener {
    pub(crate) async fn bind(address: SocketAddr) -> io::Result<Self> {
        Ok(Self {
            socket: TcpListener::bind(address).await?,
            connections: TaskTracker::new(),
            close: CancellationToken::new(),
            abort: CancellationToken::new(),
        })
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Accepts connections until `stop`, then closes them all in bounded time.
    pub(crate) async fn serve(self, stack: Stack, max_http2_streams: u32, stop: CancellationToken) {
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_READ_TIMEOUT);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(max_http2_streams)
            .keep_alive_interval(HTTP2_KEEPALIVE)
            .keep_alive_timeout(HTTP2_KEEPALIVE);
        while let Some(accepted) = stop.run_until_cancelled(self.socket.accept()).await {
            match accepted {
                Ok((stream, _)) => self.connect(stream, &builder, &stack),
                // The fault of one connection, which is gone.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::ConnectionAborted
                            | ErrorKind::ConnectionReset
                            | ErrorKind::ConnectionRefused
                    ) => {}
                Err(error) => {
                    tracing::warn!(%error, "connection cannot be accepted");
                    let pause = tokio::time::sleep(ACCEPT_PAUSE);
                    stop.run_until_cancelled(pause).await;
                }
            }
        }
        drop(self.socket);
        self.close.cancel();
        self.connections.close();
        if tokio::time::timeout(CLOSE_GRACE, self.connections.wait())
            .await
            .is_err()
        {
            self.abort.cancel();
            self.connections.wait().await;
        }
    }

    fn connect(&self, stream: TcpStream, builder: &Builder<TokioExecutor>, stack: &Stack) {
        // Without it a small frame can wait for the acknowledgement of the one before.
        if stream.set_nodelay(true).is_err() {
            return;
        }
        let builder = builder.clone();
        let (close, abort) = (self.close.clone(), self.abort.child_token());
        let own = OwnConnection(abort.clone());
        let connection = Connection::default();
        let stack = stack.clone().map_request(move |mut request: Incoming| {
            request.extensions_mut().insert(connection.clone());
            if request.version() < Version::HTTP_2 {
                request.extensions_mut().insert(own.clone());
            }
            request
        });
        let service = TowerToHyperService::new(stack);
        self.connections.spawn(async move {
            let mut connection =
                pin!(builder.serve_connection(TokioIo::new(Opening::new(stream)), service));
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                () = abort.cancelled() => return,
                () = close.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    tokio::select! {
                        ended = connection => ended,
                        () = abort.cancelled() => return,
                    }
                }
            };
            if ended.is_err() {
                // The peer's own doing, and all that there is to say without its data.
                tracing::debug!("connection ended with an error");
            }
        });
    }
}
