//! Clients of the services, over any [`tonic::client::GrpcService`], such as tonic's `Channel` or a
//! gRPC-Web client in a browser.

pub use crate::proto::{
    grpc::health::v1::health_client::HealthClient,
    xmtp::backend::v1::{
        attachment_service_client::AttachmentServiceClient,
        configuration_service_client::ConfigurationServiceClient,
        identity_service_client::IdentityServiceClient,
        notification_service_client::NotificationServiceClient,
        publish_service_client::PublishServiceClient, query_service_client::QueryServiceClient,
        subscription_service_client::SubscriptionServiceClient,
    },
};
