//! The dashboard (operations contract, section 4.8).

use serde_json::{Value, json};

use super::panel::{ERRORS, Group, Panel, Shape, lines, quantile, rate, value};
use crate::subsystem::Subsystem;

/// Width of a dashboard, in Grafana's columns.
const COLUMNS: usize = 24;
/// Panels of a line.
const PANELS_OF_A_LINE: usize = 3;
const PANEL_HEIGHT: usize = 8;

fn of_core() -> Vec<Group> {
    vec![
        ("Overview", overview()),
        (ERRORS, errors()),
        ("Latency", latency()),
        ("Streams", streams()),
        ("Tailer", tailer()),
        (
            "Publish",
            vec![lines(
                "Envelopes by outcome",
                "cps",
                rate("xmtp_publish_envelopes_total", "outcome"),
                "{{outcome}}",
            )],
        ),
    ]
}

fn overview() -> Vec<Panel> {
    vec![
        value("Version", "xmtp_backend_info", "{{instance}} {{version}}"),
        value("Backend ready", "xmtp_backend_ready", "{{instance}}"),
        value("Tailer ready", "xmtp_tailer_ready", "{{instance}}"),
        value("Scrape", "up{job=\"backend\"}", "{{instance}}"),
        lines(
            "Requests by method",
            "reqps",
            rate("grpc_server_started_total", "grpc_method"),
            "{{grpc_method}}",
        ),
        lines(
            "In flight by type",
            "short",
            "sum by (grpc_type) (grpc_server_in_flight)".to_owned(),
            "{{grpc_type}}",
        ),
        Panel {
            title: "Bytes in and out",
            shape: Shape::Lines,
            unit: "Bps",
            queries: vec![
                (rate("grpc_server_request_bytes_total", "job"), "in"),
                (rate("grpc_server_response_bytes_total", "job"), "out"),
            ],
        },
    ]
}

fn errors() -> Vec<Panel> {
    let failed = "grpc_server_handled_total{grpc_code!~\"OK|InvalidArgument|NotFound|Aborted\"}";
    vec![
        lines(
            "Error ratio",
            "percentunit",
            format!(
                "{} / {}",
                rate(failed, "job"),
                rate("grpc_server_started_total", "job")
            ),
            "failed of started",
        ),
        lines(
            "Errors by status and method",
            "reqps",
            rate(
                "grpc_server_handled_total{grpc_code!=\"OK\"}",
                "grpc_code, grpc_method",
            ),
            "{{grpc_code}} {{grpc_method}}",
        ),
        lines(
            "Publish rejections by reason",
            "cps",
            rate("xmtp_publish_rejections_total", "reason"),
            "{{reason}}",
        ),
        lines(
            "Database errors by kind",
            "cps",
            rate("xmtp_db_errors_total", "kind"),
            "{{kind}}",
        ),
        lines(
            "Transactions found open",
            "cps",
            rate("xmtp_db_released_open_transactions_total", "instance"),
            "{{instance}}",
        ),
    ]
}

fn latency() -> Vec<Panel> {
    let unary = "grpc_server_handling_seconds_bucket{grpc_type=\"unary\", grpc_code=\"OK\"}";
    let operations = "xmtp_operation_duration_seconds_bucket";
    let by_method = |title, share| {
        lines(
            title,
            "s",
            quantile(share, unary, "grpc_method, le"),
            "{{grpc_method}}",
        )
    };
    vec![
        by_method("Unary, median by method", "0.5"),
        by_method("Unary, p99 by method", "0.99"),
        lines(
            "Stages of a publish, p99",
            "s",
            quantile(
                "0.99",
                &format!("{operations}{{operation=~\"publish.*|db.*\"}}"),
                "operation, le",
            ),
            "{{operation}}",
        ),
        lines(
            "Wait for locks, p99",
            "s",
            quantile(
                "0.99",
                &format!("{operations}{{operation=\"publish.locks\"}}"),
                "le",
            ),
            "p99",
        ),
    ]
}

fn streams() -> Vec<Panel> {
    vec![
        lines(
            "Streams by kind",
            "short",
            "sum by (kind) (xmtp_stream_sessions)".to_owned(),
            "{{kind}}",
        ),
        lines(
            "Topics registered",
            "short",
            "sum by (instance) (xmtp_stream_topics_registered)".to_owned(),
            "{{instance}}",
        ),
        lines(
            "Envelopes by phase",
            "cps",
            rate("xmtp_stream_envelopes_sent_total", "phase"),
            "{{phase}}",
        ),
        Panel {
            title: "Frames",
            shape: Shape::Lines,
            unit: "cps",
            queries: vec![
                (
                    rate("xmtp_stream_frames_sent_total", "frame"),
                    "sent {{frame}}",
                ),
                (
                    rate("xmtp_stream_frames_received_total", "frame"),
                    "received {{frame}}",
                ),
            ],
        },
        lines(
            "Interest updates by outcome",
            "cps",
            rate("xmtp_stream_updates_total", "outcome"),
            "{{outcome}}",
        ),
        lines(
            "Ends by reason",
            "cps",
            rate("xmtp_stream_ended_total", "reason"),
            "{{reason}}",
        ),
        lines(
            "Wait for the client to read, p99",
            "s",
            quantile("0.99", "xmtp_stream_outbound_wait_seconds_bucket", "le"),
            "p99",
        ),
        lines(
            "Wait for a fetch permit, p99",
            "s",
            quantile("0.99", "xmtp_stream_fetch_wait_seconds_bucket", "le"),
            "p99",
        ),
    ]
}

