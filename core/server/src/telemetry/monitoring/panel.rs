//! A panel of the dashboard, and what panels ask for often.

/// What a panel shows.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// Over time.
    Lines,
    /// The last value.
    Value,
}

/// A panel of the dashboard.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What it shows.
    pub title: &'static str,
    pub(super) shape: Shape,
    /// Grafana's word.
    pub(super) unit: &'static str,
    /// Expressions, each with the text of its legend.
    pub(super) queries: Vec<(String, &'static str)>,
}

/// Title of core's row for what goes wrong, which subsystems may add to.
pub const ERRORS: &str = "Errors";

/// A row of panels and its title. What a subsystem adds under the title of a row that is there stands in that row.
pub type Group = (&'static str, Vec<Panel>);

/// A panel of lines over time. `unit` is Grafana's word, `legend` its text for each line.
pub fn lines(
    title: &'static str,
    unit: &'static str,
    expression: String,
    legend: &'static str,
) -> Panel {
    Panel {
        title,
        shape: Shape::Lines,
        unit,
        queries: vec![(expression, legend)],
    }
}

/// A panel of the last value alone.
pub(super) fn value(title: &'static str, expression: &str, legend: &'static str) -> Panel {
    Panel {
        title,
        shape: Shape::Value,
        unit: "short",
        queries: vec![(expression.to_owned(), legend)],
    }
}

/// Events a second, by `labels`.
pub fn rate(selector: &str, labels: &str) -> String {
    format!("sum by ({labels}) (rate({selector}[$__rate_interval]))")
}

/// A quantile of a histogram, by `labels`, of which `le` is one.
pub fn quantile(quantile: &str, buckets: &str, labels: &str) -> String {
    format!("histogram_quantile({quantile}, sum by ({labels}) (rate({buckets}[$__rate_interval])))")
}
