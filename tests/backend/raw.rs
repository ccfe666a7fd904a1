//! Calls below the generated clients: any bytes in, and everything that comes back.

use std::net::SocketAddr;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tonic::{Code, Status};

use crate::harness::within;

/// What answers a call.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) http: StatusCode,
    pub(crate) headers: HeaderMap,
    /// Without their prefixes.
    pub(crate) messages: Vec<Bytes>,
    /// Those of HTTP/2, or the trailer frame of gRPC-Web.
    pub(crate) trailers: HeaderMap,
}

impl Answer {
    /// The gRPC status, from wherever it stands.
    pub(crate) fn status(&self) -> Status {
        Status::from_header_map(&self.trailers)
            .or_else(|| Status::from_header_map(&self.headers))
            .expect("the call has a status")
    }

    pub(crate) fn code(&self) -> Code {
        self.status().code()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let value = self.headers.get(name)?;
        Some(value.to_str().expect("the header is text"))
    }

    /// Reads a response to its end.
    pub(crate) async fn collect(response: Response<Incoming>, web: bool) -> Self {
        let (head, body) = response.into_parts();
        let body = body.collect().await.expect("the body arrives");
        let mut trailers = body.trailers().cloned().unwrap_or_default();
        let mut messages = Vec::new();
        let mut bytes = body.to_bytes();
        let framed = head
            .headers
            .get("content-type")
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        while framed && bytes.has_remaining() {
            let (flags, content) = take_frame(&mut bytes);
            match flags {
                0 => messages.push(content),
                0x80 if web => trailers = parse_trailers(&content),
                other => panic!("unknown frame flags {other}"),
            }
        }
        Self {
            http: head.status,
            headers: head.headers,
            messages,
            trailers,
        }
    }
}

/// A message with its prefix: not compressed.
pub(crate) fn frame(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(5 + message.len());
    framed.put_u8(0);
    framed.put_u32(message.len().try_into().expect("a test message is short"));
    framed.put_slice(message);
    framed.freeze()
}

/// Takes one frame off the front: its flags and its content.
fn take_frame(bytes: &mut Bytes) -> (u8, Bytes) {
    let (flags, length) = (bytes.get_u8(), bytes.get_u32());
    (flags, bytes.split_to(length as usize))
}

fn parse_trailers(content: &[u8]) -> HeaderMap {
    let text = str::from_utf8(content).expect("trailers are text");
    text.split("\r\n")
        .filter(|line| !line.is_empty())
        .map(|line| {
            let (name, value) = line.split_once(':').expect("a trailer has a name");
            // `HeaderName` would fold it: the protocol asks for lower case.
            assert_eq!(name, name.to_lowercase());
            (
                HeaderName::try_from(name).expect("the name is legal"),
                HeaderValue::from_str(value.trim()).expect("the value is legal"),
            )
        })
        .collect()
}

/// A request for a path with a body and more headers.
fn request(uri: String, kind: &str, body: Bytes, headers: &[(&str, &str)]) -> Request<Full<Bytes>> {
    let request = Request::post(uri).header("content-type", kind);
    let request = headers.iter().fold(request, |request, (name, value)| {
        request.header(*name, *value)
    });
    request.body(Full::new(body)).expect("the request is legal")
}

async fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).await.expect("connected");
    // Small frames would wait for each other.
    stream.set_nodelay(true).expect("set");
    stream
}

/// One native call over HTTP/2 whose request body is `body`.
pub(crate) async fn native(
    address: SocketAddr,
    path: &str,
    body: Bytes,
    headers: &[(&str, &str)],
) -> Answer {
    let headers = [&[("te", "trailers")], headers].concat();
    let request = request(path.to_owned(), "application/grpc", body, &headers);
    let response = http2(address, request).await;
    within(Answer::collect(response, false)).await
}

/// Sends one request over HTTP/2 and answers as soon as the response's head is there.
async fn http2(address: SocketAddr, request: Request<Full<Bytes>>) -> Response<Incoming> {
    let answer = refusable(Version::HTTP_2, address, request).await;
    answer.expect("answered")
}

