//! The protocol's values, and how fields of spans and events become them.

use std::fmt::Debug;
use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use tracing::field::{Field, Visit};

/// An attribute.
pub(crate) fn attribute(key: impl Into<String>, value: Value) -> KeyValue {
    KeyValue {
        key: key.into(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

/// An attribute that is text.
pub(crate) fn text(key: impl Into<String>, value: impl Into<String>) -> KeyValue {
    attribute(key, Value::StringValue(value.into()))
}

/// Nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanoseconds = since_epoch.map_or(0, |since_epoch| since_epoch.as_nanos());
    u64::try_from(nanoseconds).unwrap_or(u64::MAX)
}

/// Hands each field to a function, by name and value.
pub(crate) struct EachField<F>(pub(crate) F);

impl<F: FnMut(&'static str, Value)> EachField<F> {
    fn give(&mut self, field: &Field, value: Value) {
        (self.0)(field.name(), value);
    }
}

impl<F: FnMut(&'static str, Value)> Visit for EachField<F> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.give(field, Value::DoubleValue(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.give(field, Value::IntValue(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match i64::try_from(value) {
            Ok(value) => self.record_i64(field, value),
            Err(_) => self.record_str(field, &value.to_string()),
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.give(field, Value::BoolValue(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.give(field, Value::StringValue(value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.give(field, Value::StringValue(format!("{value:?}")));
    }
}
