//! From a document to a serving process, and back down (operations contract, sections 1.1 and 2).

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;
use xmtp_protocol::NetworkValidator;
use xmtp_protocol::identity::ChainVerifier;
use xmtp_protocol::proto::xmtp::backend::v1::GetConfigurationResponse;
use xmtp_store::{Primary, Reads, StartupCheckError, StoreError};
use xmtp_streams::Streams;

use crate::config::sections::LogLevel;
use crate::config::{Config, ConfigError, ConfigErrors, Document, checks};
use crate::publish::{PublishLimits, Publisher, RetentionPeriods};
use crate::published::{fits, published};
use crate::readiness::{Readiness, Step};
use crate::services::configuration::ConfigurationEndpoint;
use crate::services::health::HealthEndpoint;
use crate::services::identity::{IdentityEndpoint, IdentityLimits};
use crate::services::publish::PublishEndpoint;
use crate::services::query::{QueryEndpoint, QueryLimits};
use crate::services::subscription::SubscriptionEndpoint;
use crate::services::{
    ConfigurationServiceServer, HealthServer, IdentityServiceServer, PublishServiceServer,
    QueryServiceServer,
};
use crate::subsystem::{
    Attachments, Configure, Failures, ProvidedDatabase, ReadSource, Registrar, Starting, Subsystem,
    SubsystemError,
};
use crate::telemetry::{
    Catalogue, Metrics, Observers, Observing, RequestTracer, Telemetry, TelemetryListener,
};
use crate::transport::{self, Admission, AnswerLimits, CallLayer, Listener, Services};

/// Full names of core's services, as health reports them.
const SERVICES: [&str; 5] = [
    "xmtp.backend.v1.QueryService",
    "xmtp.backend.v1.PublishService",
    "xmtp.backend.v1.SubscriptionService",
    "xmtp.backend.v1.IdentityService",
    "xmtp.backend.v1.ConfigurationService",
];

/// Time for streams to end once they are told to.
const STREAM_END_GRACE: Duration = Duration::from_secs(1);

/// Time after the drain deadline for everything to stop. The process has 5 seconds (OPS-008).
const STOP_GRACE: Duration = Duration::from_secs(4);
/// Time after the drain deadline for the process to end by itself.
const EXIT_GRACE: Duration = Duration::from_millis(4500);

