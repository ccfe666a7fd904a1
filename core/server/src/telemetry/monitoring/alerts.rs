//! The alert rules (operations contract, section 4.7). Thresholds are starting points.

use std::fmt::Write;

use super::alert::{Alert, Severity, any};
use crate::subsystem::Subsystem;

/// The 99th percentile of a histogram over 5 minutes, by `labels`.
fn p99(buckets: &str, labels: &str) -> String {
    format!("histogram_quantile(0.99, sum by ({labels}) (rate({buckets}[5m])))")
}

#[expect(clippy::too_many_lines, reason = "it is a table")]
fn of_core() -> Vec<Alert> {
    use Severity::{Page, Warn};
    let alert = |name, expression, hold, severity, summary, action| Alert {
        name,
        expression,
        hold,
        severity,
        summary,
        action,
    };
    vec![
        alert(
            "BackendDown",
            "up{job=\"backend\"} == 0".to_owned(),
            1,
            Page,
            "an instance cannot be scraped",
            "see whether the process runs, and whether its metrics port can be reached",
        ),
        alert(
            "BackendNotReady",
            "xmtp_backend_ready == 0".to_owned(),
            2,
            Page,
            "an instance runs and does not serve",
            "/readyz on the metrics port says what it waits for",
        ),
        alert(
            "TailerNotReady",
            "xmtp_tailer_ready == 0".to_owned(),
            1,
            Page,
            "an instance admits no streams",
            "look at the database: its connections, and transactions that do not end",
        ),
        alert(
            "HighErrorRate",
            "sum(rate(grpc_server_handled_total{grpc_code=~\"Unavailable|Internal|DeadlineExceeded|Unknown\"}[5m])) \
             / sum(rate(grpc_server_started_total[5m])) > 0.02"
                .to_owned(),
            5,
            Page,
            "more than 2 % of requests fail on the side of the server",
            "the dashboard has errors by method and status; then look at xmtp_db_errors_total",
        ),
        alert(
            "DatabaseUnavailable",
            any("xmtp_db_errors_total{kind=\"connection\"}", "5m"),
            2,
            Page,
            "an instance loses connections to the database",
            "run doctor; see whether the database accepts connections and has enough of them",
        ),
        alert(
            "StorageInvariant",
            any("xmtp_db_errors_total{kind=\"invariant\"}", "10m"),
            0,
            Page,
            "what is stored is not as the backend stores it",
            "run doctor; see whether somebody else writes to the database, or it was restored to an earlier time",
        ),
        alert(
            "PublishLatencyHigh",
            format!(
                "{} > 1",
                p99(
                    "grpc_server_handling_seconds_bucket{grpc_method=\"Publish\", grpc_code=\"OK\"}",
                    "le",
                )
            ),
            10,
            Warn,
            "one publish in a hundred takes more than a second",
            "the dashboard has the stages of a publish",
        ),
        alert(
            "QueryLatencyHigh",
            format!(
                "{} > 0.5",
                p99(
                    "grpc_server_handling_seconds_bucket{grpc_method=~\"Query|QueryNewest\", grpc_code=\"OK\"}",
                    "grpc_method, le",
                )
            ),
            10,
            Warn,
            "one query in a hundred takes more than half a second",
            "look at the load of the database",
        ),
        alert(
            "LockWaitHigh",
            format!(
                "{} > 0.5",
                p99(
                    "xmtp_operation_duration_seconds_bucket{operation=\"publish.locks\"}",
                    "le",
                )
            ),
            10,
            Warn,
            "one publish in a hundred waits more than half a second for its locks",
            "inspect counts what waits for locks and transactions that do not end",
        ),
        alert(
            "LeakedTransactions",
            any("xmtp_db_released_open_transactions_total", "10m"),
            0,
            Warn,
            "a transaction was left open and rolled back",
            "nothing is lost; report it with the log around it",
        ),
        alert(
            "TailerRestarting",
            "increase(xmtp_tailer_restarts_total[10m]) > 2".to_owned(),
            0,
            Page,
            "the streams of an instance end again and again",
            "look at the connections of the database, and at xmtp_tailer_gap_ranges",
        ),
        alert(
            "GapRangesGrowing",
            "xmtp_tailer_gap_ranges > 5000".to_owned(),
            5,
            Warn,
            "many ids are neither stored nor known to be unused",
            "a transaction does not end: inspect counts them, pg_stat_activity names them",
        ),
        alert(
            "BarrierStarved",
            "sum by (instance) (increase(xmtp_boundary_advances_total{result=\"lock_timeout\"}[10m])) \
             > sum by (instance) (increase(xmtp_boundary_advances_total{result=\"ok\"}[10m]))"
                .to_owned(),
            0,
            Warn,
            "the allocation boundary hardly advances",
            "a publish does not end: inspect counts transactions that take too long",
        ),
        alert(
            "StreamsFailing",
            "sum(rate(xmtp_stream_ended_total{reason=~\"backpressure|capacity|tailer|database\"}[5m])) > 0.1"
                .to_owned(),
            0,
            Warn,
            "more than one stream in ten seconds ends for want of capacity or of the database",
            "the dashboard has the ends of streams by reason",
        ),
    ]
}

/// The rules of a build: core's, and those of `subsystems`.
pub fn alerts(subsystems: &[Box<dyn Subsystem>]) -> Vec<Alert> {
    let added = subsystems.iter().flat_map(|it| it.telemetry().alerts);
    of_core().into_iter().chain(added).collect()
}

/// A file of the [rules](alerts) for Prometheus.
pub fn alert_rules(subsystems: &[Box<dyn Subsystem>]) -> String {
    let mut file = String::from(PREFACE);
    for alert in alerts(subsystems) {
        // Writing to a string cannot fail.
        let _ = write!(
            file,
            "      - alert: {}\n        expr: {}\n        for: {}m\n        labels:\n          severity: {}\n        \
             annotations:\n          summary: {}\n          action: {}\n",
            alert.name,
            quoted(&alert.expression),
            alert.hold,
            alert.severity.word(),
            quoted(alert.summary),
            quoted(alert.action),
        );
    }
    file
}

/// A scalar of YAML.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

const PREFACE: &str = "\
# Alert rules for Prometheus, written by `ci/generated`; do not edit. The scrape job of the backends is called `backend`.
# Thresholds are starting points. `page` needs somebody at once, `warn` on a working day.
groups:
  - name: xmtp-backend
    rules:
";

#[cfg(test)]
mod tests {
    use super::*;

    /// The contract's table, of the families that core has.
    #[test]
    fn ops_017_alerts_hold_and_call_as_the_contract_says() {
        use Severity::{Page, Warn};
        let alerts = alerts(&[]);
        let rules: Vec<_> = alerts
            .iter()
            .map(|alert| (alert.name, alert.hold, alert.severity))
            .collect();
        let expected = [
            ("BackendDown", 1, Page),
            ("BackendNotReady", 2, Page),
            ("TailerNotReady", 1, Page),
            ("HighErrorRate", 5, Page),
            ("DatabaseUnavailable", 2, Page),
            ("StorageInvariant", 0, Page),
            ("PublishLatencyHigh", 10, Warn),
            ("QueryLatencyHigh", 10, Warn),
            ("LockWaitHigh", 10, Warn),
            ("LeakedTransactions", 0, Warn),
            ("TailerRestarting", 0, Page),
            ("GapRangesGrowing", 5, Warn),
            ("BarrierStarved", 0, Warn),
            ("StreamsFailing", 0, Warn),
        ];
        assert_eq!(rules, expected);
    }
}
