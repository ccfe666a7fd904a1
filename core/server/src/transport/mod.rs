//! The one port: connections, and the layers that every request passes.
//!
//! Outermost first: [request id](request_id), CORS, gRPC-Web, [deadline](deadline),
//! [drain admission](admission), services. Every answer, an early rejection too, therefore carries a request id and CORS headers, and no body
//! is read before admission (contract of the API, section 11.3).

pub(crate) mod admission;
mod cors;
mod deadline;
mod listener;
mod opening;
mod request_id;
pub(crate) mod streaming;

pub(crate) use admission::{Admission, StreamResponse};
pub(crate) use listener::Listener;

use tonic::body::Body;
use tonic::service::Routes;
use tonic_web::GrpcWebLayer;
use tower::ServiceBuilder;
use tower::util::BoxCloneSyncService;

/// A request as a connection hands it over.
type Incoming = http::Request<hyper::body::Incoming>;

/// The whole stack.
pub(crate) type Stack =
    BoxCloneSyncService<Incoming, http::Response<Body>, std::convert::Infallible>;

/// Puts the layers around the services.
pub(crate) fn stack(routes: Routes, admission: Admission) -> Stack {
    let service = ServiceBuilder::new()
        .map_request(|request: Incoming| request.map(Body::new))
        .layer(request_id::RequestIdLayer)
        .layer(cors::layer())
        .layer(GrpcWebLayer::new())
        .layer(deadline::DeadlineLayer)
        .layer(admission::AdmissionLayer(admission))
        .service(routes.prepare());
    BoxCloneSyncService::new(service)
}
