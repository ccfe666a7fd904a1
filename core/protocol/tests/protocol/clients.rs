//! The generated clients: where they call.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use tonic::{
    Code, Status,
    body::Body,
    codegen::{Service, http},
};
use xmtp_protocol::{
    client::{
        AttachmentServiceClient, ConfigurationServiceClient, HealthClient, IdentityServiceClient,
        NotificationServiceClient, PublishServiceClient, QueryServiceClient,
        SubscriptionServiceClient,
    },
    proto::{
        grpc::health::v1::HealthCheckRequest,
        xmtp::backend::v1::{
            CreateUploadRequest, GetConfigurationRequest, GetInboxIdsRequest, PublishRequest,
            QueryRequest, RegisterRequest, SubscribeStaticRequest,
        },
    },
};

/// A server that notes which paths are called and implements none.
#[derive(Clone, Default)]
struct Unimplemented {
    called: Arc<Mutex<Vec<String>>>,
}

impl Service<http::Request<Body>> for Unimplemented {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let path = request.uri().path().to_owned();
        self.called.lock().expect("no call panics").push(path);
        ready(Ok(Status::unimplemented("").into_http()))
    }
}

/// The answer to a call, which is there at once.
fn code<T>(call: impl Future<Output = Result<T, Status>>) -> Option<Code> {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result.err().map(|status| status.code()),
        Poll::Pending => None,
    }
}

#[test]
fn every_client_calls_its_service_over_a_transport_of_the_callers_choice() {
    let server = Unimplemented::default();
    let none = tonic::codegen::tokio_stream::empty;
    let codes = [
        code(QueryServiceClient::new(server.clone()).query(QueryRequest::default())),
        code(PublishServiceClient::new(server.clone()).publish(PublishRequest::default())),
        code(SubscriptionServiceClient::new(server.clone()).subscribe(none())),
        code(
            SubscriptionServiceClient::new(server.clone())
                .subscribe_static(SubscribeStaticRequest::default()),
        ),
        code(
            IdentityServiceClient::new(server.clone()).get_inbox_ids(GetInboxIdsRequest::default()),
        ),
        code(
            ConfigurationServiceClient::new(server.clone())
                .get_configuration(GetConfigurationRequest::default()),
        ),
        code(NotificationServiceClient::new(server.clone()).register(RegisterRequest::default())),
        code(
            AttachmentServiceClient::new(server.clone())
                .create_upload(CreateUploadRequest::default()),
        ),
        code(HealthClient::new(server.clone()).check(HealthCheckRequest::default())),
    ];
    assert_eq!(codes, [Some(Code::Unimplemented); 9]);
    assert_eq!(
        *server.called.lock().expect("no call panics"),
        [
            "/xmtp.backend.v1.QueryService/Query",
            "/xmtp.backend.v1.PublishService/Publish",
            "/xmtp.backend.v1.SubscriptionService/Subscribe",
            "/xmtp.backend.v1.SubscriptionService/SubscribeStatic",
            "/xmtp.backend.v1.IdentityService/GetInboxIds",
            "/xmtp.backend.v1.ConfigurationService/GetConfiguration",
            "/xmtp.backend.v1.NotificationService/Register",
            "/xmtp.backend.v1.AttachmentService/CreateUpload",
            "/grpc.health.v1.Health/Check",
        ]
    );
}
