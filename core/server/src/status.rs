//! The one place where typed errors become gRPC statuses (API-281).

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use prost::Message;
use prost_types::Any;
use tonic::{Code, Status};
use xmtp_protocol::ValidationError;
use xmtp_protocol::identity::ChainFault;
use xmtp_protocol::proto::google::rpc;
use xmtp_protocol::proto::xmtp::backend::v1::PublishError;
use xmtp_store::{ErrorKind, StoreError};
use xmtp_streams::End;

use crate::publish::{PublishFailure, Refusal};
use crate::request::Undecodable;
use crate::telemetry::families::PUBLISH_REJECTIONS;

/// The answer while the server drains (OPS-007).
pub(crate) const SHUTTING_DOWN: &str = "server is shutting down";

/// A status as the end of an answer that has begun.
pub(crate) fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    if status.add_header(&mut trailers).is_err() {
        let internal = HeaderValue::from(Code::Internal as u16);
        trailers.insert(Status::GRPC_STATUS, internal);
    }
    trailers
}

/// A failed database operation, counted by kind.
pub(crate) fn store(error: &StoreError) -> Status {
    let kind = error.kind().label();
    tracing::error!(%error, kind, "database operation failed");
    xmtp_store::count_error(error.kind());
    match error.kind() {
        ErrorKind::Timeout | ErrorKind::LockTimeout => {
            Status::deadline_exceeded("database operation timed out")
        }
        ErrorKind::PoolTimeout | ErrorKind::Connection | ErrorKind::Other => {
            Status::unavailable("database operation failed")
        }
        ErrorKind::Invariant => Status::internal("storage invariant failed"),
    }
}

/// A request that is no encoded message, or is not framed as one, with the code that the library gives it.
pub(crate) fn undecodable(error: Undecodable) -> Status {
    Status::internal(error.to_string())
}

/// A request that ends before its message.
pub(crate) fn request_missing() -> Status {
    Status::internal("request message is missing")
}

/// A message of a request above `limits.max_request_bytes` (API-282).
pub(crate) fn request_too_long() -> Status {
    Status::out_of_range("request exceeds byte limit")
}

/// A response above `limits.max_response_bytes` (API-283).
pub(crate) fn response_too_long() -> Status {
    Status::out_of_range("response exceeds byte limit")
}

/// An answer for which there is no room among those that peers have still to read: what there is for a caller to do
/// is to try again later, which is what `UNAVAILABLE` says (API-284).
pub(crate) fn answers_unread() -> Status {
    Status::unavailable("too many answers wait to be read")
}

/// The end of an answer of which the peer takes nothing.
pub(crate) fn answer_not_read() -> Status {
    Status::deadline_exceeded("answer was not read in time")
}

/// No verdict on a contract wallet's signature (API-271, ARC-091): what a publish says of it.
pub(crate) fn chain(fault: ChainFault) -> Status {
    Status::unavailable(ValidationError::Unavailable(fault).to_string())
}

/// A failed publish. `INVALID_ARGUMENT` carries the one detail that clients act on (API-223).
pub(crate) fn publish(failure: &PublishFailure) -> Status {
    match failure {
        PublishFailure::Refused { index, refusal } => refused(*index, *refusal),
        PublishFailure::Undecodable(error) => undecodable(*error),
        PublishFailure::VerifierUnavailable => Status::unavailable(failure.to_string()),
        PublishFailure::HistoryMoved => Status::aborted(failure.to_string()),
        PublishFailure::TimedOut => {
            xmtp_store::count_error(ErrorKind::Timeout);
            Status::deadline_exceeded(failure.to_string())
        }
        PublishFailure::Store(error) => store(error),
    }
}

fn refused(index: Option<u32>, refusal: Refusal) -> Status {
    let text = refusal.to_string();
    let detail = PublishError {
        index,
        reason: refusal.reason().into(),
        message: text.clone(),
    };
    PUBLISH_REJECTIONS.count(&[refusal.reason().as_str_name()], 1);
    let status = rpc::Status {
        code: Code::InvalidArgument.into(),
        message: text.clone(),
        details: vec![Any {
            type_url: "type.googleapis.com/xmtp.backend.v1.PublishError".to_owned(),
            value: detail.encode_to_vec(),
        }],
    };
    Status::with_details(
        Code::InvalidArgument,
        text,
        Bytes::from(status.encode_to_vec()),
    )
}

/// The end of a stream. A client's own end is no error and never comes here.
pub(crate) fn stream_end(end: End) -> Status {
    let code = match end {
        End::Client => Code::Cancelled,
        End::Invalid(_) => Code::InvalidArgument,
        End::TooLong(_) => Code::OutOfRange,
        End::RateLimited(_) | End::Backpressure | End::Capacity(_) => Code::ResourceExhausted,
        End::Keepalive => Code::DeadlineExceeded,
        End::Tailer | End::Database(_) | End::Shutdown => Code::Unavailable,
        End::Corrupt | End::Undecodable => Code::Internal,
    };
    Status::new(code, end.to_string())
}
