//! A reader of `PromQL` that knows as much as it takes to hold an expression against the catalogue. Prometheus itself
//! judges the syntax, in `ci/rules`.

use std::collections::{BTreeMap, BTreeSet};

use xmtp_telemetry::{Family, Kind};

use crate::telemetry::Catalogue;

const FUNCTIONS: [&str; 6] = [
    "sum",
    "rate",
    "increase",
    "histogram_quantile",
    "max",
    "min",
];
const WORDS: [&str; 4] = ["or", "unless", "offset", "and"];
/// Labels that Prometheus adds to everything that it scrapes.
const TARGET_LABELS: [&str; 2] = ["job", "instance"];

/// The labels of a family with their values.
type Labels = BTreeMap<String, BTreeSet<String>>;

/// Checks that every series, label and label value of an expression is one that a backend of `catalogue` can serve.
pub(super) fn check(catalogue: &Catalogue, expression: &str) -> Result<(), String> {
    let series = series(catalogue);
    let mut rest = expression;
    let mut has_series = false;
    let mut labels_in_use = None;
    let mut grouped: Vec<&str> = Vec::new();
    let mut known = BTreeSet::from(TARGET_LABELS.map(str::to_owned));
    while let Some(first) = rest.chars().next() {
        if !first.is_ascii_alphabetic() {
            match first {
                '{' => {
                    let (matchers, after) = rest[1..].split_once('}').ok_or("an open brace")?;
                    let labels: &Labels = labels_in_use.take().ok_or("matchers of no series")?;
                    check_matchers(matchers, labels)?;
                    rest = after;
                }
                // A range, and a number with its unit.
                '[' => rest = rest.split_once(']').ok_or("an open bracket")?.1,
                '0'..='9' | '$' => {
                    rest = rest.trim_start_matches(|c: char| {
                        c.is_ascii_alphanumeric() || "$_.".contains(c)
                    });
                }
                _ => rest = &rest[first.len_utf8()..],
            }
            continue;
        }
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after;
        if word == "by" {
            let (labels, after) = rest
                .trim_start()
                .strip_prefix('(')
                .and_then(|rest| rest.split_once(')'))
                .ok_or("labels come after by")?;
            grouped.extend(labels.split(',').map(str::trim));
            rest = after;
        } else if FUNCTIONS.contains(&word) || WORDS.contains(&word) {
            // Of the language.
        } else {
            let labels = series.get(word).ok_or(format!("no series {word}"))?;
            known.extend(labels.keys().cloned());
            labels_in_use = Some(labels);
            has_series = true;
        }
    }
    if !has_series {
        return Err("no series".to_owned());
    }
    match grouped.iter().find(|label| !known.contains(**label)) {
        Some(label) => Err(format!("no label {label}")),
        None => Ok(()),
    }
}

fn check_matchers(matchers: &str, labels: &Labels) -> Result<(), String> {
    for matcher in matchers.split(',').map(str::trim) {
        let operator = matcher.find(['=', '!']).ok_or("a matcher has a value")?;
        let (name, value) = matcher.split_at(operator);
        let value = value.trim_start_matches(['=', '!', '~']);
        let values = value.trim_matches('"').split('|');
        if TARGET_LABELS.contains(&name) {
            continue;
        }
        let vocabulary = labels.get(name).ok_or(format!("no label {name}"))?;
        for value in values {
            let prefix = value.strip_suffix(".*");
            let is_known = match prefix {
                Some(prefix) => vocabulary.iter().any(|known| known.starts_with(prefix)),
                None => vocabulary.contains(value),
            };
            if !is_known {
                return Err(format!("{name} is never {value}"));
            }
        }
    }
    Ok(())
}

/// Every name of a series with its labels, as Prometheus stores them, and what it adds itself.
fn series(catalogue: &Catalogue) -> BTreeMap<String, Labels> {
    let mut series = BTreeMap::from([("up".to_owned(), Labels::new())]);
    for family in catalogue.families() {
        let mut labels = labels(catalogue, family);
        let name = family.name();
        if family.kind() == Kind::Histogram {
            series.insert(format!("{name}_count"), labels.clone());
            labels.insert("le".to_owned(), BTreeSet::new());
            series.insert(format!("{name}_bucket"), labels);
        } else {
            series.insert(name.to_owned(), labels);
        }
    }
    series
}

fn labels(catalogue: &Catalogue, family: &'static Family) -> Labels {
    let mut labels = Labels::new();
    for key in catalogue.series(family) {
        for label in key.labels() {
            let values = labels.entry(label.key().to_owned()).or_default();
            values.insert(label.value().to_owned());
        }
    }
    labels
}

#[test]
fn ops_017_an_expression_from_outside_the_catalogue_is_found() {
    let check = |expression| check(&Catalogue::new(&[]), expression);
    for (wrong, reason) in [
        ("xmtp_pool_size > 3", "no series xmtp_pool_size"),
        ("xmtp_tailer_rows > 3", "no series xmtp_tailer_rows"),
        (
            "grpc_server_handling_seconds > 3",
            "no series grpc_server_handling_seconds",
        ),
        (
            "xmtp_tailer_rows_total{source=\"head\"}",
            "source is never head",
        ),
        (
            "xmtp_tailer_rows_total{source=~\"forward|gaps\"}",
            "source is never gaps",
        ),
        ("xmtp_tailer_rows_total{kind=\"gap\"}", "no label kind"),
        ("sum by (kind) (xmtp_tailer_rows_total)", "no label kind"),
        ("3 > 2", "no series"),
    ] {
        assert_eq!(check(wrong), Err(reason.to_owned()), "{wrong}");
    }
    let right =
        "sum by (source, instance) (rate(xmtp_tailer_rows_total{source!=\"gap\"}[5m])) > 0.5";
    assert_eq!(check(right), Ok(()));
}