/// Why the server does not start. Shows no configured value but listen addresses.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A port cannot be had.
    #[error("{key}: cannot listen on {address}: {}", source.kind())]
    Listen {
        /// The configuration key.
        key: &'static str,
        /// Its address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// What a subsystem has to do first fails.
    #[error("{word}: {source}")]
    Step {
        /// The word of the step.
        word: &'static str,
        /// What the subsystem says.
        source: SubsystemError,
    },
    /// A subsystem's task has failed while the server was starting.
    #[error("{0}")]
    Subsystem(SubsystemError),
    /// What answers the reads that may lag cannot, or must not, be read.
    #[error("{word}: {source}")]
    ReadSource {
        /// The word of the source.
        word: &'static str,
        /// What is wrong with it.
        source: StartupCheckError,
    },
    /// Clients cannot be told what they need: the answer would be too long (CONF-009).
    #[error("{0}")]
    Published(ConfigError),
    /// The database that a subsystem brings along does not start.
    #[error("database.url: {0}")]
    Provider(SubsystemError),
    /// The database cannot be reached.
    #[error("database.url: {0}")]
    Connect(StoreError),
    /// The database cannot be served.
    #[error("database.url: {0}")]
    Database(#[from] StartupCheckError),
    /// Stream recovery failed at start.
    #[error("streams cannot start: {0}")]
    Streams(StoreError),
    /// A setting does not fit the database's clock (OPS-020).
    #[error(transparent)]
    Check(#[from] checks::CheckError),
}

/// A configured server that has not touched anything yet.
pub struct Server {
    config: Config,
    /// What clients are told of it.
    published: Box<GetConfigurationResponse>,
    registrar: Registrar,
    catalogue: Catalogue,
    metrics: Option<Metrics>,
    tracer: Option<Arc<dyn RequestTracer>>,
}

impl Server {
    /// Takes the document apart among its owners.
    ///
    /// # Errors
    /// Every problem of the document.
    pub fn configure(
        mut document: Document,
        subsystems: &mut [Box<dyn Subsystem>],
    ) -> Result<Self, ConfigErrors> {
        let mut registrar = Registrar::default();
        let mut errors = ConfigErrors::default();
        let catalogue = Catalogue::new(subsystems);
        for subsystem in subsystems {
            errors.keep(subsystem.configure(&mut Configure::new(&mut document, &mut registrar)));
        }
        let config = errors.keep(Config::load(&mut document));
        let published = config
            .as_ref()
            .and_then(|config| errors.keep(published(config).map_err(ConfigErrors::from)));
        match config.zip(published) {
            Some((config, published)) => errors.or(Self {
                config,
                published: Box::new(published),
                registrar,
                catalogue,
                metrics: None,
                tracer: None,
            }),
            None => Err(errors),
        }
    }

    /// Core's part of the configuration.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Time from a signal until the process has ended, whatever hangs (OPS-008).
    pub fn exit_limit(&self) -> Duration {
        self.config.server.max_drain_duration_ms.milliseconds() + EXIT_GRACE
    }

    /// What its telemetry can say.
    pub const fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// Lets subsystems watch what the process tells: `metrics`, its spans, and what it logs at `level`. To be called
    /// before logging is installed, with what is answered.
    ///
    /// # Errors
    /// A subsystem cannot.
    pub fn observe(
        &mut self,
        metrics: &Metrics,
        level: LogLevel,
    ) -> Result<Observers, SubsystemError> {
        let mut observing = Observing::new(&self.config, metrics, level);
        for observer in self.registrar.take_observers() {
            observer.observe(&mut observing)?;
        }
        let observers = observing.finish();
        self.tracer.clone_from(&observers.tracer);
        Ok(observers)
    }

    /// Serves `metrics` on `telemetry.metrics_listen`.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Brings everything up, in the contract's order; nothing is accepted before it all is (OPS-005).
    ///
    /// # Errors
    /// [`StartError`]; what was started is stopped again.
    pub async fn start(self) -> Result<RunningServer, StartError> {
        // The steps make a future that is too large to be moved about.
        Box::pin(self.bring_up()).await
    }

    async fn bring_up(mut self) -> Result<RunningServer, StartError> {
        let stop = CancellationToken::new();
        let unless_started = stop.clone().drop_guard();
        let tasks = TaskTracker::new();
        let source = self.registrar.read_source().map(ReadSource::word);
        let readiness = Readiness::starting(self.registrar.step_words(), source);
        if let Some(metrics) = &self.metrics {
            tasks.spawn(metrics.clone().upkeep(stop.clone()));
        }
        let telemetry_addr = match self.config.telemetry.metrics_listen.0 {
            None => None,
            Some(address) => {
                let telemetry = Telemetry {
                    metrics: self.metrics.clone(),
                    readiness: readiness.clone(),
                };
                let bound = TelemetryListener::bind(address).await;
                let listen = bound.and_then(|listener| Ok((listener.local_addr()?, listener)));
                let (local_addr, listener) = listen.map_err(|source| StartError::Listen {
                    key: "telemetry.metrics_listen",
                    address,
                    source,
                })?;
                tracing::info!(%local_addr, "telemetry is served");
                tasks.spawn(listener.serve(telemetry, stop.clone()));
                Some(local_addr)
            }
        };
        let (mut attachments, mut failures) = Attachments::new(stop.clone(), tasks.clone());
        let steps = self.take_steps(&mut attachments, &readiness);
        unless_failed(&mut failures, steps).await?;
        fits(&self.published).map_err(StartError::Published)?;
        // It takes a bounded time, and is to be stopped again in its own way: what fails meanwhile is heard after it.
        let database = self.provide_database().await?;
        let starting = self.start_on(database.as_deref(), readiness, attachments, stop, tasks);
        // Too large to be moved about.
        match unless_failed(&mut failures, Box::pin(starting)).await {
            Ok(serving) => {
                unless_started.disarm();
                Ok(RunningServer {
                    serving,
                    telemetry_addr,
                    database,
                    failures,
                })
            }
            Err(error) => {
                drop(unless_started);
                stop_database(database).await;
                Err(error)
            }
        }
    }

    /// Has subsystems do what has to be done before the first request.
    async fn take_steps(
        &mut self,
        attachments: &mut Attachments,
        readiness: &Readiness,
    ) -> Result<(), StartError> {
        for step in self.registrar.take_start_steps() {
            let word = step.word();
            let mut starting = Starting::new(&mut self.published, attachments);
            let done = step.run(&mut starting).await;
            done.map_err(|source| StartError::Step { word, source })?;
            readiness.done_word(word);
        }
        Ok(())
    }

    /// Starts a subsystem's database where the configuration asks for one.
    async fn provide_database(&self) -> Result<Option<Box<dyn ProvidedDatabase>>, StartError> {
        let url = &self.config.database.url;
        match self.registrar.database_provider(url.scheme()) {
            Some(provider) => provider
                .start(url.secret())
                .await
                .map(Some)
                .map_err(StartError::Provider),
            None => Ok(None),
        }
    }

    /// Connects to the primary: the provided one, where there is one.
    async fn connect(
        &self,
        database: Option<&dyn ProvidedDatabase>,
        max_connections: u32,
    ) -> Result<Primary, StartError> {
        let config = &self.config;
        let url = database.map_or_else(
            || config.database.url.secret().clone(),
            ProvidedDatabase::url,
        );
        Primary::connect(xmtp_store::Settings {
            url,
            max_connections,
            statement_timeout: config.database.max_statement_timeout_ms.milliseconds(),
            transaction_timeout: config.publishing.max_publish_duration_ms.milliseconds(),
        })
        .await
        .map_err(StartError::Connect)
    }

    /// Opens what answers the reads that may lag: the one place that decides which database it is (ARC-060). Who
    /// reads what is in the types: `Primary` has the reads that may not lag, `Reads` the others.
    async fn open_reads(
        &self,
        primary: &Primary,
        readiness: &Readiness,
    ) -> Result<Reads, StartError> {
        let Some(source) = self.registrar.read_source() else {
            return Ok(primary.reads());
        };
        let word = source.word();
        let opened = source.open(primary).await;
        let reads = opened.map_err(|source| StartError::ReadSource { word, source })?;
        readiness.done_word(word);
        Ok(reads)
    }

    /// Where what may lag is read, unless from the primary.
    pub(crate) fn read_source(&self) -> Option<&dyn ReadSource> {
        self.registrar.read_source()
    }

    /// Does `work` on one connection to the primary, and serves nothing.
    pub(crate) async fn visit<T>(
        &self,
        work: impl AsyncFnOnce(&Primary) -> Result<T, StoreError>,
    ) -> Result<T, StartError> {
        let database = self.provide_database().await?;
        let outcome = match self.connect(database.as_deref(), 1).await {
            Ok(primary) => {
                let outcome = work(&primary).await;
                primary.close();
                outcome.map_err(StartError::Connect)
            }
            Err(error) => Err(error),
        };
        stop_database(database).await;
        outcome
    }

    async fn start_on(
        self,
        database: Option<&dyn ProvidedDatabase>,
        readiness: Readiness,
        attachments: Attachments,
        stop: CancellationToken,
        tasks: TaskTracker,
    ) -> Result<Serving, StartError> {
        let config = &self.config;
        let max_connections = config.database.max_connections.to_u32();
        let primary = self.connect(database, max_connections).await?;
        primary.prepare().await?;
        readiness.done(Step::Database);
        let now_ns = primary.clock_ns().await.map_err(StartError::Connect)?;
        checks::retention_fits(now_ns, &config.retention)?;
        readiness.done(Step::Retention);

        let reads = self.open_reads(&primary, &readiness).await?;
        let end_streams = stop.child_token();
        let streams = Streams::start(
            primary.clone(),
            reads.clone(),
            stream_settings(config),
            end_streams.clone(),
            || readiness.done(Step::Boundary),
        )
        .await
        .map_err(StartError::Streams)?;
        readiness.done(Step::Streams);
        let end_watches = CancellationToken::new();
        let configuration = ConfigurationEndpoint(*self.published);
        readiness.done(Step::Configuration);
        let health = HealthEndpoint {
            readiness: readiness.clone(),
            services: SERVICES.into(),
            shutdown: end_watches.clone(),
        };
        let routes = routes(
            config,
            configuration,
            &primary,
            reads.clone(),
            attachments.chain.clone(),
            &streams,
            health,
        );

        let address = config.server.listen.0;
        let key = "server.listen";
        let listen_error = |source| StartError::Listen {
            key,
            address,
            source,
        };
        let listener = Listener::bind(address).await.map_err(listen_error)?;
        let local_addr = listener.local_addr().map_err(listen_error)?;
        let admission = Admission::default();
        let calls = CallLayer::new(
            &self.catalogue,
            config.server.identifier.as_str(),
            config.server.request_logger.0,
            self.tracer.clone(),
        );
        let gate = attachments.gate.clone();
        let stack = transport::stack(routes, calls, gate, admission.clone());
        readiness.done(Step::Listener);
        readiness.serve(streams.clone());
        tasks.spawn(listener.serve(
            stack,
            config.limits.max_http2_streams.to_u32(),
            stop.clone(),
        ));
        tracing::info!(%local_addr, "serving");
        Ok(Serving {
            local_addr,
            drain: config.server.max_drain_duration_ms.milliseconds(),
            readiness,
            admission,
            end_streams,
            end_watches,
            stop,
            tasks,
            streams,
            primary,
            reads,
        })
    }
}

/// Goes on with the start, unless a subsystem's task fails meanwhile: keys that went stale before the first request
/// are no better than later (AUTH-019).
async fn unless_failed<T>(
    failures: &mut Failures,
    start: impl Future<Output = Result<T, StartError>>,
) -> Result<T, StartError> {
    tokio::select! {
        biased;
        error = failures.first() => Err(StartError::Subsystem(error)),
        done = start => done,
    }
}

/// What a server that serves is made of.
struct Serving {
    local_addr: SocketAddr,
    drain: Duration,
    readiness: Readiness,
    admission: Admission,
    end_streams: CancellationToken,
    end_watches: CancellationToken,
    stop: CancellationToken,
    tasks: TaskTracker,
    streams: Streams,
    primary: Primary,
    reads: Reads,
}

/// A server that serves.
pub struct RunningServer {
    serving: Serving,
    telemetry_addr: Option<SocketAddr>,
    database: Option<Box<dyn ProvidedDatabase>>,
    failures: Failures,
}

impl RunningServer {
    /// Where the gRPC port is.
    pub const fn local_addr(&self) -> SocketAddr {
        self.serving.local_addr
    }

    /// Where `/metrics`, `/healthz` and `/readyz` are, if anywhere.
    pub const fn telemetry_addr(&self) -> Option<SocketAddr> {
        self.telemetry_addr
    }

    /// Waits until the server cannot go on: for the first error of a subsystem's task. Whoever hears of it stops
    /// the server. Can be dropped and called again.
    pub async fn failed(&mut self) -> SubsystemError {
        self.failures.first().await
    }

    /// Drains and stops: health says so, streams end, new requests are refused, admitted unary requests
    /// have until the drain deadline, and all the rest four seconds more (OPS-007, OPS-008).
    pub async fn stop(self) {
        let serving = self.serving;
        serving.readiness.drain();
        serving.admission.close();
        serving.end_streams.cancel();
        tracing::info!("draining");
        if timeout(serving.drain, serving.admission.drained())
            .await
            .is_err()
        {
            serving.admission.expire();
            tracing::warn!("drain deadline passed with requests in flight");
        }
        serving.end_watches.cancel();
        serving.stop.cancel();
        serving.tasks.close();
        let stopped = async {
            serving.tasks.wait().await;
            // Sessions end by themselves; one that a stuck read holds goes with the process.
            let _ = timeout(STREAM_END_GRACE, serving.streams.stopped()).await;
            serving.reads.close();
            serving.primary.close();
            stop_database(self.database).await;
        };
        if timeout(STOP_GRACE, stopped).await.is_err() {
            tracing::warn!("what does not stop is left behind");
        }
        tracing::info!("stopped");
    }
}

async fn stop_database(database: Option<Box<dyn ProvidedDatabase>>) {
    if let Some(database) = database
        && let Err(error) = database.stop().await
    {
        tracing::error!(%error, "the provided database did not stop cleanly");
    }
}

/// The clock that lifetimes of key packages are held against (JOIN-008).
fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since_epoch| since_epoch.as_secs())
}

