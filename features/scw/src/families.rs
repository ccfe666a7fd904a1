//! What this crate records.

use xmtp_telemetry::{Family, Label};

pub(crate) static FAMILIES: [&Family; 1] = [&VERIFICATIONS];

pub(crate) static VERIFICATIONS: Family = Family::counter(
    "xmtp_scw_verifications_total",
    "Verifications of contract-wallet signatures, those answered from the cache included, by result. An error gave no \
     verdict, nor did what was not waited for after one. What a request gave up waiting for is not counted.",
)
.labelled(&[Label::Words {
    name: "result",
    values: &["valid", "invalid", "error"],
}]);

/// The operation of one verification.
pub(crate) static OPERATIONS: [&str; 1] = ["scw.verify"];
