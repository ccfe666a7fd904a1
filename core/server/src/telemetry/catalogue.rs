//! The catalogue: every metric family of a build, with every series that it can have (OPS-016, OPS-017).
//!
//! It is put together from what the crates of core declare and what the subsystems of the build add. The
//! recorder is described from it, `docs/metrics.md` is written from it, and request metrics and operation
//! durations take their labels from it.

use std::fmt::Write;

use metrics::{Key, Unit};
use metrics_exporter_prometheus::PrometheusHandle;
use xmtp_telemetry::{Family, Kind, Label, Start};

use super::families;
use super::route::{ROUTES, Route};
use crate::subsystem::{Subsystem, TelemetryWords};

/// Bounds of every histogram, in seconds.
pub(super) const BUCKETS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// The operation spans of this crate.
const OPERATIONS: [&str; 10] = [
    "rpc.publish",
    "rpc.query",
    "rpc.query_newest",
    "rpc.get_inbox_ids",
    "rpc.verify_smart_contract_wallet_signatures",
    "rpc.get_configuration",
    "publish.parse_publish",
    "publish.validate_publish",
    "publish.locks",
    "db.commit_publish",
];

/// What the telemetry of a build can say.
#[derive(Clone)]
pub struct Catalogue {
    families: Vec<&'static Family>,
    routes: Vec<Route>,
    operations: Vec<&'static str>,
}

impl Catalogue {
    /// Of core, and of `subsystems`.
    pub fn new(subsystems: &[Box<dyn Subsystem>]) -> Self {
        let mut catalogue = Self {
            families: [
                &families::FAMILIES[..],
                &xmtp_store::FAMILIES,
                &xmtp_streams::FAMILIES,
            ]
            .concat(),
            routes: ROUTES.to_vec(),
            operations: [&OPERATIONS[..], &xmtp_streams::OPERATIONS].concat(),
        };
        for subsystem in subsystems {
            let TelemetryWords {
                families,
                routes,
                operations,
                ..
            } = subsystem.telemetry();
            catalogue.families.extend(families);
            catalogue.routes.extend(routes);
            catalogue.operations.extend(operations);
        }
        catalogue
    }

    /// The families, in the order of the documentation.
    pub fn families(&self) -> &[&'static Family] {
        &self.families
    }

    /// The rows of the route table, without the one for every other path.
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// The names of the operation spans, without those of requests.
    pub fn operations(&self) -> &[&'static str] {
        &self.operations
    }

    /// Every series that a family can have, as sets of label values.
    pub fn series(&self, family: &'static Family) -> Vec<Key> {
        self.product(family, family.labels().len())
    }

    /// Describes every family to the recorder, and makes known what is there from the start.
    pub(super) fn register(&self) {
        for family in &self.families {
            family.describe();
            let whole = match family.start() {
                Start::Whole => family.labels().len(),
                Start::FirstValue => family.labels().len().saturating_sub(1),
                Start::FirstEvent => continue,
            };
            for key in self.product(family, whole) {
                family.register(&key);
            }
        }
    }

    /// The series of `family` with all values of its first `whole` labels, and the first of the others.
    fn product(&self, family: &'static Family, whole: usize) -> Vec<Key> {
        let mut sets: Vec<Vec<metrics::Label>> = vec![Vec::new()];
        for (place, label) in family.labels().iter().enumerate() {
            let mut values = self.values(label);
            if place >= whole {
                values.truncate(1);
            }
            let extend = |before: &Vec<metrics::Label>| {
                let extended = values.iter().map(|labels| [&before[..], labels].concat());
                extended.collect::<Vec<_>>()
            };
            sets = sets.iter().flat_map(extend).collect();
        }
        let key = |labels| Key::from_parts(family.name(), labels);
        sets.into_iter().map(key).collect()
    }

    /// All that a label can say.
    fn values(&self, label: &Label) -> Vec<Vec<metrics::Label>> {
        match *label {
            Label::Words { name, values } => values
                .iter()
                .map(|value| vec![metrics::Label::from_static_parts(name, value)])
                .collect(),
            Label::Rpc => self
                .all_routes()
                .filter(|route| !route.is_health())
                .map(rpc_labels)
                .collect(),
            Label::Operation => self
                .operations
                .iter()
                .copied()
                .chain(self.all_routes().map(Route::name))
                .map(|name| vec![metrics::Label::from_static_parts("operation", name)])
                .collect(),
        }
    }

