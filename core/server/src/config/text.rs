//! Strings of a certain form. As with numbers, the type of a key carries the form: what is parsed,
//! what a refusal says was expected, and the pattern that the schema publishes.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use schemars::{Schema, json_schema};
use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::{Deserialize, Serialize};

/// The form of a string key.
pub trait Form: Sized {
    /// What a refusal says was expected.
    const EXPECTED: &'static str;

    /// A regular expression for exactly what [`Self::parse`] takes, as far as one can say it.
    fn pattern() -> String;

    /// The value, where `text` has the form.
    fn parse(text: &str) -> Option<Self>;
}

/// Decodes a string of the form `T`.
///
/// # Errors
///
/// The value is no string, or has another form.
pub fn decode<'de, D: Deserializer<'de>, T: Form>(deserializer: D) -> Result<T, D::Error> {
    struct Text<T>(PhantomData<T>);

    impl<T: Form> Visitor<'_> for Text<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(T::EXPECTED)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            T::parse(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
        }
    }

    deserializer.deserialize_str(Text(PhantomData))
}

/// The schema of a string of the form `T`.
pub fn schema<T: Form>() -> Schema {
    json_schema!({ "type": "string", "pattern": T::pattern() })
}

/// Implements `Deserialize` and `JsonSchema` for types that have a [`Form`].
#[macro_export]
macro_rules! text_keys {
    ($($form:ident),+) => {$(
        impl<'de> ::serde::Deserialize<'de> for $form {
            fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::config::text::decode(from)
            }
        }

        impl ::schemars::JsonSchema for $form {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($form).into()
            }

            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                $crate::config::text::schema::<Self>()
            }
        }
    )+};
}

/// Free text, which may have come from the environment and so is shown by no `Debug` (ARC-101).
#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Unshown(String);

impl From<&str> for Unshown {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl Deref for Unshown {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Unshown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}
