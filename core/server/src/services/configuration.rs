//! `ConfigurationService`: what this deployment tells its clients (CONF-010).

use tonic::{Request, Response, Status};
use xmtp_protocol::proto::xmtp::backend::v1::{GetConfigurationRequest, GetConfigurationResponse};
use xmtp_telemetry::operation;

use super::xmtp::backend::v1::configuration_service_server::ConfigurationService;

/// Serves the same answer until exit (CONF-012).
pub(crate) struct ConfigurationEndpoint(pub(crate) GetConfigurationResponse);

#[tonic::async_trait]
impl ConfigurationService for ConfigurationEndpoint {
    async fn get_configuration(
        &self,
        _request: Request<GetConfigurationRequest>,
    ) -> Result<Response<GetConfigurationResponse>, Status> {
        let _span = operation!("rpc.get_configuration").entered();
        Ok(Response::new(self.0.clone()))
    }
}
