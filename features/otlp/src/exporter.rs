//! The thread that sends what waits to the collector (OPS-015).

use std::io;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tonic::transport::{Channel, ClientTlsConfig};
use tonic::{Code, Status};
use xmtp_server::telemetry::{Flush, Metrics};

use crate::attributes::now_ns;
use crate::config::Endpoint;
use crate::families::FAILURES;
use crate::queue::{BATCH, Queue};
use crate::resource::Origin;
use crate::{logs, metrics};

/// Longest time that spans and log lines wait.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time for one batch.
const EXPORT_LIMIT: Duration = Duration::from_secs(5);

/// Time for a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// How often a connection on which an answer is due is asked whether it lives, and how long for the answer. A collector
/// that vanished without a word is connected to anew.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// What is left of the time for a flush when exports are given up.
const FLUSH_RESERVE: Duration = Duration::from_millis(100);

/// Why nothing can be exported.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExporterError {
    #[error(
        "telemetry.otlp_endpoint: no certificate authority is known to this system, so that https cannot be used"
    )]
    Tls(#[source] tonic::transport::Error),
    #[error("telemetry.otlp_endpoint: the collector cannot be prepared for")]
    Endpoint(#[source] tonic::transport::Error),
    #[error("the system refuses a thread for the exporter: {}", .0.kind())]
    System(#[from] io::Error),
}

/// What is exported.
pub(crate) struct Sources {
    pub(crate) spans: Arc<Queue<Span>>,
    /// `None` where logs are not exported.
    pub(crate) logs: Option<Arc<Queue<LogRecord>>>,
    /// What is recorded, and the time between two pushes; `None` where metrics are not exported.
    pub(crate) metrics: Option<(Metrics, Duration)>,
}

/// The running exporter.
pub(crate) struct Exporter {
    end: watch::Sender<Option<Instant>>,
    ended: mpsc::Receiver<()>,
}

impl Exporter {
    /// Exports from `sources` until it is flushed. Whether anybody listens at `endpoint` is not looked at.
    pub(crate) fn start(
        endpoint: &Endpoint,
        origin: Origin,
        sources: Sources,
    ) -> Result<Self, ExporterError> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let channel = {
            let _inside = runtime.enter();
            connect(endpoint, &origin)?
        };
        let (end, ending) = watch::channel(None);
        let (tell, ended) = mpsc::channel();
        let run = move || {
            logs::silence_this_thread();
            runtime.block_on(export(channel, origin, sources, ending));
            // Nobody may listen any more.
            let _ = tell.send(());
            // A name that is still looked up must not hold the thread.
            runtime.shutdown_background();
        };
        thread::Builder::new().name("otlp".to_owned()).spawn(run)?;
        Ok(Self { end, ended })
    }
}

impl Flush for Exporter {
    fn flush(self: Box<Self>, limit: Duration) {
        let exports = limit.saturating_sub(FLUSH_RESERVE);
        // The thread has ended only if it panicked.
        let _ = self.end.send(Some(Instant::now() + exports));
        let _ = self.ended.recv_timeout(limit);
    }
}

/// A channel that connects when there is something to send, and again after every failure.
fn connect(endpoint: &Endpoint, origin: &Origin) -> Result<Channel, ExporterError> {
    let address = tonic::transport::Endpoint::from_shared(endpoint.origin().to_owned());
    let address = address.map_err(ExporterError::Endpoint)?;
    let agent = format!("{}/{}", origin.scope.name, origin.scope.version);
    let address = address.user_agent(agent).map_err(ExporterError::Endpoint)?;
    let mut address = address
        .connect_timeout(CONNECT_LIMIT)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE);
    if endpoint.is_tls() {
        let tls = ClientTlsConfig::new().with_native_roots();
        address = address.tls_config(tls).map_err(ExporterError::Tls)?;
    }
    Ok(address.connect_lazy())
}

/// Set once: until when exports may go on.
type Ending = watch::Receiver<Option<Instant>>;

async fn export(channel: Channel, origin: Origin, sources: Sources, ending: Ending) {
    let line = |signal| Line {
        channel: channel.clone(),
        origin: origin.clone(),
        ending: ending.clone(),
        signal,
        is_failing: false,
        is_dropping: false,
    };
    let spans = line("traces").batches(&sources.spans);
    let logs = async {
        if let Some(queue) = &sources.logs {
            line("logs").batches(queue).await;
        }
    };
    let metrics = async {
        if let Some((metrics, interval)) = &sources.metrics {
            line("metrics").snapshots(metrics, *interval).await;
        }
    };
    tokio::join!(spans, logs, metrics);
}

/// How one signal gets to the collector.
struct Line {
    channel: Channel,
    origin: Origin,
    ending: Ending,
    signal: &'static str,
    /// Said already.
    is_failing: bool,
    is_dropping: bool,
}

