//! A rule, and what rules say often.

/// Who has to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Somebody, now.
    Page,
    /// Somebody, on a working day.
    Warn,
}

impl Severity {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Warn => "warn",
        }
    }
}

/// A rule.
#[derive(Clone, Debug)]
pub struct Alert {
    /// Its name, in words that are run together.
    pub name: &'static str,
    /// What has to hold, in `PromQL`.
    pub expression: String,
    /// Minutes for which it has to hold.
    pub hold: u8,
    /// Who has to look.
    pub severity: Severity,
    /// What is wrong.
    pub summary: &'static str,
    /// What to look at first.
    pub action: &'static str,
}

/// Events of a counter within `window`. A counter of failures has no series before its first event, which an
/// increase alone would not see.
pub fn any(selector: &str, window: &str) -> String {
    format!(
        "sum by (instance) (increase({selector}[{window}])) > 0 \
         or sum by (instance) ({selector} unless {selector} offset {window}) > 0"
    )
}