fn routes(
    config: &Config,
    configuration: ConfigurationEndpoint,
    primary: &Primary,
    reads: Reads,
    chain: Arc<dyn ChainVerifier>,
    streams: &Streams,
    health: HealthEndpoint,
) -> Services {
    let limits = &config.limits;
    let (max_in, max_out) = (
        limits.max_request_bytes.to_usize(),
        limits.max_response_bytes.to_usize(),
    );
    let publisher = Publisher::new(
        primary.clone(),
        streams.clone(),
        Arc::new(NetworkValidator::new(unix_seconds).with_chain(chain.clone())),
        publish_limits(config),
        retention(config),
    );
    let publish = PublishEndpoint(Arc::new(publisher));
    let identity = IdentityEndpoint {
        reads: reads.clone(),
        chain,
        limits: IdentityLimits {
            max_lookup_identifiers: limits.max_lookup_identifiers.to_usize(),
            max_scw_signatures: limits.max_scw_signatures.to_usize(),
        },
    };
    let query = QueryEndpoint {
        primary: primary.clone(),
        reads,
        limits: query_limits(config),
    };
    let subscription = SubscriptionEndpoint {
        streams: streams.clone(),
        keepalive_interval_ms: nonzero(config.streams.keepalive_interval_ms.to_u32()),
    };
    let mut routes = Routes::builder();
    routes
        .add_service(
            PublishServiceServer::new(publish)
                .max_decoding_message_size(max_in)
                .max_encoding_message_size(max_out),
        )
        .add_service(
            QueryServiceServer::new(query)
                .max_decoding_message_size(max_in)
                .max_encoding_message_size(max_out),
        )
        .add_service(subscription)
        .add_service(
            IdentityServiceServer::new(identity)
                .max_decoding_message_size(max_in)
                .max_encoding_message_size(max_out),
        )
        // The public configuration has a cap of its own, and no other.
        .add_service(
            ConfigurationServiceServer::new(configuration).max_decoding_message_size(max_in),
        )
        .add_service(HealthServer::new(health).max_decoding_message_size(max_in));
    Services {
        routes: routes.routes(),
        max_request_bytes: max_in,
        answers: AnswerLimits::default(),
    }
}

