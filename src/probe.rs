//! `--health-probe`: asks the running instance whether it is ready, for images without a shell (operations
//! contract, section 8.2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::transport::Endpoint;
use xmtp_protocol::client::HealthClient;
use xmtp_protocol::proto::grpc::health::v1::HealthCheckRequest;
use xmtp_protocol::proto::grpc::health::v1::health_check_response::ServingStatus;
use xmtp_server::config::Config;

/// For the whole question.
const TIME_LIMIT: Duration = Duration::from_secs(3);

/// More than any answer of ours.
const ANSWER_BYTES: usize = 64 << 10;

/// Why the instance does not count as ready.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotReady {
    #[error("port is dynamic")]
    DynamicPort,
    #[error("no answer within 3 seconds")]
    Silent,
    #[error("no instance answers")]
    Unreachable,
    #[error("not ready, waiting for: {}", .0.join(", "))]
    Waiting(Vec<String>),
    #[error("not serving")]
    NotServing,
    #[error("what answers is no instance of this program")]
    Stranger,
}

/// Asks the instance that `config` describes: `/readyz`, or health where there is no telemetry listener.
pub(crate) async fn ask(config: &Config) -> Result<(), NotReady> {
    let telemetry = config.telemetry.metrics_listen.0;
    let address = reachable(telemetry.unwrap_or(config.server.listen.0))?;
    let asked = timeout(TIME_LIMIT, async {
        match telemetry {
            Some(_) => readyz(address).await,
            None => health(address).await,
        }
    });
    asked.await.map_err(|_| NotReady::Silent)?
}

/// Where a listener on `address` is reached from here.
fn reachable(mut address: SocketAddr) -> Result<SocketAddr, NotReady> {
    if address.port() == 0 {
        return Err(NotReady::DynamicPort);
    }
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    Ok(address)
}

/// What `/readyz` says, as far as it matters here.
#[derive(Deserialize)]
struct Said {
    ready: bool,
    #[serde(default)]
    waiting: Vec<String>,
}

async fn readyz(address: SocketAddr) -> Result<(), NotReady> {
    let stream = TcpStream::connect(address).await;
    let stream = stream.map_err(|_| NotReady::Unreachable)?;
    let handshake = http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|_| NotReady::Unreachable)?;
    let request = Request::get("/readyz")
        .header(header::HOST, address.to_string())
        .body(Empty::new())
        .map_err(|_| NotReady::Unreachable)?;
    let exchange = async {
        let response = sender.send_request(request).await;
        let response = response.map_err(|_| NotReady::Unreachable)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES);
        let body = body.collect().await.map_err(|_| NotReady::Stranger)?;
        let said: Said =
            serde_json::from_slice(&body.to_bytes()).map_err(|_| NotReady::Stranger)?;
        match (status, said.ready) {
            (StatusCode::OK, true) => Ok(()),
            (StatusCode::SERVICE_UNAVAILABLE, false) => Err(NotReady::Waiting(words(said.waiting))),
            _ => Err(NotReady::Stranger),
        }
    };
    tokio::select! {
        answer = exchange => answer,
        // It only ends first where the other side breaks off.
        _ = connection => Err(NotReady::Unreachable),
    }
}

/// Only words: the answer may be anybody's, and goes to a terminal.
fn words(said: Vec<String>) -> Vec<String> {
    let is_word = |word: &String| word.bytes().all(|letter| letter.is_ascii_lowercase());
    said.into_iter().filter(is_word).collect()
}

async fn health(address: SocketAddr) -> Result<(), NotReady> {
    let endpoint =
        Endpoint::from_shared(format!("http://{address}")).map_err(|_| NotReady::Unreachable)?;
    let channel = endpoint
        .connect()
        .await
        .map_err(|_| NotReady::Unreachable)?;
    let answer = HealthClient::new(channel)
        .check(HealthCheckRequest::default())
        .await
        .map_err(|_| NotReady::Stranger)?;
    match answer.into_inner().status() {
        ServingStatus::Serving => Ok(()),
        _ => Err(NotReady::NotServing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_address_is_reached_on_the_loopback_of_its_family() {
        for (listen, reached) in [
            ("0.0.0.0:9464", "127.0.0.1:9464"),
            ("[::]:9464", "[::1]:9464"),
            ("192.0.2.1:9464", "192.0.2.1:9464"),
        ] {
            let reachable = reachable(listen.parse().expect("an address"));
            assert_eq!(reachable.expect("a fixed port").to_string(), reached);
        }
        let dynamic = reachable("127.0.0.1:0".parse().expect("an address"));
        assert_eq!(dynamic.expect_err("dynamic").to_string(), "port is dynamic");
    }

    #[test]
    fn only_words_of_an_answer_are_shown() {
        let said = ["streams", "\u{1b}[2J", "rm -rf"].map(str::to_owned);
        assert_eq!(words(said.into()), ["streams"]);
    }
}
