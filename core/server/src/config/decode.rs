//! From the tree to typed sections: a serde deserializer with errors of its own, because a stock
//! one quotes the value that it refuses, and that may be a secret (ARC-101). An error here has the
//! path to the value, and what was expected in its place.

use std::fmt;

use serde::de::value::{BorrowedStrDeserializer, MapAccessDeserializer};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error as _, Expected, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use toml::Value;

use super::error::Refusal;

/// Decodes one value.
pub(super) fn decode<'de, T: Deserialize<'de>>(value: &'de Value) -> Result<T, Error> {
    T::deserialize(Decoder(value))
}

/// One step from a container to a value in it.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Key(String),
    Index(usize),
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
struct Decoder<'de>(&'de Value);

impl<'de> Deserializer<'de> for Decoder<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Integer(number) => visitor.visit_i64(*number),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Boolean(flag) => visitor.visit_bool(*flag),
            Value::Datetime(_) => Err(Error::invalid_type(Unexpected::Other("date"), &visitor)),
            Value::Array(items) => visitor.visit_seq(Items(items.iter().enumerate())),
            Value::Table(table) => visitor.visit_map(Entries {
                rest: table.iter(),
                value: None,
            }),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if !self.0.is_array() {
            return Err(Error::expected("an array"));
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if !self.0.is_table() {
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
        match self.0 {
            Value::String(word) => visitor.visit_enum(BorrowedStrDeserializer::new(word)),
            Value::Table(table) if table.len() == 1 => {
                visitor.visit_enum(MapAccessDeserializer::new(Entries {
                    rest: table.iter(),
                    value: None,
                }))
            }
            _ => Err(Error::expected(&one_of(variants))),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct tuple tuple_struct identifier ignored_any
    }
}

struct Items<'de>(std::iter::Enumerate<std::slice::Iter<'de, Value>>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let Some((index, item)) = self.0.next() else {
            return Ok(None);
        };
        let item = seed.deserialize(Decoder(item));
        item.map(Some)
            .map_err(|error| error.within(Step::Index(index)))
    }
}

struct Entries<'de> {
    rest: toml::map::Iter<'de, String, Value>,
    value: Option<(&'de String, &'de Value)>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Error;

    /// A key that its own type refuses is named by its table alone: whoever swaps the key and the
    /// value of a secret has the secret for a key.
    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        self.value = self.rest.next();
        let Some((key, _)) = self.value else {
            return Ok(None);
        };
        seed.deserialize(BorrowedStrDeserializer::new(key))
            .map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let Some((key, value)) = self.value.take() else {
            return Err(Error::expected("a key before its value"));
        };
        let value = seed.deserialize(Decoder(value));
        value.map_err(|error| error.within(Step::Key(key.clone())))
    }
}
