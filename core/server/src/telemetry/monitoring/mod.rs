//! What an operator watches a backend with: rules for Prometheus and a dashboard for Grafana (operations contract,
//! sections 4.7 and 4.8). Every expression speaks of families of the [catalogue](super::catalogue) alone.

mod alerts;
mod dashboard;
mod expression;

pub use alerts::{Alert, Severity, alert_rules, alerts, any};
pub use dashboard::{ERRORS, Group, Panel, dashboard, groups, lines, quantile, rate};

use crate::subsystem::Subsystem;
use crate::telemetry::Catalogue;

/// Holds the rules and panels of a build against its catalogue: a line for each expression that speaks of a series, a label
/// or a label value which no such build serves, and for each family that no panel shows (OPS-017).
pub fn faults(subsystems: &[Box<dyn Subsystem>]) -> Vec<String> {
    let catalogue = Catalogue::new(subsystems);
    let groups = groups(subsystems);
    let panels = groups.iter().flat_map(|(_, panels)| panels);
    let queries: Vec<(&str, &str)> = panels
        .flat_map(|panel| {
            panel
                .queries
                .iter()
                .map(|(query, _)| (panel.title, query.as_str()))
        })
        .collect();
    let alerts = alerts(subsystems);
    let rules = alerts
        .iter()
        .map(|alert| (alert.name, alert.expression.as_str()));
    let strange = rules
        .chain(queries.iter().copied())
        .filter_map(|(name, expression)| {
            let reason = expression::check(&catalogue, expression).err()?;
            Some(format!("{name}: {reason}"))
        });
    let names = catalogue.families().iter().map(|family| family.name());
    let unseen = names
        .filter(|name| !queries.iter().any(|(_, query)| query.contains(name)))
        .map(|name| format!("no panel shows {name}"));
    strange.chain(unseen).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ops_017_rules_and_panels_of_the_core_speak_only_of_what_it_serves() {
        assert_eq!(faults(&[]), [""; 0]);
    }
}
