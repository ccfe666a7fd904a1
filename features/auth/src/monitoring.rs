//! What an operator watches authentication with (operations contract, sections 4.7 and 4.8).

use xmtp_server::telemetry::monitoring::{Alert, Group, Severity, lines, rate};

use crate::families::{KEYS, REFRESHES, REJECTIONS};

/// The alert rules.
pub(crate) fn alerts() -> Vec<Alert> {
    let (refreshes, rejections) = (REFRESHES.name(), REJECTIONS.name());
    let attempts = |result| {
        format!("sum by (instance) (increase({refreshes}{{result=\"{result}\"}}[15m])) > 0")
    };
    vec![
        // Fifteen minutes are three fetches at the default interval, and well before the default stale deadline.
        Alert {
            name: "JwksRefreshFailing",
            expression: format!("{} unless {}", attempts("error"), attempts("ok")),
            hold: 0,
            severity: Severity::Page,
            summary: "an instance cannot fetch its signing keys, and stops at auth.jwks_max_stale_seconds",
            action: "the log says why in one word; see whether the issuer can be reached and answers with a JWKS",
        },
        Alert {
            name: "AuthRejectionsHigh",
            expression: format!(
                "sum(rate({rejections}[5m])) / sum(rate(grpc_server_started_total[5m])) > 0.05"
            ),
            hold: 10,
            severity: Severity::Warn,
            summary: "more than 5 % of requests are rejected by authentication",
            action: "the dashboard has rejections by reason; untrusted is a key that is not known here, expired a client \
                     that does not renew its token",
        },
    ]
}

/// The rows of the dashboard.
pub(crate) fn panels() -> Vec<Group> {
    vec![(
        "Authentication",
        vec![
            lines(
                "Rejections by reason",
                "reqps",
                rate(REJECTIONS.name(), "reason"),
                "{{reason}}",
            ),
            lines(
                "Signing keys",
                "short",
                format!("sum by (instance) ({})", KEYS.name()),
                "{{instance}}",
            ),
            lines(
                "Fetches of the JWKS by result",
                "cps",
                rate(REFRESHES.name(), "result"),
                "{{result}}",
            ),
        ],
    )]
}
