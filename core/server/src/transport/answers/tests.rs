//! Answers of the whole stack over sockets, to peers that choose how fast they read.

use std::net::{Ipv4Addr, SocketAddr};

use futures::future::{Either, select};
use http::header;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use metrics_exporter_prometheus::PrometheusBuilder;
use prost::Message as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::sleep;
use tokio_util::sync::DropGuard;
use tonic::service::Routes;
use xmtp_protocol::proto::xmtp::backend::v1::GetConfigurationResponse;

use super::*;
use crate::services::ConfigurationServiceServer;
use crate::services::configuration::ConfigurationEndpoint;
use crate::telemetry::Catalogue;
use crate::transport::{Admission, CallLayer, Listener, Services, stack};

const LARGE: &str = "/xmtp.backend.v1.ConfigurationService/GetConfiguration";
const SMALL: &str = "/xmtp.backend.v1.ConfigurationService/Unknown";

/// Time for what has to come.
const PATIENCE: Duration = Duration::from_mins(1);
/// Time for what must not.
const NEVER: Duration = Duration::from_hours(1);

/// A connection's window in which every answer of a test fits.
const WIDE: u32 = 64 << 20;

const LIMITS: AnswerLimits = AnswerLimits {
    max_bytes: 64 << 20,
    max_waiting_bytes: 0,
    max_wait: NEVER,
    max_pause: NEVER,
};

/// Serves one large answer.
struct Server {
    address: SocketAddr,
    /// The answer as it is framed.
    framed: Vec<u8>,
    _stop: DropGuard,
}

