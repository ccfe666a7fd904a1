//! From the tree to typed sections: a serde deserializer with errors of its own, because a stock
//! one quotes the value that it refuses, and that may be a secret (ARC-101). An error here has the
//! path to the value, and what was expected in its place.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::{BorrowedStrDeserializer, MapAccessDeserializer};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error as _, Expected, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use toml::Value;

use super::error::Refusal;

/// Decodes one value, and finds everything that is wrong with it: what was refused is left out of the
/// next pass, until one succeeds or cannot get further. The value is there where the pass has made one
/// without what was refused.
pub(super) fn decode<'de, T: Deserialize<'de>>(value: &'de Value) -> (Option<T>, Vec<Error>) {
    let mut left_out = LeftOut::default();
    let mut errors = Vec::new();
    loop {
        let decoder = Decoder {
            value,
            left_out: Some(&left_out),
        };
        let error = match T::deserialize(decoder) {
            Ok(found) => return (Some(found), errors),
            Err(error) => error,
        };
        let mut path: Vec<Step> = error.steps().cloned().collect();
        if error.refusal == Refusal::Required {
            // A key that was itself left out has been reported.
            if !left_out.covers(&path) {
                errors.push(error);
            }
            path.pop();
        } else {
            errors.push(error);
        }
        // Nothing is left of the value, or the pass did not mind what it was spared.
        if path.is_empty() || left_out.covers(&path) {
            return (None, errors);
        }
        left_out.add(path);
    }
}

/// One step from a container to a value in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

/// The places in a value that have been refused.
#[derive(Default)]
struct LeftOut {
    whole: bool,
    within: BTreeMap<Step, LeftOut>,
}

impl LeftOut {
    fn add(&mut self, path: Vec<Step>) {
        let place = path
            .into_iter()
            .fold(self, |place, step| place.within.entry(step).or_default());
        place.whole = true;
    }

    /// Whether the place at `path` is one of these, or within one.
    fn covers(&self, path: &[Step]) -> bool {
        self.whole
            || path
                .split_first()
                .and_then(|(step, rest)| Some(self.within.get(step)?.covers(rest)))
                .unwrap_or_default()
    }
}

/// What is left out of the value at `step`.
fn below(left_out: Option<&LeftOut>, step: impl FnOnce() -> Step) -> Option<&LeftOut> {
    left_out
        .filter(|left_out| !left_out.within.is_empty())
        .and_then(|left_out| left_out.within.get(&step()))
}

/// A refusal, and the way from the decoded value to it: innermost step first, as serde unwinds.
#[derive(Clone, Debug)]
pub(super) struct Error {
    steps: Vec<Step>,
    pub(super) refusal: Refusal,
}

impl Error {
    fn new(refusal: Refusal) -> Self {
        Self {
            steps: Vec::new(),
            refusal,
        }
    }

    fn expected(what: &str) -> Self {
        Self::new(Refusal::Expected(what.to_owned()))
    }

    fn within(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Outermost step first.
    pub(super) fn steps(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().rev()
    }
}

impl serde::de::Error for Error {
    /// A message from elsewhere may quote the value, so it is not kept.
    fn custom<T: fmt::Display>(_message: T) -> Self {
        Self::expected("a value of another form")
    }

    fn invalid_type(_found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::expected(&expected.to_string())
    }

    fn invalid_value(_found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::expected(&expected.to_string())
    }

    fn invalid_length(_length: usize, expected: &dyn Expected) -> Self {
        Self::expected(&expected.to_string())
    }

    fn unknown_variant(_found: &str, variants: &'static [&'static str]) -> Self {
        Self::expected(&one_of(variants))
    }

