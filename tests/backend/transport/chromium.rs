//! A page in a real browser, on another origin than the backend's.

use std::collections::HashMap;
use std::convert::Infallible;
use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use prost::Message;
use serde::Deserialize;
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::{Code, Status};
use xmtp_protocol::TopicKind;
use xmtp_protocol::proto::xmtp::backend::v1::publish_error::Reason;
use xmtp_protocol::proto::xmtp::backend::v1::subscribe_static_response::{self, Messages};
use xmtp_protocol::proto::xmtp::backend::v1::{
    CatchupTarget, ClientEnvelope, PublishResponse, SubscribeStaticResponse,
};
use xmtp_test_support::eventually;
use xmtp_test_support::payloads::{group_message, topic};

use crate::harness::{Backend, publish_error, wire};

/// Time for the browser to start, and for the page to say what it saw or what it waits for in vain.
const PATIENCE: Duration = Duration::from_mins(1);

/// What the page could read.
#[derive(Debug, Deserialize)]
struct Seen {
    failure: Option<String>,
    origin: String,
    stream: Option<Head>,
    /// Messages of the stream, without keepalives, each in hexadecimal.
    frames: Vec<String>,
    published: Vec<Answer>,
    refused: Option<Answer>,
}

/// What scripts are shown of the head of an answer.
#[derive(Debug, Deserialize)]
struct Head {
    http: u16,
    headers: HashMap<String, String>,
}

/// A whole unary call.
#[derive(Debug, Deserialize)]
struct Answer {
    #[serde(flatten)]
    head: Head,
    /// In hexadecimal.
    messages: Vec<String>,
    trailers: HashMap<String, String>,
}

impl Head {
    #[track_caller]
    fn check(&self) {
        assert_eq!(self.http, 200);
        let readable = |name| self.headers.get(name).map(String::as_str);
        assert_eq!(readable("content-type"), Some("application/grpc-web+proto"));
        assert_eq!(readable("x-request-id").map(str::len), Some(36), "a UUID");
    }
}

impl Answer {
    /// The status, from wherever the page found it.
    fn status(&self) -> Status {
        let map = |map: &HashMap<_, _>| HeaderMap::try_from(map).expect("legal headers");
        Status::from_header_map(&map(&self.trailers))
            .or_else(|| Status::from_header_map(&map(&self.head.headers)))
            .expect("the page can read a status")
    }
}

#[tokio::test]
async fn s01_s02_api_285_a_page_on_another_origin_publishes_and_reads_a_static_stream_live() {
    let Some(chromium) = env::var_os("XMTP_CHROMIUM").filter(|path| !path.is_empty()) else {
        // Not captured, as the macro's output would be.
        writeln!(io::stderr(), "skipped: no browser").expect("standard error is open");
        return;
    };
    let backend = Backend::start().await;
    let group = topic(TopicKind::GroupMessage, 1);
    let sent = ["first", "second"].map(|text| group_message(1, text));
    let task = json!({
        "backend": format!("http://{}", backend.address),
        "topic": hex::encode(group.as_bytes()),
        "envelopes": sent.each_ref().map(|envelope| hex::encode(envelope.encode_to_vec())),
        "refused": hex::encode(ClientEnvelope { payload: None }.encode_to_vec()),
    });
    let (origin, mut reports) = serve(task.to_string()).await;
    let mut browser = Browser::open(chromium, &format!("http://{origin}/"));
    let report = browser.wait_for(reports.recv()).await;
    browser.close().await;

    let seen: Seen = serde_json::from_slice(&report.expect("a report")).expect("what a page says");
    assert_eq!(seen.failure, None, "{seen:?}");
    assert_eq!(seen.origin, format!("http://{origin}"));
    seen.stream.expect("the stream has a head").check();

    let mut frames = seen.frames.iter().map(|frame| {
        let frame = decode::<SubscribeStaticResponse>(frame);
        frame.response.expect("a frame is of some kind")
    });
    let Some(subscribe_static_response::Response::Started(started)) = frames.next() else {
        panic!("the first frame is Started")
    };
    let target = CatchupTarget {
        topic: Some(wire(&group)),
        through_sequence_id: 0,
    };
    assert_eq!(started.targets, [target]);
    assert_eq!(seen.published.len(), sent.len());
    for (answer, envelope) in seen.published.iter().zip(&sent) {
        answer.head.check();
        assert_eq!(answer.trailers["grpc-status"], "0");
        let [message] = &answer.messages[..] else {
            panic!("one message, not {}", answer.messages.len())
        };
        let published = decode::<PublishResponse>(message);
        let Some(subscribe_static_response::Response::Messages(Messages { envelopes })) =
            frames.next()
        else {
            panic!("a row for each publish")
        };
        let [row] = &envelopes[..] else {
            panic!("one row, not {}", envelopes.len())
        };
        assert_eq!(row.meta.as_slice(), published.envelope_metas);
        assert_eq!(row.envelope.as_ref(), Some(envelope));
    }

    let refused = seen.refused.expect("the last publish is answered");
    refused.head.check();
    assert!(refused.messages.is_empty());
    let status = refused.status();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(!status.message().is_empty());
    let detail = publish_error(&status).expect("the page can read the detail");
    assert!(detail.reason() == Reason::MalformedPayload);
    backend.stop().await;
}