    /// The rows of the route table, and the one for every other path.
    fn all_routes(&self) -> impl Iterator<Item = Route> {
        self.routes.iter().copied().chain([Route::UNKNOWN])
    }

    /// The metrics in the Prometheus text format. A family that has no series yet is described all the
    /// same, which the library does not do (OPS-016).
    pub fn render(&self, handle: &PrometheusHandle) -> String {
        let mut text = handle.render();
        for family in &self.families {
            let (name, kind) = (family.name(), family.kind().word());
            let described = format!("# TYPE {name} {kind}\n");
            if !text.contains(&described) {
                // Writing to a string cannot fail.
                let _ = write!(text, "# HELP {name} {}\n{described}\n", family.help());
            }
        }
        text
    }

    /// The catalogue as a page of the documentation.
    pub fn markdown(&self) -> String {
        let mut page = String::from(PREFACE);
        for family in &self.families {
            let unit = match (family.kind(), family.unit()) {
                (Kind::Histogram, _) => ", seconds",
                (_, Unit::Bytes) => ", bytes",
                _ => "",
            };
            let labels: Vec<String> = family.labels().iter().map(label_text).collect();
            let labels = if labels.is_empty() {
                "none".to_owned()
            } else {
                labels.join("; ")
            };
            let start = match family.start() {
                Start::Whole => "all series",
                Start::FirstValue => "the series with the first value of the last label",
                Start::FirstEvent => "no series: it counts failures",
            };
            // Writing to a string cannot fail.
            let _ = write!(
                page,
                "\n### `{}`\n\n{}\n\nType: {}{unit}. Labels: {labels}. At the start: {start}.\n",
                family.name(),
                family.help(),
                family.kind().word(),
            );
        }
        page.push_str(
            "\n## RPC\n\n| `grpc_service` | `grpc_method` | `grpc_type` |\n|---|---|---|\n",
        );
        for route in self.all_routes() {
            let health = if route.is_health() {
                " (operation only)"
            } else {
                ""
            };
            let _ = writeln!(
                page,
                "| `{}` | `{}` | `{}`{health} |",
                route.service(),
                route.method(),
                route.kind().word(),
            );
        }
        page.push_str(
            "\n## Operations\n\nThe request spans, each `grpc_service/grpc_method`, and:\n\n",
        );
        for operation in &self.operations {
            let _ = writeln!(page, "- `{operation}`");
        }
        page
    }
}

/// The three labels of a row.
pub(crate) fn rpc_labels(route: Route) -> Vec<metrics::Label> {
    vec![
        metrics::Label::from_static_parts("grpc_service", route.service()),
        metrics::Label::from_static_parts("grpc_method", route.method()),
        metrics::Label::from_static_parts("grpc_type", route.kind().word()),
    ]
}

fn label_text(label: &Label) -> String {
    match label {
        Label::Words { name, values } => {
            let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
            format!("`{name}` ({})", values.join(", "))
        }
        Label::Rpc => "[RPC](#rpc)".to_owned(),
        Label::Operation => "`operation` ([Operations](#operations))".to_owned(),
    }
}

const PREFACE: &str = "\
# Metrics

Written by `ci/generated` from the catalogue of the build with all features; do not edit.

Every family is served on `telemetry.metrics_listen` under `/metrics`, described with its type and help from the start.
Dashboards and alerts can rely on these names, types and label values; nothing else is ever served. Histograms have the
bounds 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5 and 10 seconds.

Requests are counted when they reach the backend, before authentication, and completed when their response body ends,
fails or is cancelled. Health requests and CORS preflights are in no `grpc_server` family.

## Families
";

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ops_016_no_family_route_or_operation_is_listed_twice() {
        let catalogue = Catalogue::new(&[]);
        let names = catalogue.families.iter().map(|family| family.name());
        let paths = catalogue.routes.iter().map(|route| route.path());
        let words: Vec<&str> = names
            .chain(paths)
            .chain(catalogue.operations.iter().copied())
            .collect();
        let distinct: HashSet<&str> = words.iter().copied().collect();
        assert_eq!(distinct.len(), words.len());
    }

    #[test]
    fn the_bounds_of_the_documentation_are_those_of_the_histograms() {
        let words = PREFACE.replace([',', '\n'], " ").replace(" and ", " ");
        let words: Vec<&str> = words.split_whitespace().collect();
        let bounds: Vec<String> = BUCKETS.iter().map(f64::to_string).collect();
        assert!(
            words
                .windows(bounds.len())
                .any(|window| window == &bounds[..])
        );
    }
}
