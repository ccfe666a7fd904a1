//! What this crate records.

use xmtp_telemetry::{Family, Label, Start};

use crate::reason::Reason;

pub(crate) static FAMILIES: [&Family; 3] = [&REJECTIONS, &REFRESHES, &KEYS];

pub(crate) static REJECTIONS: Family = Family::counter(
    "xmtp_auth_rejections_total",
    "Requests that authentication rejected, by reason.",
)
.labelled(&[Label::Words {
    name: "reason",
    values: &Reason::WORDS,
}])
.starting(Start::FirstEvent);

pub(crate) static REFRESHES: Family = Family::counter(
    "xmtp_auth_jwks_refresh_total",
    "Attempts to fetch the JWKS, those of the start included, by result.",
)
.labelled(&[Label::Words {
    name: "result",
    values: &["ok", "error"],
}]);

pub(crate) static KEYS: Family = Family::gauge(
    "xmtp_auth_keys",
    "JWT verification keys that are valid now, inline or of the JWKS.",
);