impl Server {
    async fn start(bytes: usize, limits: AnswerLimits) -> Self {
        let letters = (b'a'..=b'z').cycle().take(bytes);
        let message = GetConfigurationResponse {
            identifier: letters.map(char::from).collect(),
            ..Default::default()
        };
        let mut framed = Vec::with_capacity(bytes + 100);
        framed.push(0);
        framed.extend(u32::try_from(message.encoded_len()).unwrap().to_be_bytes());
        message.encode(&mut framed).unwrap();
        let service = ConfigurationServiceServer::new(ConfigurationEndpoint(message));
        let services = Services {
            routes: Routes::new(service),
            max_request_bytes: 100,
            answers: limits,
        };
        let calls = CallLayer::new(&Catalogue::new(&[]), "org.example.test", false, None);
        let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into())
            .await
            .unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let stack = stack(services, calls, None, Admission::default());
        tokio::spawn(listener.serve(stack, 100, stop.clone()));
        Self {
            address,
            framed,
            _stop: stop.drop_guard(),
        }
    }

    /// A call over HTTP/2 whose answer has a window of `window` bytes until the last one is read.
    async fn call(&self, path: &str, window: u32) -> Response<Incoming> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(window)
            .initial_connection_window_size(WIDE)
            .handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        let request = Request::post(format!("http://{}{path}", self.address))
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers")
            .body(Full::new(Bytes::from_static(&[0; 5])))
            .unwrap();
        sender.send_request(request).await.unwrap()
    }

    /// The status of a call whose answer is read at once; it is checked.
    async fn code(&self, path: &str) -> Code {
        let (head, body) = self.call(path, WIDE).await.into_parts();
        if let Some(status) = Status::from_header_map(&head.headers) {
            return status.code();
        }
        let body = body.collect().await.unwrap();
        let status = Status::from_header_map(body.trailers().unwrap()).unwrap();
        assert!(body.to_bytes() == self.framed);
        status.code()
    }

    /// Waits until there is room for another answer.
    async fn wait_for_room(&self) {
        within(async {
            loop {
                match self.code(LARGE).await {
                    Code::Ok => return,
                    refused => assert_eq!(refused, Code::Unavailable),
                }
                sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }

    /// A call over HTTP/1.1 of which nothing is read yet.
    async fn web_call(&self, kind: &str, body: &[u8]) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        // What the kernel takes, the peer has taken.
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(self.address).await.unwrap();
        let head = format!(
            "POST {LARGE} HTTP/1.1\r\nhost: test\r\ncontent-type: {kind}\r\naccept: {kind}\r\n\
             connection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body).await.unwrap();
        stream
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("in time")
}

/// The body of an answer of HTTP/1.1 in chunks.
fn dechunked(answer: &[u8]) -> Vec<u8> {
    let end = b"\r\n";
    let cut = |bytes: &[u8], mark: &[u8]| bytes.windows(mark.len()).position(|at| at == mark);
    let mut left = &answer[cut(answer, b"\r\n\r\n").unwrap() + 4..];
    let mut body = Vec::with_capacity(left.len());
    loop {
        let line = cut(left, end).unwrap();
        let size = usize::from_str_radix(str::from_utf8(&left[..line]).unwrap(), 16).unwrap();
        left = &left[line + end.len()..];
        if size == 0 {
            return body;
        }
        body.extend(&left[..size]);
        left = &left[size + end.len()..];
    }
}

#[tokio::test]
async fn an_answer_that_an_http2_peer_does_not_take_is_let_go() {
    let recorder = PrometheusBuilder::new().build_recorder();
    // Everything is on this thread.
    let _recording = metrics::set_default_local_recorder(&recorder);
    for window in [1000, 0] {
        let limits = AnswerLimits {
            max_bytes: 1_500_000,
            max_wait: Duration::ZERO,
            max_pause: Duration::from_millis(300),
            ..LIMITS
        };
        let server = Server::start(1_000_000, limits).await;
        let mut unread = server.call(LARGE, window).await.into_body();
        // The connection lives on, and so does the call as long as nobody reads.
        server.wait_for_room().await;
        if window == 0 {
            continue;
        }
        let mut bytes = 0;
        let error = within(async {
            loop {
                match unread.frame().await.expect("it does not end well") {
                    Ok(frame) => bytes += frame.into_data().expect("no trailers").len(),
                    Err(error) => return error,
                }
            }
        })
        .await;
        assert!(
            !error.is_timeout() && bytes <= CHUNK_BYTES,
            "{bytes}: {error}"
        );
        let told = recorder.handle().render();
        let handled = |line: &&str| line.starts_with("grpc_server_handled_total{");
        let late = |line: &&str| line.contains("grpc_code=\"DeadlineExceeded\"");
        let late: Vec<&str> = told.lines().filter(handled).filter(late).collect();
        assert!(late.len() == 1 && late[0].ends_with(" 1"), "{late:?}");
    }
}

#[tokio::test]
async fn an_answer_that_an_http1_peer_does_not_take_is_let_go_with_its_connection() {
    let limits = AnswerLimits {
        max_bytes: 12_000_000,
        max_wait: Duration::ZERO,
        max_pause: Duration::from_millis(300),
        ..LIMITS
    };
    let server = Server::start(8_000_000, limits).await;
    let mut unread = server.web_call("application/grpc-web+proto", &[0; 5]).await;
    server.wait_for_room().await;
    within(async {
        // The system's own buffers are large. Nobody reads, and yet it ends: what is written fails.
        while unread.write_all(b"\r\n").await.is_ok() {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let mut bytes = Vec::new();
    // Cut off or reset.
    let _ = within(unread.read_to_end(&mut bytes)).await;
    assert!(bytes.len() < server.framed.len());
}

#[tokio::test]
async fn a_slow_and_steady_peer_gets_the_whole_answer() {
    let max_pause = Duration::from_secs(3);
    let limits = AnswerLimits {
        max_pause,
        ..LIMITS
    };
    let http2 = async {
        let server = Server::start(10 * CHUNK_BYTES, limits).await;
        let begin = Instant::now();
        let window = 16 << 10;
        let mut body = server.call(LARGE, window).await.into_body();
        let (mut bytes, mut trailers) = (Vec::<u8>::new(), None);
        while let Some(frame) = body.frame().await {
            match frame.expect("the answer goes on").into_data() {
                Ok(data) => {
                    bytes.extend(&data);
                    sleep(max_pause / 20).await;
                }
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
        assert!(begin.elapsed() > max_pause, "the test is too fast");
        assert!(bytes == server.framed);
        assert_eq!(trailers.unwrap()[Status::GRPC_STATUS], "0");
    };
    let http1 = async {
        let server = Server::start(8_000_000, limits).await;
        let begin = Instant::now();
        let mut stream = server.web_call("application/grpc-web+proto", &[0; 5]).await;
        let mut bytes = Vec::new();
        while within((&mut stream).take(200_000).read_to_end(&mut bytes))
            .await
            .expect("the answer goes on")
            > 0
        {
            sleep(max_pause / 20).await;
        }
        assert!(begin.elapsed() > max_pause, "the test is too fast");
        let body = dechunked(&bytes);
        assert!(body.starts_with(&server.framed));
        let trailers = String::from_utf8_lossy(&body[server.framed.len()..]);
        assert!(trailers.contains("grpc-status:0"), "{trailers}");
    };
    within(async { tokio::join!(http2, http1) }).await;
}

#[tokio::test]
async fn an_answer_that_finds_no_room_is_refused_and_a_small_one_needs_none() {
    let limits = AnswerLimits {
        max_bytes: 2_500_000,
        max_waiting_bytes: 1_500_000,
        max_wait: Duration::from_millis(300),
        ..LIMITS
    };
    let server = Server::start(1_000_000, limits).await;
    let first = within(server.call(LARGE, 0)).await;
    let _second = within(server.call(LARGE, 0)).await;
    let begin = Instant::now();
    assert_eq!(within(server.code(LARGE)).await, Code::Unavailable);
    assert!(begin.elapsed() >= limits.max_wait);
    assert_eq!(within(server.code(SMALL)).await, Code::Unimplemented);
    // Whoever goes gives its room back.
    drop(first);
    server.wait_for_room().await;
}

#[tokio::test]
async fn what_waits_for_room_is_bounded_too_and_gets_what_comes_free() {
    let limits = AnswerLimits {
        max_bytes: 1_500_000,
        max_waiting_bytes: 1_500_000,
        ..LIMITS
    };
    let server = Server::start(1_000_000, limits).await;
    let held = within(server.call(LARGE, 0)).await;
    let (one, other) = (server.code(LARGE), server.code(LARGE));
    tokio::pin!(one, other);
    let (refused, waiting) = match within(select(one, other)).await {
        Either::Left((refused, waiting)) | Either::Right((refused, waiting)) => (refused, waiting),
    };
    assert_eq!(refused, Code::Unavailable);
    drop(held);
    assert_eq!(within(waiting).await, Code::Ok);
}

#[tokio::test]
async fn chunks_join_without_padding_in_the_text_flavour() {
    let server = Server::start(10 * CHUNK_BYTES, LIMITS).await;
    let mut stream = server
        .web_call("application/grpc-web-text+proto", b"AAAAAAA=")
        .await;
    let mut bytes = Vec::new();
    within(stream.read_to_end(&mut bytes)).await.unwrap();
    let text = dechunked(&bytes);
    let padding = text.iter().position(|&byte| byte == b'=');
    let whole = server.framed.len() / 3 * 4;
    assert!(padding.is_none_or(|at| at >= whole), "{padding:?}");
    assert!(text.len() > whole);
}

#[tokio::test(start_paused = true)]
async fn a_chunk_that_the_transport_is_done_with_renews_the_time() {
    let max_pause = Duration::from_secs(30);
    let room = AnswersLayer::new(LIMITS).0;
    let place = room.place(CHUNK_BYTES * 3).await.unwrap();
    let bytes = Bytes::from(vec![0; CHUNK_BYTES * 3]);
    let paused = CancellationToken::new();
    let told = paused.clone();
    let unread = Unread::new(bytes, place, max_pause, move |_| told.cancel());
    let take = || match unread.take_chunk() {
        Taken::Chunk(chunk) => chunk,
        Taken::All | Taken::LetGo => panic!("there is more"),
    };
    // The transport has all but the last, and gets rid of one at a time.
    for chunk in [take(), take()] {
        sleep(max_pause * 2 / 3).await;
        drop(chunk);
    }
    sleep(max_pause * 2 / 3).await;
    assert!(!paused.is_cancelled());
    assert_eq!(
        room.held.available_permits(),
        LIMITS.max_bytes - CHUNK_BYTES * 3
    );
    sleep(max_pause / 2).await;
    assert!(paused.is_cancelled());
    assert_eq!(room.held.available_permits(), LIMITS.max_bytes);
    assert!(matches!(unread.take_chunk(), Taken::LetGo));
}
