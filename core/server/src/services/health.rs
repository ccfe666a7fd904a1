//! `grpc.health.v1.Health`: one status for every name (OPS-004).
//!
//! Written here because the library's service has no List and refuses a Watch of an unknown name,
//! which the protocol answers with `SERVICE_UNKNOWN`.

use std::pin::Pin;
use std::sync::Arc;

use futures::{Stream, StreamExt, stream};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use xmtp_protocol::proto::grpc::health::v1::health_check_response::ServingStatus;
use xmtp_protocol::proto::grpc::health::v1::{
    HealthCheckRequest, HealthCheckResponse, HealthListRequest, HealthListResponse,
};

use super::grpc::health::v1::health_server::Health;
use crate::readiness::Readiness;

/// Serves health checks.
pub(crate) struct HealthEndpoint {
    pub(crate) readiness: Readiness,
    /// Full names of the services, without the empty name.
    pub(crate) services: Arc<[&'static str]>,
    /// Ends open watches.
    pub(crate) shutdown: CancellationToken,
}

impl HealthEndpoint {
    fn knows(&self, service: &str) -> bool {
        service.is_empty() || self.services.contains(&service)
    }
}

#[tonic::async_trait]
impl Health for HealthEndpoint {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        if self.knows(&request.get_ref().service) {
            Ok(Response::new(response(self.readiness.is_serving())))
        } else {
            Err(Status::not_found("unknown service"))
        }
    }

    async fn list(
        &self,
        _request: Request<HealthListRequest>,
    ) -> Result<Response<HealthListResponse>, Status> {
        let serving = self.readiness.is_serving();
        let names = std::iter::once("").chain(self.services.iter().copied());
        let statuses = names
            .map(|name| (name.to_owned(), response(serving)))
            .collect();
        Ok(Response::new(HealthListResponse { statuses }))
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let shutdown = self.shutdown.clone();
        if !self.knows(&request.get_ref().service) {
            let unknown = HealthCheckResponse {
                status: ServingStatus::ServiceUnknown.into(),
            };
            let forever = stream::iter([Ok(unknown)]).chain(stream::pending());
            let until = shutdown.cancelled_owned();
            return Ok(Response::new(Box::pin(forever.take_until(until))));
        }
        let mut state = self.readiness.watch();
        state.mark_changed();
        let statuses = stream::unfold((state, shutdown), |(mut state, shutdown)| async move {
            // A change comes before the end, so that every watch sees the drain (contract decisions, 5).
            tokio::select! {
                biased;
                changed = state.changed() => changed.ok()?,
                () = shutdown.cancelled() => return None,
            }
            let serving = *state.borrow_and_update();
            Some((Ok(response(serving)), (state, shutdown)))
        });
        Ok(Response::new(Box::pin(statuses)))
    }
}

fn response(serving: bool) -> HealthCheckResponse {
    let status = if serving {
        ServingStatus::Serving
    } else {
        ServingStatus::NotServing
    };
    HealthCheckResponse {
        status: status.into(),
    }
}
