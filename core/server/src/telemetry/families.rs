//! Metric families of the server itself.

use xmtp_telemetry::{Family, Label, Start};

/// What this crate records.
pub(super) const FAMILIES: [&Family; 11] = [
    &STARTED,
    &HANDLED,
    &HANDLING,
    &IN_FLIGHT,
    &REQUEST_BYTES,
    &RESPONSE_BYTES,
    &OPERATION,
    &PUBLISH_ENVELOPES,
    &PUBLISH_REJECTIONS,
    &READY,
    &INFO,
];

/// Every gRPC status, by code.
pub(crate) const GRPC_CODES: [&str; 17] = [
    "OK",
    "Cancelled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

const GRPC_CODE: Label = Label::Words {
    name: "grpc_code",
    values: &GRPC_CODES,
};

pub(crate) static STARTED: Family = Family::counter(
    "grpc_server_started_total",
    "gRPC requests that reached the backend, before authentication.",
)
.labelled(&[Label::Rpc]);

pub(crate) static HANDLED: Family = Family::counter(
    "grpc_server_handled_total",
    "gRPC requests whose response body ended, failed or was cancelled, by status.",
)
.labelled(&[Label::Rpc, GRPC_CODE])
.starting(Start::FirstValue);

pub(crate) static HANDLING: Family = Family::histogram(
    "grpc_server_handling_seconds",
    "Time from a request's arrival to the end of its response body. A stream measures its whole lifetime.",
)
.labelled(&[Label::Rpc, GRPC_CODE])
.starting(Start::FirstValue);

pub(crate) static IN_FLIGHT: Family = Family::gauge(
    "grpc_server_in_flight",
    "gRPC requests whose response body has not ended.",
)
.labelled(&[Label::Rpc]);

pub(crate) static REQUEST_BYTES: Family = Family::byte_counter(
    "grpc_server_request_bytes_total",
    "Request body bytes consumed, gRPC framing included, HTTP headers and trailers excluded.",
)
.labelled(&[Label::Rpc]);

pub(crate) static RESPONSE_BYTES: Family = Family::byte_counter(
    "grpc_server_response_bytes_total",
    "Response body bytes emitted. Emission is not receipt.",
)
.labelled(&[Label::Rpc]);

pub(crate) static OPERATION: Family = Family::histogram(
    "xmtp_operation_duration_seconds",
    "Duration of each operation span; error when the span recorded an error.",
)
.labelled(&[
    Label::Operation,
    Label::Words {
        name: "status",
        values: &["ok", "error"],
    },
])
.starting(Start::FirstValue);

pub(crate) static PUBLISH_ENVELOPES: Family = Family::counter(
    "xmtp_publish_envelopes_total",
    "Envelopes of decoded publishes by outcome; all of a request that fails are rejected.",
)
.labelled(&[Label::Words {
    name: "outcome",
    values: &["stored", "duplicate", "rejected"],
}]);

pub(crate) static PUBLISH_REJECTIONS: Family = Family::counter(
    "xmtp_publish_rejections_total",
    "Publishes rejected by validation, by the reason of their PublishError.",
)
.labelled(&[Label::Words {
    name: "reason",
    values: &[
        "REASON_MALFORMED_PAYLOAD",
        "REASON_INVALID_KEY_PACKAGE",
        "REASON_INVALID_IDENTITY_UPDATE",
        "REASON_INVALID_SIGNATURE",
        "REASON_TOO_LARGE",
        "REASON_HANDLE_TAKEN",
        "REASON_HANDLE_NOT_ALLOWED",
        "REASON_HANDLE_TOO_SOON",
    ],
}])
.starting(Start::FirstEvent);

pub(crate) static READY: Family = Family::gauge(
    "xmtp_backend_ready",
    "1 exactly while health reports SERVING.",
);

pub(crate) static INFO: Family =
    Family::gauge("xmtp_backend_info", "Always 1, with the build version.").labelled(&[
        Label::Words {
            name: "version",
            values: &[VERSION],
        },
    ]);

/// The build version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
