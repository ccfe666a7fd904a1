//! What browsers may send and read (contract of the API, section 11.5).

use http::HeaderName;
use tower_http::cors::{AllowHeaders, Any, CorsLayer};

use super::calls::REQUEST_ID;

/// Response headers that scripts may read.
const EXPOSED: [HeaderName; 4] = [
    HeaderName::from_static("grpc-status"),
    HeaderName::from_static("grpc-message"),
    HeaderName::from_static("grpc-status-details-bin"),
    REQUEST_ID,
];

/// Any origin, any method. Requested headers are mirrored: a star would not cover `authorization`.
pub(super) fn layer() -> CorsLayer {
    CorsLayer::new()
        .allow_origin(Any)
        .allow_methods(Any)
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(EXPOSED)
}
