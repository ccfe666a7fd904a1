//! The one port: connections, and the layers that every request passes.
//!
//! Outermost first: [calls], CORS, the [gate] of a subsystem, gRPC-Web,
//! [status capture](status_capture), [deadline], [drain admission](admission), [answers], [framing], services. Every
//! answer, an early rejection too, therefore is counted and carries a request id and CORS headers, and no body is read
//! before admission (contract of the API, section 11.3). What a refused call still sends is [discarded](discard).

pub(crate) mod admission;
mod answers;
mod calls;
mod cors;
mod deadline;
mod discard;
mod framing;
mod gate;
mod listener;
mod opening;
mod status_capture;
pub(crate) mod streaming;

pub(crate) use admission::Admission;
pub(crate) use answers::AnswerLimits;
pub(crate) use calls::{CallLayer, RequestId};
pub(crate) use listener::Listener;

use std::sync::Arc;

use tonic::service::Routes;
use tonic_web::GrpcWebLayer;
use tower::ServiceBuilder;
use tower::util::BoxCloneSyncService;

use crate::subsystem::RequestGate;

/// A request as a connection hands it over.
type Incoming = http::Request<hyper::body::Incoming>;

/// The whole stack.
pub(crate) type Stack =
    BoxCloneSyncService<Incoming, http::Response<calls::Answer>, std::convert::Infallible>;

/// The services, and what they take.
pub(crate) struct Services {
    pub(crate) routes: Routes,
    /// Most bytes of a message of a request.
    pub(crate) max_request_bytes: usize,
    pub(crate) answers: AnswerLimits,
}

/// Puts the layers around the services.
pub(crate) fn stack(
    services: Services,
    calls: CallLayer,
    gate: Option<Arc<dyn RequestGate>>,
    admission: Admission,
) -> Stack {
    let gate = gate.map(|gate| gate::GateLayer {
        identifier: calls.identifier().into(),
        gate,
        admission: admission.clone(),
    });
    let service = ServiceBuilder::new()
        .layer(calls)
        .layer(cors::CorsLayer)
        .option_layer(gate)
        .layer(GrpcWebLayer::new())
        .layer(status_capture::StatusCaptureLayer)
        .layer(deadline::DeadlineLayer)
        .layer(admission::AdmissionLayer(admission))
        .layer(answers::AnswersLayer::new(services.answers))
        .layer(framing::FramingLayer {
            max_request_bytes: services.max_request_bytes,
        })
        .service(services.routes.prepare());
    BoxCloneSyncService::new(service)
}