fn decode<M: Message + Default>(message: &str) -> M {
    let message = hex::decode(message).expect("the page writes hexadecimal");
    M::decode(&message[..]).expect("the page passes on what the server sent")
}

/// Serves the page on an origin of its own, and what it is to do; answers with what it reports.
async fn serve(task: String) -> (SocketAddr, mpsc::Receiver<Bytes>) {
    let socket = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = socket.local_addr().expect("an address");
    let (reports, reported) = mpsc::channel(1);
    tokio::spawn(async move {
        while let Ok((stream, _)) = socket.accept().await {
            let (task, reports) = (task.clone(), reports.clone());
            let service = service_fn(move |request| answer(request, task.clone(), reports.clone()));
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    (address, reported)
}

async fn answer(
    request: Request<Incoming>,
    task: String,
    reports: mpsc::Sender<Bytes>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, kind, body) = match request.uri().path() {
        "/" => (
            StatusCode::OK,
            "text/html",
            include_str!("page.html").into(),
        ),
        "/task" => (StatusCode::OK, "application/json", task.into()),
        "/report" => {
            let report = request.into_body().collect().await.expect("it arrives");
            // Nobody waits any more when the test has failed.
            let _ = reports.send(report.to_bytes()).await;
            (StatusCode::OK, "text/plain", Bytes::new())
        }
        _ => (StatusCode::NOT_FOUND, "text/plain", Bytes::new()),
    };
    let response = Response::builder()
        .status(status)
        .header("content-type", kind)
        .body(Full::new(body));
    Ok(response.expect("legal"))
}

/// A browser without a window, killed with the value.
struct Browser {
    process: Child,
    /// Its home, its profile, and what it says.
    folder: TempDir,
}

impl Browser {
    fn open(program: impl AsRef<OsStr>, url: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let log = File::create(folder.path().join("log")).expect("a log");
        let process = Command::new(program)
            .args(["--headless=new", "--no-first-run", "--disable-gpu"])
            // For root and for containers, whose shared memory is small. The page is our own.
            .args(["--no-sandbox", "--disable-dev-shm-usage"])
            .args(["--disable-background-networking", "--no-proxy-server"])
            .arg(format!("--user-data-dir={}", folder.path().display()))
            .arg(url)
            .env("HOME", folder.path())
            .env("TMPDIR", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("the browser starts");
        Self { process, folder }
    }

    /// Waits for what the page does.
    async fn wait_for<T>(&mut self, event: impl Future<Output = T>) -> T {
        let problem = tokio::select! {
            happened = timeout(PATIENCE, event) => match happened {
                Ok(happened) => return happened,
                Err(_) => "the page is silent".to_owned(),
            },
            ended = self.process.wait() => format!("the browser ended: {ended:?}"),
        };
        let log = fs::read(self.folder.path().join("log")).expect("a log");
        panic!("{problem}\n{}", String::from_utf8_lossy(&log));
    }

    /// Ends it, and removes what it has written.
    async fn close(mut self) {
        self.process.kill().await.expect("it can be killed");
        // Its other processes notice, and may still write until they do.
        eventually("the browser's folder can be removed", async || {
            fs::remove_dir_all(self.folder.path()).ok()
        })
        .await;
    }
}
