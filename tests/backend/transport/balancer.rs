//! Behind a real balancer that ends TLS, with the configuration that `docs/operating.md` gives operators (ARC-113).

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::{env, fs, io};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tonic::Code;
use xmtp_protocol::TopicKind;
use xmtp_protocol::proto::xmtp::backend::v1::subscribe_static_response::Response as Frame;
use xmtp_protocol::proto::xmtp::backend::v1::{
    ClientEnvelope, PublishRequest, PublishResponse, SubscribeStaticRequest,
    SubscribeStaticResponse,
};
use xmtp_test_support::eventually;
use xmtp_test_support::payloads::{group_message, topic};

use crate::harness::{Backend, meta_id, publish_error, query, sequence_id, within};
use crate::publish;
use crate::raw::{Answer, Messages, frame};

const STATIC_PATH: &str = "/xmtp.backend.v1.SubscriptionService/SubscribeStatic";
const GUIDE: &str = include_str!("../../../docs/operating.md");

/// A running nginx, killed with the value.
struct Balancer {
    address: SocketAddr,
    /// Trusts its certificate and no other.
    tls: ClientConfig,
    _folder: TempDir,
    _process: Child,
}

impl Balancer {
    async fn start(nginx: &str, backend: SocketAddr) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let path = folder.path().to_str().expect("a temporary path is Unicode");
        let identity = rcgen::generate_simple_self_signed(["localhost".to_owned()]);
        let identity = identity.expect("a certificate");
        fs::write(format!("{path}/certificate.pem"), identity.cert.pem()).expect("written");
        fs::write(
            format!("{path}/key.pem"),
            identity.signing_key.serialize_pem(),
        )
        .expect("written");
        let mut roots = RootCertStore::empty();
        roots
            .add(identity.cert.der().clone())
            .expect("a certificate");
        let tls = ClientConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .expect("the provider has them")
            .with_root_certificates(roots)
            .with_no_client_auth();

        let free = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = free.local_addr().expect("a bound port has an address");
        drop(free);
        let (_, guide) = GUIDE.split_once("```nginx\n").expect("an example");
        let (example, _) = guide.split_once("```").expect("it ends");
        let mut server = example.to_owned();
        for (of_the_guide, here) in [
            ("listen 443 ssl", format!("listen {address} ssl")),
            (
                "server_name xmtp.example.org",
                "server_name localhost".to_owned(),
            ),
            ("/etc/ssl/xmtp.pem", format!("{path}/certificate.pem")),
            ("/etc/ssl/xmtp.key", format!("{path}/key.pem")),
            ("127.0.0.1:5050", backend.to_string()),
        ] {
            assert!(server.contains(of_the_guide), "{of_the_guide}");
            server = server.replace(of_the_guide, &here);
        }
        let folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let folders = folders.map(|name| format!("{name}_temp_path {path}/{name};"));
        let configuration = format!(
            "daemon off;\nmaster_process off;\npid {path}/pid;\nerror_log stderr;\nevents {{}}\n\
             http {{\naccess_log off;\n{}\n{server}\n}}\n",
            folders.join("\n")
        );
        let file = format!("{path}/nginx.conf");
        fs::write(&file, configuration).expect("the file can be written");
        let mut process = Command::new(nginx)
            .args(["-p", path, "-e", "stderr", "-c", &file])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("nginx starts");
        eventually("nginx listens", async || {
            let ended = process.try_wait().expect("it can be waited for");
            assert!(ended.is_none(), "nginx ended with {ended:?}");
            TcpStream::connect(address).await.ok()
        })
        .await;
        Self {
            address,
            tls,
            _folder: folder,
            _process: process,
        }
    }

    /// Sends one request over TLS, on a connection of its own; answers as soon as the response's head is there.
    async fn send(
        &self,
        version: Version,
        mut request: Request<Full<Bytes>>,
    ) -> Response<Incoming> {
        let protocol = match version {
            Version::HTTP_2 => "h2",
            _ => "http/1.1",
        };
        let mut tls = self.tls.clone();
        tls.alpn_protocols = vec![protocol.into()];
        let connection = TcpStream::connect(self.address)
            .await
            .expect("nginx listens");
        let name = ServerName::try_from("localhost").expect("a name");
        let connecting = TlsConnector::from(Arc::new(tls)).connect(name, connection);
        let io = TokioIo::new(within(connecting).await.expect("TLS is spoken"));
        if version == Version::HTTP_2 {
            let (mut sender, connection) = conn::http2::handshake(TokioExecutor::new(), io)
                .await
                .expect("HTTP/2 is spoken");
            tokio::spawn(connection);
            return within(sender.send_request(request))
                .await
                .expect("answered");
        }
        let host = HeaderValue::from_static("localhost");
        request.headers_mut().insert("host", host);
        let (mut sender, connection) = conn::http1::handshake(io)
            .await
            .expect("HTTP/1.1 is spoken");
        tokio::spawn(connection);
        within(sender.send_request(request))
            .await
            .expect("answered")
    }

    async fn call(
        &self,
        version: Version,
        kind: &str,
        path: &str,
        message: &[u8],
    ) -> Response<Incoming> {
        let request = Request::post(uri(version, path))
            .header("content-type", kind)
            .header("te", "trailers")
            .header("origin", "https://app.example.org")
            .body(Full::new(frame(message)))
            .expect("legal");
        self.send(version, request).await
    }
}

