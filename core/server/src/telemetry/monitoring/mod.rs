//! What an operator watches a backend with: rules for Prometheus and a dashboard for Grafana (operations contract,
//! sections 4.7 and 4.8). Every expression speaks of families of the [catalogue](super::catalogue) alone.

mod alert;
mod alerts;
mod dashboard;
mod expression;
mod faults;
mod panel;

pub use alert::{Alert, Severity, any};
pub use alerts::{alert_rules, alerts};
pub use dashboard::{dashboard, groups};
pub use faults::faults;
pub use panel::{ERRORS, Group, Panel, lines, quantile, rate};
