//! A metric family: its name, its type, and every series that it can have.

use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Level, Metadata, SharedString, Unit};

static METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// A state.
    Gauge,
    /// Durations, in seconds.
    Histogram,
}

impl Kind {
    /// The word of the Prometheus text format.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// What tells the series of a family apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// One label with a closed vocabulary.
    Words {
        /// Its name.
        name: &'static str,
        /// All that it can say.
        values: &'static [&'static str],
    },
    /// The three labels of the route table, which a build's subsystems extend. Health has no row.
    Rpc,
    /// The label `operation`: the operation spans, which a build's subsystems extend.
    Operation,
}

/// Which series of a family are there, at zero, before anything was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// All.
    Whole,
    /// Those with the first value of the last label: others are many, and most never come.
    FirstValue,
    /// None: the family counts only failures.
    FirstEvent,
}

/// A metric family. A static, and the only way to record in it.
pub struct Family {
    name: &'static str,
    kind: Kind,
    unit: Unit,
    help: &'static str,
    labels: &'static [Label],
    start: Start,
    /// One for each combination of label values, the last label's value varying first.
    keys: OnceLock<Box<[Key]>>,
}

impl Family {
    const fn new(kind: Kind, unit: Unit, name: &'static str, help: &'static str) -> Self {
        Self {
            name,
            kind,
            unit,
            help,
            labels: &[],
            start: Start::Whole,
            keys: OnceLock::new(),
        }
    }