fn publish_limits(config: &Config) -> PublishLimits {
    let limits = &config.limits;
    PublishLimits {
        max_request_bytes: limits.max_request_bytes.to_usize(),
        max_envelope_bytes: limits.max_envelope_bytes.to_usize(),
        max_publish_topics: limits.max_publish_topics.to_usize(),
        max_scw_signatures: limits.max_scw_signatures.to_usize(),
        max_identity_entries: limits.max_identity_entries.to_usize(),
        max_duration: config.publishing.max_publish_duration_ms.milliseconds(),
    }
}

fn query_limits(config: &Config) -> QueryLimits {
    let limits = &config.limits;
    QueryLimits {
        max_query_topics: limits.max_query_topics.to_usize(),
        default_query_limit: limits.default_query_limit.to_u32(),
        max_query_limit: limits.max_query_limit.to_u32(),
        max_newest_metadata_topics: limits.max_newest_metadata_topics.to_usize(),
        max_newest_full_topics: limits.max_newest_full_topics.to_usize(),
        max_response_bytes: limits.max_response_bytes.to_usize(),
    }
}

fn retention(config: &Config) -> RetentionPeriods {
    let seconds = |period: u64| i64::try_from(period).unwrap_or(i64::MAX);
    RetentionPeriods {
        group_message_seconds: seconds(config.retention.group_message_seconds.get()),
        welcome_seconds: seconds(config.retention.welcome_seconds.get()),
        key_package_seconds: seconds(config.retention.key_package_seconds.get()),
    }
}