fn tailer() -> Vec<Panel> {
    vec![
        lines(
            "Poll, p99",
            "s",
            quantile(
                "0.99",
                "xmtp_operation_duration_seconds_bucket{operation=\"tailer.poll\"}",
                "instance, le",
            ),
            "{{instance}}",
        ),
        lines(
            "Polls by result",
            "cps",
            rate("xmtp_tailer_polls_total", "result"),
            "{{result}}",
        ),
        lines(
            "Rows by source",
            "cps",
            rate("xmtp_tailer_rows_total", "source"),
            "{{source}}",
        ),
        lines(
            "Gap ranges",
            "short",
            "sum by (instance) (xmtp_tailer_gap_ranges)".to_owned(),
            "{{instance}}",
        ),
        lines(
            "Restarts in the last hour",
            "short",
            "sum by (instance) (increase(xmtp_tailer_restarts_total[1h]))".to_owned(),
            "{{instance}}",
        ),
        lines(
            "Advances of the boundary by result",
            "cps",
            rate("xmtp_boundary_advances_total", "result"),
            "{{result}}",
        ),
    ]
}

/// The rows of a build: core's, and what `subsystems` add.
pub fn groups(subsystems: &[Box<dyn Subsystem>]) -> Vec<Group> {
    let mut groups = of_core();
    for (title, panels) in subsystems.iter().flat_map(|it| it.telemetry().panels) {
        match groups.iter_mut().find(|(present, _)| *present == title) {
            Some((_, present)) => present.extend(panels),
            None => groups.push((title, panels)),
        }
    }
    groups
}

/// A dashboard of the [rows](groups) for Grafana, which asks for its data source when it is imported.
pub fn dashboard(subsystems: &[Box<dyn Subsystem>]) -> String {
    let source = json!({ "type": "prometheus", "uid": "${datasource}" });
    let mut panels: Vec<Value> = Vec::new();
    let mut y = 0;
    for (title, group) in groups(subsystems) {
        let position = json!({ "x": 0, "y": y, "w": COLUMNS, "h": 1 });
        panels.push(json!({
            "id": panels.len() + 1,
            "type": "row",
            "title": title,
            "collapsed": false,
            "gridPos": position,
            "panels": [],
        }));
        y += 1;
        let width = COLUMNS / PANELS_OF_A_LINE;
        for (place, panel) in group.iter().enumerate() {
            let position = json!({
                "x": place % PANELS_OF_A_LINE * width,
                "y": y + place / PANELS_OF_A_LINE * PANEL_HEIGHT,
                "w": width,
                "h": PANEL_HEIGHT,
            });
            let targets = panel
                .queries
                .iter()
                .zip('A'..)
                .map(|((expression, legend), id)| {
                    json!({
                        "refId": id.to_string(),
                        "datasource": source,
                        "expr": expression,
                        "legendFormat": legend,
                    })
                });
            let kind = match panel.shape {
                Shape::Lines => "timeseries",
                Shape::Value => "stat",
            };
            panels.push(json!({
                "id": panels.len() + 1,
                "type": kind,
                "title": panel.title,
                "datasource": source,
                "gridPos": position,
                "fieldConfig": { "defaults": { "unit": panel.unit, "min": 0 }, "overrides": [] },
                "options": match panel.shape {
                    Shape::Lines => json!({ "legend": { "displayMode": "list", "placement": "bottom" } }),
                    Shape::Value => json!({ "textMode": "value_and_name" }),
                },
                "targets": targets.collect::<Vec<_>>(),
            }));
        }
        y += group.len().div_ceil(PANELS_OF_A_LINE) * PANEL_HEIGHT;
    }
    let dashboard = json!({
        "uid": "xmtp-backend",
        "title": "XMTP backend",
        "description": "Written by ci/generated; do not edit.",
        "schemaVersion": 39,
        "editable": true,
        "refresh": "30s",
        "time": { "from": "now-3h", "to": "now" },
        "templating": {
            "list": [{ "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus" }],
        },
        "panels": panels,
    });
    format!("{dashboard:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_do_not_overlap() {
        let dashboard: Value = serde_json::from_str(&dashboard(&[])).unwrap();
        let mut taken = std::collections::HashSet::new();
        for panel in dashboard["panels"].as_array().unwrap() {
            let at = |name: &str| panel["gridPos"][name].as_u64().unwrap();
            for x in at("x")..at("x") + at("w") {
                for y in at("y")..at("y") + at("h") {
                    assert!(taken.insert((x, y)), "{}", panel["title"]);
                }
            }
        }
    }
}
