//! Figures, and what is required of them.

use std::time::Duration;

/// Whether every figure is as required.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Good,
    Bad,
}

impl Verdict {
    pub(crate) fn and(self, other: Self) -> Self {
        if self == Self::Good { other } else { self }
    }
}

/// Prints a figure that may be at most `limit`.
pub(crate) fn at_most(name: &str, value: f64, limit: f64) -> Verdict {
    judge(name, value, "at most", limit, value <= limit)
}

/// Prints a figure that has to be at least `limit`.
pub(crate) fn at_least(name: &str, value: f64, limit: f64) -> Verdict {
    judge(name, value, "at least", limit, value >= limit)
}

fn judge(name: &str, value: f64, bound: &str, limit: f64, good: bool) -> Verdict {
    let mark = if good { "" } else { "  MISSED" };
    println!("{name}: {value:.2} ({bound} {limit} is required){mark}");
    if good { Verdict::Good } else { Verdict::Bad }
}

/// The middle one.
pub(crate) fn median(figures: Vec<f64>) -> f64 {
    percentile(figures, 50)
}

/// What `percent` of the figures do not exceed.
pub(crate) fn percentile(mut figures: Vec<f64>, percent: usize) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[(figures.len() - 1) * percent / 100]
}

pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
