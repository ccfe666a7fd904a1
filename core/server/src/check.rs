//! What an operator is told of one thing that was looked at.

use std::fmt;

use serde::Serialize;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What: a fixed word.
    pub name: &'static str,
    /// How it is.
    pub outcome: Outcome,
    /// What was found.
    pub finding: String,
    /// What to do about it; empty where nothing is to be done.
    pub advice: &'static str,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// As it should be.
    Ok,
    /// Serving works, with a risk.
    Warning,
    /// Serving does not work, or loses data.
    Failed,
    /// Could not be looked at, because something before it failed or does not apply.
    Skipped,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, finding) = (self.name, &self.finding);
        write!(f, "{:<8} {name:<20} {finding}", self.outcome.to_string())?;
        if !self.advice.is_empty() {
            write!(f, ": {}", self.advice)?;
        }
        Ok(())
    }
}
