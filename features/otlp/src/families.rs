//! What this crate records.

use xmtp_telemetry::{Family, Start};

pub(crate) static FAMILIES: [&Family; 1] = [&FAILURES];

pub(crate) static FAILURES: Family = Family::counter(
    "xmtp_telemetry_export_failures_total",
    "Batches of spans, logs or metrics that the collector did not take. Not a count of lost spans.",
)
.starting(Start::FirstEvent);