    /// A counter of events.
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Self::new(Kind::Counter, Unit::Count, name, help)
    }

    /// A counter of bytes.
    pub const fn byte_counter(name: &'static str, help: &'static str) -> Self {
        Self::new(Kind::Counter, Unit::Bytes, name, help)
    }

    /// A gauge of items, or of a yes (1) and no (0).
    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self::new(Kind::Gauge, Unit::Count, name, help)
    }

    /// A histogram of seconds.
    pub const fn histogram(name: &'static str, help: &'static str) -> Self {
        Self::new(Kind::Histogram, Unit::Seconds, name, help)
    }

    /// The same with labels, in the order in which they are shown.
    #[must_use]
    pub const fn labelled(mut self, labels: &'static [Label]) -> Self {
        self.labels = labels;
        self
    }

    /// The same with other series at the start.
    #[must_use]
    pub const fn starting(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Its type.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// What its values count.
    pub const fn unit(&self) -> Unit {
        self.unit
    }

    /// What it tells, in a sentence.
    pub const fn help(&self) -> &'static str {
        self.help
    }

    /// Its labels.
    pub const fn labels(&self) -> &'static [Label] {
        self.labels
    }

    /// Its series at the start.
    pub const fn start(&self) -> Start {
        self.start
    }

    /// Counts `events` under the values of its labels.
    pub fn count(&self, values: &[&str], events: u64) {
        if let Some(key) = self.key(values) {
            self.counter_of(key).increment(events);
        }
    }

    /// Sets a gauge.
    pub fn set(&self, values: &[&str], value: f64) {
        if let Some(key) = self.key(values) {
            self.gauge_of(key).set(value);
        }
    }

    /// Changes a gauge by `difference`.
    pub fn add(&self, values: &[&str], difference: f64) {
        if let Some(key) = self.key(values) {
            self.gauge_of(key).increment(difference);
        }
    }

    /// Records a duration.
    pub fn record(&self, values: &[&str], duration: Duration) {
        if let Some(key) = self.key(values) {
            self.histogram_of(key).record(duration);
        }
    }

    /// The counter of one series, for those who keep it. `key` is of this family.
    pub fn counter_of(&self, key: &Key) -> Counter {
        debug_assert!(self.kind == Kind::Counter, "{} is no counter", self.name);
        metrics::with_recorder(|recorder| recorder.register_counter(key, &METADATA))
    }

    /// The gauge of one series, for those who keep it. `key` is of this family.
    pub fn gauge_of(&self, key: &Key) -> Gauge {
        debug_assert!(self.kind == Kind::Gauge, "{} is no gauge", self.name);
        metrics::with_recorder(|recorder| recorder.register_gauge(key, &METADATA))
    }

    /// The histogram of one series, for those who keep it. `key` is of this family.
    pub fn histogram_of(&self, key: &Key) -> Histogram {
        debug_assert!(
            self.kind == Kind::Histogram,
            "{} is no histogram",
            self.name
        );
        metrics::with_recorder(|recorder| recorder.register_histogram(key, &METADATA))
    }

    /// Makes a series known, at zero.
    pub fn register(&self, key: &Key) {
        match self.kind {
            Kind::Counter => drop(self.counter_of(key)),
            Kind::Gauge => drop(self.gauge_of(key)),
            Kind::Histogram => drop(self.histogram_of(key)),
        }
    }

    /// Tells the recorder what it is.
    pub fn describe(&self) {
        let name = KeyName::from_const_str(self.name);
        let (unit, help) = (Some(self.unit), SharedString::const_str(self.help));
        metrics::with_recorder(|recorder| match self.kind {
            Kind::Counter => recorder.describe_counter(name, unit, help),
            Kind::Gauge => recorder.describe_gauge(name, unit, help),
            Kind::Histogram => recorder.describe_histogram(name, unit, help),
        });
    }

    /// The series with these values; `None`, and nothing is recorded, for a value outside the vocabulary
    /// (OPS-017).
    fn key(&self, values: &[&str]) -> Option<&Key> {
        let place = self.place(values);
        debug_assert!(place.is_some(), "{} has no series {values:?}", self.name);
        self.keys().get(place?)
    }

    fn place(&self, values: &[&str]) -> Option<usize> {
        if values.len() != self.labels.len() {
            return None;
        }
        let mut place = 0;
        for (label, value) in self.labels.iter().zip(values) {
            let Label::Words { values, .. } = label else {
                return None;
            };
            place = place * values.len() + values.iter().position(|word| word == value)?;
        }
        Some(place)
    }

    fn keys(&self) -> &[Key] {
        self.keys.get_or_init(|| {
            let mut series: Vec<Vec<metrics::Label>> = vec![Vec::new()];
            for label in self.labels {
                let Label::Words { name, values } = label else {
                    return Box::default();
                };
                let extended = series.iter().flat_map(|before| {
                    values.iter().map(|value| {
                        let mut labels = before.clone();
                        labels.push(metrics::Label::from_static_parts(name, value));
                        labels
                    })
                });
                series = extended.collect();
            }
            series
                .into_iter()
                .map(|labels| Key::from_parts(self.name, labels))
                .collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    use super::*;

    static FAMILY: Family = Family::counter("family_total", "Of this test.").labelled(&[
        Label::Words {
            name: "one",
            values: &["a", "b"],
        },
        Label::Words {
            name: "two",
            values: &["x", "y", "z"],
        },
    ]);

    #[test]
    fn ops_017_every_combination_of_values_is_a_series_of_its_own() {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        metrics::with_local_recorder(&recorder, || {
            for (number, (one, two)) in (1..).zip([
                ("a", "x"),
                ("a", "y"),
                ("a", "z"),
                ("b", "x"),
                ("b", "y"),
                ("b", "z"),
            ]) {
                FAMILY.count(&[one, two], number);
            }
        });
        let mut counted: Vec<(String, u64)> = snapshotter
            .snapshot()
            .into_vec()
            .into_iter()
            .map(|(key, _, _, value)| {
                let values: Vec<&str> = key.key().labels().map(metrics::Label::value).collect();
                let DebugValue::Counter(count) = value else {
                    panic!("it is a counter")
                };
                (values.concat(), count)
            })
            .collect();
        counted.sort();
        let expected = [
            ("ax", 1),
            ("ay", 2),
            ("az", 3),
            ("bx", 4),
            ("by", 5),
            ("bz", 6),
        ];
        assert_eq!(
            counted,
            expected.map(|(name, count)| (name.to_owned(), count))
        );
    }

    #[test]
    fn ops_017_a_value_outside_the_vocabulary_has_no_series() {
        for values in [&["a"][..], &["a", "w"], &["x", "a"], &["a", "x", "x"], &[]] {
            assert_eq!(FAMILY.place(values), None, "{values:?}");
        }
    }
}
