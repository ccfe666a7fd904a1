//! Metrics, in the Prometheus text format (OPS-016).

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Histogram bounds of every family, in seconds.
const BUCKETS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// How often samples are folded.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Pause after a failed accept: usually the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The recorder cannot be installed.
#[derive(Debug, thiserror::Error)]
#[error("the metrics recorder cannot be installed")]
pub struct MetricsError(#[from] BuildError);

/// Installs the recorder of the process.
///
/// # Errors
/// [`MetricsError`] on a second call.
pub fn install_recorder() -> Result<PrometheusHandle, MetricsError> {
    let handle = PrometheusBuilder::new()
        .set_buckets(&BUCKETS)?
        .install_recorder()?;
    metrics::gauge!("xmtp_backend_ready").set(0.0);
    metrics::gauge!("xmtp_backend_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    Ok(handle)
}

/// Folds histogram samples that nobody has scraped into their buckets, until `stop`: without a scraper
/// they would pile up.
pub(crate) async fn upkeep(handle: PrometheusHandle, stop: CancellationToken) {
    while stop
        .run_until_cancelled(sleep(UPKEEP_INTERVAL))
        .await
        .is_some()
    {
        handle.run_upkeep();
    }
}

/// The port of its own.
pub(crate) struct MetricsListener(TcpListener);

impl MetricsListener {
    pub(crate) async fn bind(address: SocketAddr) -> io::Result<Self> {
        Ok(Self(TcpListener::bind(address).await?))
    }

    /// Answers `GET /metrics` until `stop`.
    pub(crate) async fn serve(self, handle: PrometheusHandle, stop: CancellationToken) {
        while let Some(accepted) = stop.run_until_cancelled(self.0.accept()).await {
            let Ok((stream, _)) = accepted else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (handle, stop) = (handle.clone(), stop.clone());
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    std::future::ready(Ok::<_, Infallible>(answer(&request, &handle)))
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

fn answer(request: &Request<Incoming>, handle: &PrometheusHandle) -> Response<Full<Bytes>> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => (StatusCode::OK, handle.render()),
        (_, "/metrics") => (StatusCode::METHOD_NOT_ALLOWED, String::new()),
        _ => (StatusCode::NOT_FOUND, String::new()),
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let text = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    response
}
