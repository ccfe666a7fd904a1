//! What an operator watches chains with (operations contract, sections 4.7 and 4.8).

use xmtp_server::telemetry::monitoring::{Alert, Group, Severity, lines, quantile, rate};

use crate::families::VERIFICATIONS;

/// The alert rules.
pub(crate) fn alerts() -> Vec<Alert> {
    let family = VERIFICATIONS.name();
    vec![Alert {
        name: "ChainRpcFailing",
        expression: format!(
            "sum(rate({family}{{result=\"error\"}}[5m])) / sum(rate({family}[5m])) > 0.1"
        ),
        hold: 5,
        severity: Severity::Warn,
        summary: "one verification of a contract wallet in ten gets no verdict",
        action: "the log names the chain and what is wrong with it; ask its provider",
    }]
}

/// The rows of the dashboard.
pub(crate) fn panels() -> Vec<Group> {
    let verifications = "xmtp_operation_duration_seconds_bucket{operation=\"scw.verify\"}";
    vec![(
        "Chains",
        vec![
            lines(
                "Verifications by result",
                "cps",
                rate(VERIFICATIONS.name(), "result"),
                "{{result}}",
            ),
            lines(
                "Verification, p99, with those from the cache",
                "s",
                quantile("0.99", verifications, "le"),
                "p99",
            ),
        ],
    )]
}
