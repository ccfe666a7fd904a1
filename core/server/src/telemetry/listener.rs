//! The port of the operator: `/metrics`, `/healthz` and `/readyz` (OPS-016; operations contract,
//! section 8.1). It says nothing of requests, and has no authentication.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::Metrics;
use crate::readiness::{Readiness, Report};

/// Pause after a failed accept: usually the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A bound port.
pub(crate) struct TelemetryListener(TcpListener);

/// What its endpoints tell.
#[derive(Clone)]
pub(crate) struct Telemetry {
    /// `None` where no recorder is installed.
    pub(crate) metrics: Option<Metrics>,
    pub(crate) readiness: Readiness,
}

impl TelemetryListener {
    pub(crate) async fn bind(address: SocketAddr) -> io::Result<Self> {
        Ok(Self(TcpListener::bind(address).await?))
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Answers until `stop`.
    pub(crate) async fn serve(self, telemetry: Telemetry, stop: CancellationToken) {
        while let Some(accepted) = stop.run_until_cancelled(self.0.accept()).await {
            let Ok((stream, _)) = accepted else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (telemetry, stop) = (telemetry.clone(), stop.clone());
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    std::future::ready(Ok::<_, Infallible>(telemetry.answer(&request)))
                });
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .serve_connection(TokioIo::new(stream), service);
                // A scraper that goes away is its own affair.
                let _ = stop.run_until_cancelled(connection).await;
            });
        }
    }
}

/// The body of `/healthz` and `/readyz`.
#[derive(Default, Serialize)]
struct Said {
    #[serde(skip_serializing_if = "Option::is_none")]
    alive: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waiting: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    streams: Option<&'static str>,
}

impl Telemetry {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        if !matches!(path, "/metrics" | "/healthz" | "/readyz") {
            return respond(StatusCode::NOT_FOUND, "text/plain", String::new());
        }
        if request.method() != Method::GET {
            let mut response = respond(StatusCode::METHOD_NOT_ALLOWED, "text/plain", String::new());
            let allow = HeaderValue::from_static("GET");
            response.headers_mut().insert(header::ALLOW, allow);
            return response;
        }
        match path {
            "/metrics" => {
                let text = self
                    .metrics
                    .as_ref()
                    .map_or_else(String::new, Metrics::render);
                respond(
                    StatusCode::OK,
                    "text/plain; version=0.0.4; charset=utf-8",
                    text,
                )
            }
            "/healthz" => say(
                StatusCode::OK,
                &Said {
                    alive: Some(true),
                    ..Said::default()
                },
            ),
            _ => match self.readiness.report() {
                Report::Ready { recovering } => say(
                    StatusCode::OK,
                    &Said {
                        ready: Some(true),
                        streams: recovering.then_some("recovering"),
                        ..Said::default()
                    },
                ),
                Report::Waiting(waiting) => say(
                    StatusCode::SERVICE_UNAVAILABLE,
                    &Said {
                        ready: Some(false),
                        waiting,
                        ..Said::default()
                    },
                ),
            },
        }
    }
}

fn say(status: StatusCode, said: &Said) -> Response<Full<Bytes>> {
    // Words and truths are always representable.
    let text = serde_json::to_string(said).unwrap_or_default();
    respond(status, "application/json", text)
}

fn respond(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
