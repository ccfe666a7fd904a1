//! A collector that speaks the protocol, and does what collectors do when they are in trouble.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{
    LogsService, LogsServiceServer,
};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// What a collector does with what it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Takes it.
    Takes,
    /// Answers that it is overloaded.
    Refuses,
    /// Takes all but one span.
    RejectsOne,
    /// Never answers.
    Hangs,
}

/// What has come.
#[derive(Clone, Default)]
pub(crate) struct Received {
    pub(crate) traces: Vec<ExportTraceServiceRequest>,
    pub(crate) logs: Vec<ExportLogsServiceRequest>,
    pub(crate) metrics: Vec<ExportMetricsServiceRequest>,
}

/// A running collector, gone with the value: its port and all its connections.
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    service: Service,
    runtime: Option<Runtime>,
}

impl Collector {
    pub(crate) fn start(manner: Manner) -> Self {
        Self::on(([127, 0, 0, 1], 0).into(), manner)
    }

    /// One on an address that must be free.
    pub(crate) fn on(address: SocketAddr, manner: Manner) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime can be built");
        let listener = std::net::TcpListener::bind(address).expect("the address is free");
        listener.set_nonblocking(true).expect("set");
        let address = listener.local_addr().expect("it is bound");
        let service = Service {
            manner,
            received: Arc::default(),
        };
        let routes = Server::builder()
            .add_service(TraceServiceServer::new(service.clone()))
            .add_service(LogsServiceServer::new(service.clone()))
            .add_service(
                MetricsServiceServer::new(service.clone()).max_decoding_message_size(64 << 20),
            );
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).expect("it can be polled");
            routes
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await
        });
        Self {
            address,
            service,
            runtime: Some(runtime),
        }
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All that has come so far.
    pub(crate) fn received(&self) -> Received {
        self.service.received().clone()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[derive(Clone)]
struct Service {
    manner: Manner,
    received: Arc<Mutex<Received>>,
}

impl Service {
    fn received(&self) -> MutexGuard<'_, Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn react<T: Default>(&self) -> Result<Response<T>, Status> {
        match self.manner {
            Manner::Takes | Manner::RejectsOne => Ok(Response::new(T::default())),
            Manner::Refuses => Err(Status::resource_exhausted("overloaded")),
            Manner::Hangs => std::future::pending().await,
        }
    }
}

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.received().traces.push(request.into_inner());
        let mut answer: Response<ExportTraceServiceResponse> = self.react().await?;
        if self.manner == Manner::RejectsOne {
            answer.get_mut().partial_success = Some(ExportTracePartialSuccess {
                rejected_spans: 1,
                error_message: "one too many".to_owned(),
            });
        }
        Ok(answer)
    }
}

#[tonic::async_trait]
impl LogsService for Service {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        self.received().logs.push(request.into_inner());
        self.react().await
    }
}

#[tonic::async_trait]
impl MetricsService for Service {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.received().metrics.push(request.into_inner());
        self.react().await
    }
}