/// What a client asks for: with HTTP/1.1 a path alone.
fn uri(version: Version, path: &str) -> String {
    match version {
        Version::HTTP_2 => format!("https://localhost{path}"),
        _ => path.to_owned(),
    }
}

#[tokio::test]
async fn arc_113_a_balancer_that_ends_tls_passes_everything_through() {
    let Some(nginx) = env::var("XMTP_NGINX").ok().filter(|path| !path.is_empty()) else {
        // Not captured, as the macro's output would be.
        writeln!(io::stderr(), "skipped: no balancer").expect("standard error is open");
        return;
    };
    // No keepalive pushes out what waits in a buffer.
    let backend =
        Backend::with("streams.keepalive_interval_ms = 300000\nstreams.max_pong_wait_ms = 600000")
            .await;
    let balancer = Balancer::start(&nginx, backend.address).await;
    let group = topic(TopicKind::GroupMessage, 1);
    let native = "application/grpc";
    let web = "application/grpc-web+proto";

    let ways = [
        (Version::HTTP_2, native, "native"),
        (Version::HTTP_2, web, "web over HTTP/2"),
        (Version::HTTP_11, web, "web over HTTP/1.1"),
    ];
    for (version, kind, text) in ways {
        let request = PublishRequest {
            envelopes: vec![group_message(1, text)],
        };
        let response = balancer
            .call(version, kind, publish::PATH, &request.encode_to_vec())
            .await;
        let answer = Answer::collect(response, kind == web).await;
        assert_eq!(answer.code(), Code::Ok, "{text}");
        assert!(
            answer.header("content-type").is_some_and(|it| it == kind),
            "{text}"
        );
        assert!(answer.header("x-request-id").is_some(), "{text}");
        let response = PublishResponse::decode(answer.messages[0].clone()).expect("an answer");
        let row = backend.read(&group).await.pop().expect("it is stored");
        assert_eq!(sequence_id(&row), meta_id(&response.envelope_metas[0]));

        // The details of a status are intact.
        let request = PublishRequest {
            envelopes: vec![ClientEnvelope { payload: None }],
        };
        let response = balancer
            .call(version, kind, publish::PATH, &request.encode_to_vec())
            .await;
        let status = Answer::collect(response, kind == web).await.status();
        assert_eq!(status.code(), Code::InvalidArgument, "{text}");
        let detail = publish_error(&status).expect("the detail arrives");
        assert_eq!(detail.index, Some(0), "{text}");
    }

    let headers = "authorization,content-type,x-grpc-web,traceparent";
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let preflight = Request::options(uri(version, publish::PATH))
            .header("origin", "https://app.example.org")
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", headers)
            .body(Full::default())
            .expect("legal");
        let answer = Answer::collect(balancer.send(version, preflight).await, true).await;
        assert!(answer.http.is_success(), "{version:?}");
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
        assert_eq!(answer.header("access-control-allow-headers"), Some(headers));
    }

    // Each row is published only when the one before has arrived.
    let last = backend.read(&group).await.last().map_or(0, sequence_id);
    let request = SubscribeStaticRequest {
        topics: vec![query(&group, last)],
    };
    let request = request.encode_to_vec();
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let stream = balancer.call(version, web, STATIC_PATH, &request).await;
        assert_eq!(stream.headers()["access-control-allow-origin"], "*");
        let mut stream = Messages::of(stream);
        let mut next = async || {
            let frame = SubscribeStaticResponse::decode(stream.next().await).expect("a frame");
            frame.response.expect("set")
        };
        assert!(matches!(next().await, Frame::Started(_)));
        let before = backend.read(&group).await.last().map_or(0, sequence_id);
        let mut seen = last;
        while seen < before {
            let Frame::Messages(messages) = next().await else {
                continue;
            };
            seen = messages.envelopes.last().map_or(seen, sequence_id);
        }
        for text in ["a", "b", "c"] {
            let text = format!("{text} {version:?}");
            let metas = backend.publish([group_message(1, text.as_str())]).await;
            let Frame::Messages(messages) = next().await else {
                panic!("the row comes next")
            };
            assert_eq!(messages.envelopes.len(), 1);
            assert_eq!(sequence_id(&messages.envelopes[0]), meta_id(&metas[0]));
        }
    }
}
