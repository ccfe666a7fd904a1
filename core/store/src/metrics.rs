//! Metric families of the database.

use xmtp_telemetry::{Family, Label, Start};

use crate::ErrorKind;

/// What this crate records.
pub const FAMILIES: [&Family; 2] = [&RELEASED_OPEN_TRANSACTIONS, &ERRORS];

/// Connections that were to return to their pool inside a transaction, and were closed instead. What a client
/// leaves behind when it goes is not counted: it is closed without a return.
pub(crate) static RELEASED_OPEN_TRANSACTIONS: Family = Family::counter(
    "xmtp_db_released_open_transactions_total",
    "Transactions found open and rolled back when a connection returned to its pool.",
)
.starting(Start::FirstEvent);

static ERRORS: Family = Family::counter(
    "xmtp_db_errors_total",
    "Database errors that were mapped to a gRPC status.",
)
.labelled(&[Label::Words {
    name: "kind",
    values: &["timeout", "invariant", "connection", "other"],
}])
.starting(Start::FirstEvent);

/// Counts an error that becomes a status.
pub fn count_error(kind: ErrorKind) {
    ERRORS.count(&[kind.label()], 1);
}