    fn unknown_field(key: &str, known: &'static [&'static str]) -> Self {
        let nearest = nearest(key, known.iter().copied());
        Self::new(Refusal::UnknownKey { nearest }).within(Step::Key(key.to_owned()))
    }

    fn missing_field(key: &'static str) -> Self {
        Self::new(Refusal::Required).within(Step::Key(key.to_owned()))
    }

    fn duplicate_field(key: &'static str) -> Self {
        Self::expected("the key once").within(Step::Key(key.to_owned()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.refusal.fmt(f)
    }
}

impl std::error::Error for Error {}

fn one_of(variants: &[&str]) -> String {
    format!("one of \"{}\"", variants.join("\", \""))
}

/// The known key that `key` most likely was meant to be.
pub(super) fn nearest<'a>(key: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    known
        .map(|known| (strsim::osa_distance(key, known), known))
        .filter(|(distance, _)| distance * 3 <= key.chars().count())
        .min()
        .map(|(_, known)| known.to_owned())
}

#[derive(Clone, Copy)]
struct Decoder<'de, 'l> {
    value: &'de Value,
    left_out: Option<&'l LeftOut>,
}

impl<'de, 'l> Decoder<'de, 'l> {
    fn entries(self, table: &'de toml::Table) -> Entries<'de, 'l> {
        Entries {
            rest: table.iter(),
            value: None,
            left_out: self.left_out,
        }
    }
}

impl<'de> Deserializer<'de> for Decoder<'de, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Integer(number) => visitor.visit_i64(*number),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Boolean(flag) => visitor.visit_bool(*flag),
            Value::Datetime(_) => Err(Error::invalid_type(Unexpected::Other("date"), &visitor)),
            Value::Array(items) => visitor.visit_seq(Items {
                rest: items.iter().enumerate(),
                left_out: self.left_out,
            }),
            Value::Table(table) => visitor.visit_map(self.entries(table)),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if !self.value.is_array() {
            return Err(Error::expected("an array"));
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if !self.value.is_table() {
            return Err(Error::expected("a table"));
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    /// A word, or a table whose one key is the variant.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.value {
            Value::String(word) => visitor.visit_enum(BorrowedStrDeserializer::new(word)),
            Value::Table(table) if table.len() == 1 => {
                visitor.visit_enum(MapAccessDeserializer::new(self.entries(table)))
            }
            _ => Err(Error::expected(&one_of(variants))),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct tuple tuple_struct identifier ignored_any
    }
}

struct Items<'de, 'l> {
    rest: std::iter::Enumerate<std::slice::Iter<'de, Value>>,
    left_out: Option<&'l LeftOut>,
}

impl<'de> SeqAccess<'de> for Items<'de, '_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        for (index, value) in self.rest.by_ref() {
            let left_out = below(self.left_out, || Step::Index(index));
            if left_out.is_some_and(|left_out| left_out.whole) {
                continue;
            }
            let item = seed.deserialize(Decoder { value, left_out });
            return item
                .map(Some)
                .map_err(|error| error.within(Step::Index(index)));
        }
        Ok(None)
    }
}

struct Entries<'de, 'l> {
    rest: toml::map::Iter<'de, String, Value>,
    value: Option<(&'de String, Decoder<'de, 'l>)>,
    left_out: Option<&'l LeftOut>,
}

impl<'de> MapAccess<'de> for Entries<'de, '_> {
    type Error = Error;

    /// A key that its own type refuses is named by its table alone: whoever swaps the key and the
    /// value of a secret has the secret for a key.
    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        for (key, value) in self.rest.by_ref() {
            let left_out = below(self.left_out, || Step::Key(key.clone()));
            if left_out.is_some_and(|left_out| left_out.whole) {
                continue;
            }
            self.value = Some((key, Decoder { value, left_out }));
            return seed
                .deserialize(BorrowedStrDeserializer::new(key))
                .map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let Some((key, value)) = self.value.take() else {
            return Err(Error::expected("a key before its value"));
        };
        let value = seed.deserialize(value);
        value.map_err(|error| error.within(Step::Key(key.clone())))
    }
}