fn stream_settings(config: &Config) -> xmtp_streams::Settings {
    let (streams, limits) = (&config.streams, &config.limits);
    let rate = |per_second, burst| xmtp_streams::Rate {
        per_second: nonzero(per_second),
        burst: nonzero(burst),
    };
    xmtp_streams::Settings {
        poll_interval: streams.poll_interval_ms.milliseconds(),
        wake_on_commit: streams.wake_on_commit.0,
        max_gap_ranges: streams.max_gap_ranges.to_usize(),
        max_barrier_wait: config.publishing.max_barrier_wait_ms.milliseconds(),
        keepalive_interval_ms: nonzero(streams.keepalive_interval_ms.to_u32()),
        max_pong_wait: streams.max_pong_wait_ms.milliseconds(),
        fetch_permits: xmtp_streams::fetch_permits(config.database.max_connections.to_u32()),
        limits: xmtp_streams::Limits {
            max_request_bytes: limits.max_request_bytes.to_usize(),
            max_response_bytes: limits.max_response_bytes.to_usize(),
            max_update_adds: limits.max_update_adds.to_usize(),
            max_update_removes: limits.max_update_removes.to_usize(),
            max_stream_topics: limits.max_stream_topics.to_usize(),
            max_static_topics: limits.max_static_topics.to_usize(),
            updates: rate(
                limits.max_update_frames_per_second.to_u32(),
                limits.max_update_burst.to_u32(),
            ),
            pings: rate(
                limits.max_ping_frames_per_second.to_u32(),
                limits.max_ping_burst.to_u32(),
            ),
        },
    }
}

/// The types of these keys admit no zero.
fn nonzero(value: u32) -> NonZeroU32 {
    NonZeroU32::new(value).unwrap_or(NonZeroU32::MIN)
}
