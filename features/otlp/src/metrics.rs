//! Metrics on their way to the collector: what `/metrics` shows at the same moment, in the protocol's words. So both tell
//! the same totals, and nothing is recorded twice (operations contract, section 8.3).

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
    metric,
};

use crate::attributes::text;

/// Every family that has a series, from the Prometheus text format as the recorder writes it: families one after the
/// other, and in a histogram the buckets of a series before its sum and its count. All of them count from
/// `start_ns`.
pub(crate) fn metrics(exposition: &str, start_ns: u64, now_ns: u64) -> Vec<Metric> {
    let time = (start_ns, now_ns);
    let mut families: Vec<Metric> = Vec::new();
    let mut help = "";
    let mut point = HistogramDataPoint::default();
    for line in exposition.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some(typed) = line.strip_prefix("# TYPE ") {
            families.extend(family(typed, help));
        } else if let Some(family) = families.last_mut()
            && let Some(sample) = Sample::parse(line)
        {
            match &mut family.data {
                Some(metric::Data::Sum(sum)) => sum.data_points.extend(number(&sample, time)),
                Some(metric::Data::Gauge(gauge)) => gauge.data_points.extend(number(&sample, time)),
                Some(metric::Data::Histogram(histogram)) => {
                    let part = sample.name.strip_prefix(&*family.name);
                    if bucket(&mut point, part.unwrap_or_default(), &sample) {
                        let mut point = std::mem::take(&mut point);
                        (point.start_time_unix_nano, point.time_unix_nano) = time;
                        histogram.data_points.push(point);
                    }
                }
                _ => {}
            }
        }
    }
    families.retain(|family| match &family.data {
        Some(metric::Data::Sum(sum)) => !sum.data_points.is_empty(),
        Some(metric::Data::Gauge(gauge)) => !gauge.data_points.is_empty(),
        Some(metric::Data::Histogram(histogram)) => !histogram.data_points.is_empty(),
        _ => false,
    });
    families
}

/// A family without series, from its name and its type.
fn family(typed: &str, help: &str) -> Option<Metric> {
    let (name, kind) = typed.split_once(' ')?;
    let cumulative = AggregationTemporality::Cumulative.into();
    let data = match kind {
        "counter" => metric::Data::Sum(Sum {
            aggregation_temporality: cumulative,
            is_monotonic: true,
            ..Sum::default()
        }),
        "gauge" => metric::Data::Gauge(Gauge::default()),
        "histogram" => metric::Data::Histogram(Histogram {
            aggregation_temporality: cumulative,
            ..Histogram::default()
        }),
        _ => return None,
    };
    Some(Metric {
        name: name.to_owned(),
        description: help.to_owned(),
        unit: unit(name).to_owned(),
        data: Some(data),
        ..Metric::default()
    })
}

/// The unit, which the names of families say.
fn unit(name: &str) -> &'static str {
    if name.ends_with("_seconds") {
        "s"
    } else if name.ends_with("_bytes_total") {
        "By"
    } else {
        ""
    }
}

/// `name{label="value",...} value`. Values of labels are words, and need no escapes.
struct Sample<'t> {
    name: &'t str,
    labels: &'t str,
    value: &'t str,
}

impl<'t> Sample<'t> {
    fn parse(line: &'t str) -> Option<Self> {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        Some(Self {
            name,
            labels: labels.strip_suffix('}')?,
            value,
        })
    }

    fn labels(&self) -> impl Iterator<Item = (&'t str, &'t str)> + use<'t> {
        let labels = self.labels.split("\",").filter(|label| !label.is_empty());
        labels.filter_map(|label| label.trim_end_matches('"').split_once("=\""))
    }

    fn attributes(&self) -> Vec<KeyValue> {
        let labels = self.labels().filter(|(name, _)| *name != "le");
        labels.map(|(name, value)| text(name, value)).collect()
    }
}

fn number(sample: &Sample<'_>, (start_ns, now_ns): (u64, u64)) -> Option<NumberDataPoint> {
    let value = match sample.value.parse() {
        Ok(whole) => Value::AsInt(whole),
        Err(_) => Value::AsDouble(sample.value.parse().ok()?),
    };
    Some(NumberDataPoint {
        attributes: sample.attributes(),
        start_time_unix_nano: start_ns,
        time_unix_nano: now_ns,
        value: Some(value),
        ..NumberDataPoint::default()
    })
}

