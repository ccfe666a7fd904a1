//! What an operator watches a backend with: rules for Prometheus and a dashboard for Grafana (operations contract,
//! sections 4.7 and 4.8). Every expression speaks of families of the [catalogue](super::catalogue) alone.

mod alerts;
mod dashboard;
#[cfg(test)]
mod expression;

pub use alerts::{Alert, Severity, alert_rules};
pub use dashboard::{Group, Panel, dashboard, lines, quantile, rate};