impl Line {
    /// Sends what is queued, in batches, until it has to end.
    async fn batches<T: Item>(mut self, queue: &Queue<T>) {
        let mut is_last = false;
        while !is_last {
            is_last = tokio::select! {
                () = self.ends() => true,
                () = queue.batch() => false,
                () = sleep(INTERVAL) => false,
            };
            loop {
                let taken = queue.take();
                self.dropped(taken.has_dropped);
                if taken.items.is_empty() {
                    break;
                }
                let is_whole = taken.items.len() == BATCH;
                self.attempt(taken.items).await;
                // At the end, until nothing is left.
                if !is_whole && !is_last {
                    break;
                }
            }
        }
    }

    /// Sends what is recorded, at each interval and at the end.
    async fn snapshots(mut self, recorded: &Metrics, interval: Duration) {
        let start_ns = now_ns();
        let mut is_last = false;
        while !is_last {
            is_last = tokio::select! {
                () = self.ends() => true,
                () = sleep(interval) => false,
            };
            let metrics = metrics::metrics(&recorded.render(), start_ns, now_ns());
            self.attempt(metrics).await;
        }
    }

    /// Sends one batch, in bounded time, and keeps the account of it.
    async fn attempt<T: Item>(&mut self, batch: Vec<T>) {
        let sending = T::send(batch, &self.origin, self.channel.clone());
        let ending = self.ending.clone();
        let sent = tokio::select! {
            sent = timeout(EXPORT_LIMIT, sending) => {
                sent.unwrap_or_else(|_| Err(Status::deadline_exceeded("")))
            }
            () = over(ending) => Err(Status::deadline_exceeded("")),
        };
        let signal = self.signal;
        match sent {
            Ok(()) if self.is_failing => {
                self.is_failing = false;
                tracing::info!(signal, "telemetry is exported again");
            }
            Ok(()) => {}
            Err(status) => {
                FAILURES.count(&[], 1);
                if !self.is_failing {
                    self.is_failing = true;
                    let code = status.code();
                    tracing::warn!(signal, ?code, "telemetry is not exported");
                }
            }
        }
    }

    fn dropped(&mut self, has_dropped: bool) {
        if has_dropped && !self.is_dropping {
            tracing::warn!(
                signal = self.signal,
                "telemetry is dropped: more comes than the collector takes"
            );
        }
        self.is_dropping = has_dropped;
    }

    /// Resolves when what is left has to be sent.
    async fn ends(&mut self) {
        ended(&mut self.ending).await;
    }
}

/// Resolves at the end, with the time until when exports may go on.
async fn ended(ending: &mut Ending) -> Option<Instant> {
    // Whoever would say so is gone: nothing is left to be waited for.
    let until = ending.wait_for(Option::is_some).await;
    until.ok().and_then(|until| *until)
}

/// Resolves when exports have to be given up.
async fn over(mut ending: Ending) {
    if let Some(until) = ended(&mut ending).await {
        sleep_until(until).await;
    }
}

/// What a batch consists of.
trait Item: Sized {
    /// Sends a batch.
    ///
    /// # Errors
    /// The collector does not take it, or not all of it.
    async fn send(items: Vec<Self>, origin: &Origin, channel: Channel) -> Result<(), Status>;
}

impl Item for Span {
    async fn send(spans: Vec<Self>, origin: &Origin, channel: Channel) -> Result<(), Status> {
        let Origin { resource, scope } = origin.clone();
        let scope_spans = vec![ScopeSpans {
            scope: Some(scope),
            spans,
            ..ScopeSpans::default()
        }];
        let request = ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(resource),
                scope_spans,
                ..ResourceSpans::default()
            }],
        };
        let answer = TraceServiceClient::new(channel).export(request).await?;
        let rejected = answer.into_inner().partial_success;
        whole(rejected.map_or(0, |rejected| rejected.rejected_spans))
    }
}

impl Item for LogRecord {
    async fn send(records: Vec<Self>, origin: &Origin, channel: Channel) -> Result<(), Status> {
        let Origin { resource, scope } = origin.clone();
        let scope_logs = vec![ScopeLogs {
            scope: Some(scope),
            log_records: records,
            ..ScopeLogs::default()
        }];
        let request = ExportLogsServiceRequest {
            resource_logs: vec![ResourceLogs {
                resource: Some(resource),
                scope_logs,
                ..ResourceLogs::default()
            }],
        };
        let answer = LogsServiceClient::new(channel).export(request).await?;
        let rejected = answer.into_inner().partial_success;
        whole(rejected.map_or(0, |rejected| rejected.rejected_log_records))
    }
}

impl Item for Metric {
    async fn send(metrics: Vec<Self>, origin: &Origin, channel: Channel) -> Result<(), Status> {
        let Origin { resource, scope } = origin.clone();
        let scope_metrics = vec![ScopeMetrics {
            scope: Some(scope),
            metrics,
            ..ScopeMetrics::default()
        }];
        let request = ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(resource),
                scope_metrics,
                ..ResourceMetrics::default()
            }],
        };
        let answer = MetricsServiceClient::new(channel).export(request).await?;
        let rejected = answer.into_inner().partial_success;
        whole(rejected.map_or(0, |rejected| rejected.rejected_data_points))
    }
}

/// A batch of which the collector rejects something has failed.
fn whole(rejected: i64) -> Result<(), Status> {
    match rejected {
        0 => Ok(()),
        _ => Err(Status::new(Code::InvalidArgument, "")),
    }
}