/// Takes one line of a histogram; whether it was the last of its series. `count` and `bucket_counts` hold what is
/// below a bound, as the text has it, until the next bound shows what is between the two.
fn bucket(point: &mut HistogramDataPoint, part: &str, sample: &Sample<'_>) -> bool {
    match part {
        "_bucket" => {
            let below: u64 = sample.value.parse().unwrap_or_default();
            point.bucket_counts.push(below.saturating_sub(point.count));
            point.count = below;
            let bound = sample.labels().find(|(name, _)| *name == "le");
            let bound = bound.and_then(|(_, bound)| bound.parse::<f64>().ok());
            point
                .explicit_bounds
                .extend(bound.filter(|bound| bound.is_finite()));
            false
        }
        "_sum" => {
            point.sum = sample.value.parse().ok();
            false
        }
        "_count" => {
            point.count = sample.value.parse().unwrap_or_default();
            point.attributes = sample.attributes();
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPOSITION: &str = "\
# HELP calls_total Calls, by what they ask for.
# TYPE calls_total counter
calls_total{a=\"x\",b=\"y\"} 3
calls_total{a=\"z\",b=\"y\"} 0

# HELP open Open ones.
# TYPE open gauge
open 2.5

# HELP took_seconds How long.
# TYPE took_seconds histogram
took_seconds_bucket{a=\"x\",le=\"0.5\"} 1
took_seconds_bucket{a=\"x\",le=\"1\"} 4
took_seconds_bucket{a=\"x\",le=\"+Inf\"} 6
took_seconds_sum{a=\"x\"} 12.25
took_seconds_count{a=\"x\"} 6
took_seconds_bucket{a=\"z\",le=\"0.5\"} 0
took_seconds_bucket{a=\"z\",le=\"1\"} 0
took_seconds_bucket{a=\"z\",le=\"+Inf\"} 1
took_seconds_sum{a=\"z\"} 7
took_seconds_count{a=\"z\"} 1

# HELP sent_bytes_total Never yet.
# TYPE sent_bytes_total counter

";

    #[test]
    fn every_series_becomes_a_point_and_what_has_none_is_left_out() {
        let families = metrics(EXPOSITION, 1, 2);
        let names: Vec<&str> = families.iter().map(|family| &*family.name).collect();
        assert_eq!(names, ["calls_total", "open", "took_seconds"]);
        assert_eq!(families[0].description, "Calls, by what they ask for.");
        let units: Vec<&str> = families.iter().map(|family| &*family.unit).collect();
        assert_eq!(units, ["", "", "s"]);
        assert_eq!(unit("sent_bytes_total"), "By");

        let Some(metric::Data::Sum(calls)) = &families[0].data else {
            panic!("a counter: {families:?}");
        };
        assert!(calls.is_monotonic);
        assert_eq!(
            calls.aggregation_temporality(),
            AggregationTemporality::Cumulative
        );
        let point = NumberDataPoint {
            attributes: vec![text("a", "x"), text("b", "y")],
            start_time_unix_nano: 1,
            time_unix_nano: 2,
            value: Some(Value::AsInt(3)),
            ..NumberDataPoint::default()
        };
        assert_eq!(calls.data_points[0], point);
        assert_eq!(calls.data_points.len(), 2);

        let Some(metric::Data::Gauge(open)) = &families[1].data else {
            panic!("a gauge: {families:?}");
        };
        assert_eq!(open.data_points[0].value, Some(Value::AsDouble(2.5)));
        assert!(open.data_points[0].attributes.is_empty());

        let Some(metric::Data::Histogram(took)) = &families[2].data else {
            panic!("a histogram: {families:?}");
        };
        let point = HistogramDataPoint {
            attributes: vec![text("a", "x")],
            start_time_unix_nano: 1,
            time_unix_nano: 2,
            count: 6,
            sum: Some(12.25),
            bucket_counts: vec![1, 3, 2],
            explicit_bounds: vec![0.5, 1.0],
            ..HistogramDataPoint::default()
        };
        assert_eq!(took.data_points[0], point);
        assert_eq!(
            took.data_points[1].bucket_counts,
            [0, 0, 1],
            "series do not mix"
        );
    }
}
