//! What an operator watches the export with (operations contract, sections 4.7 and 4.8).

use xmtp_server::telemetry::monitoring::{Alert, ERRORS, Group, Severity, any, lines, rate};

use crate::families::FAILURES;

/// The alert rules.
pub(crate) fn alerts() -> Vec<Alert> {
    vec![Alert {
        name: "ExportFailing",
        expression: any(FAILURES.name(), "5m"),
        hold: 10,
        severity: Severity::Warn,
        summary: "an instance cannot send its telemetry to the collector",
        action: "nothing else is affected; see whether the collector at telemetry.otlp_endpoint can be reached and \
                 takes what it gets",
    }]
}

/// A panel for core's row of errors.
pub(crate) fn panels() -> Vec<Group> {
    let failures = lines(
        "Telemetry failures",
        "cps",
        rate(FAILURES.name(), "instance"),
        "{{instance}}",
    );
    vec![(ERRORS, vec![failures])]
}
