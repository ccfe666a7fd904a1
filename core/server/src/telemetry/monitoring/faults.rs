//! Whether the rules and panels of a build speak of what it serves, and of all of it.

use super::alerts::alerts;
use super::dashboard::groups;
use super::expression;
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
