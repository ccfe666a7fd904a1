//! `PublishService`.

use std::sync::Arc;

use tonic::{Request, Response, Status};
use xmtp_protocol::proto::xmtp::backend::v1::PublishResponse;
use xmtp_telemetry::{observed, operation};

use super::xmtp::backend::v1::publish_service_server::PublishService;
use crate::publish::Publisher;
use crate::request::PublishRequest;
use crate::{status, wire};

/// Serves publishes.
pub(crate) struct PublishEndpoint(pub(crate) Arc<Publisher>);

#[tonic::async_trait]
impl PublishService for PublishEndpoint {
    async fn publish(
        &self,
        request: Request<PublishRequest>,
    ) -> Result<Response<PublishResponse>, Status> {
        let publish = self.0.publish(request.into_inner());
        let published = observed(operation!("rpc.publish"), publish).await;
        let metadata = published.map_err(|failure| status::publish(&failure))?;
        let envelope_metas = metadata.iter().map(wire::envelope_meta).collect();
        Ok(Response::new(PublishResponse { envelope_metas }))
    }
}