/// Sends one request over HTTP/1.1 and answers as soon as the response's head is there.
pub(crate) async fn http1(
    address: SocketAddr,
    request: Request<Full<Bytes>>,
) -> Response<Incoming> {
    let answer = refusable(Version::HTTP_11, address, request).await;
    answer.expect("answered")
}

/// Sends one request and answers as soon as the response's head is there; `None` where the connection or the stream
/// ends instead.
pub(crate) async fn refusable(
    version: Version,
    address: SocketAddr,
    mut request: Request<Full<Bytes>>,
) -> Option<Response<Incoming>> {
    let stream = TokioIo::new(connect(address).await);
    // Either connection ends with the response's body.
    let response = if version == Version::HTTP_2 {
        let (mut sender, connection) = conn::http2::handshake(TokioExecutor::new(), stream)
            .await
            .expect("HTTP/2 is spoken");
        tokio::spawn(connection);
        let uri = format!("http://{address}{}", request.uri());
        *request.uri_mut() = uri.parse().expect("an address and a path are a URI");
        within(sender.send_request(request)).await
    } else {
        let (mut sender, connection) = conn::http1::handshake(stream)
            .await
            .expect("HTTP/1.1 is spoken");
        tokio::spawn(connection);
        let host = HeaderValue::try_from(address.to_string()).expect("an address is a host");
        request.headers_mut().insert("host", host);
        within(sender.send_request(request)).await
    };
    response.ok()
}

/// A browser's gRPC-Web call over HTTP/1.1; its response body is still to be read.
pub(crate) async fn open_web(
    address: SocketAddr,
    path: &str,
    body: Bytes,
    headers: &[(&str, &str)],
) -> Response<Incoming> {
    open_web_over(Version::HTTP_11, address, path, body, headers).await
}

/// The same over HTTP/1.1 or HTTP/2.
pub(crate) async fn open_web_over(
    version: Version,
    address: SocketAddr,
    path: &str,
    body: Bytes,
    headers: &[(&str, &str)],
) -> Response<Incoming> {
    let headers = [
        &[("origin", "https://app.example.org"), ("x-grpc-web", "1")],
        headers,
    ]
    .concat();
    let kind = "application/grpc-web+proto";
    let request = request(path.to_owned(), kind, body, &headers);
    match version {
        Version::HTTP_2 => http2(address, request).await,
        _ => http1(address, request).await,
    }
}

/// The messages of a response that is still coming.
pub(crate) struct Messages {
    body: Incoming,
    received: BytesMut,
}

impl Messages {
    pub(crate) fn of(response: Response<Incoming>) -> Self {
        Self {
            body: response.into_body(),
            received: BytesMut::new(),
        }
    }

    /// The next message, as soon as its last byte is there.
    pub(crate) async fn next(&mut self) -> Bytes {
        loop {
            if let Some(mut prefix) = self.received.get(..5) {
                assert_eq!(prefix.get_u8(), 0, "a message, not a trailer");
                let length = 5 + prefix.get_u32() as usize;
                if self.received.len() >= length {
                    return self.received.split_to(length).freeze().slice(5..);
                }
            }
            let frame = within(self.body.frame())
                .await
                .expect("open")
                .expect("healthy");
            self.received.put(frame.into_data().expect("data"));
        }
    }
}

/// A browser's gRPC-Web call over HTTP/1.1.
pub(crate) async fn web(
    address: SocketAddr,
    path: &str,
    body: Bytes,
    headers: &[(&str, &str)],
) -> Answer {
    let response = open_web(address, path, body, headers).await;
    within(Answer::collect(response, true)).await
}

/// A browser's question whether it may send `headers`.
pub(crate) async fn preflight(address: SocketAddr, path: &str, headers: &str) -> Answer {
    preflight_over(Version::HTTP_11, address, path, headers).await
}

/// The same over HTTP/1.1 or HTTP/2.
pub(crate) async fn preflight_over(
    version: Version,
    address: SocketAddr,
    path: &str,
    headers: &str,
) -> Answer {
    let request = Request::options(path)
        .header("origin", "https://app.example.org")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", headers)
        .body(Full::default())
        .expect("the request is legal");
    let response = match version {
        Version::HTTP_2 => http2(address, request).await,
        _ => http1(address, request).await,
    };
    Answer::collect(response, true).await
}
