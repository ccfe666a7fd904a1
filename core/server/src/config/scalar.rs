//! Numbers and switches of the document. A key's type carries its bounds and its default, so that
//! decoding, the published schema and the running program cannot disagree.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use serde::{Deserialize as DeriveDeserialize, Serialize};

/// The largest integer that TOML can write.
pub const MAX_INTEGER: u64 = i64::MAX as u64;

/// The largest number that `GetConfiguration` can publish in 32 bits (CONF-069).
pub const MAX_UINT32: u64 = u32::MAX as u64;

/// An integer from `MIN` to `MAX`, both included. A key without a default leaves `DEFAULT` out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Int<const MIN: u64, const MAX: u64, const DEFAULT: u64 = 0>(u64);

/// A count of at least 1 that fits 32 bits.
pub type Count<const DEFAULT: u64> = Int<1, MAX_UINT32, DEFAULT>;

/// Any number of at least 1.
pub type AtLeastOne<const DEFAULT: u64> = Int<1, MAX_INTEGER, DEFAULT>;

impl<const MIN: u64, const MAX: u64, const DEFAULT: u64> Int<MIN, MAX, DEFAULT> {
    /// `value`, where it is within bounds.
    pub const fn new(value: u64) -> Option<Self> {
        if MIN <= value && value <= MAX {
            Some(Self(value))
        } else {
            None
        }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number in 32 bits; does not compile where `MAX` needs more.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the assertion bounds every value"
    )]
    pub const fn to_u32(self) -> u32 {
        const { assert!(MAX <= MAX_UINT32) };
        self.0 as u32
    }

    /// The number as a size in memory: the largest one where it does not fit.
    pub fn to_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    /// That many milliseconds.
    pub const fn milliseconds(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// That many seconds.
    pub const fn seconds(self) -> Duration {
        Duration::from_secs(self.0)
    }
}

/// Does not compile for a key without a default.
impl<const MIN: u64, const MAX: u64, const DEFAULT: u64> Default for Int<MIN, MAX, DEFAULT> {
    fn default() -> Self {
        const { assert!(MIN <= DEFAULT && DEFAULT <= MAX) };
        Self(DEFAULT)
    }
}

impl<'de, const MIN: u64, const MAX: u64, const DEFAULT: u64> Deserialize<'de>
    for Int<MIN, MAX, DEFAULT>
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bounded<const MIN: u64, const MAX: u64>;

        impl<const MIN: u64, const MAX: u64> Visitor<'_> for Bounded<MIN, MAX> {
            type Value = u64;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an integer from {MIN} to {MAX}")
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<u64, E> {
                u64::try_from(value)
                    .ok()
                    .filter(|value| (MIN..=MAX).contains(value))
                    .ok_or_else(|| E::invalid_value(Unexpected::Signed(value), &self))
            }
        }

        deserializer.deserialize_i64(Bounded::<MIN, MAX>).map(Self)
    }
}

impl<const MIN: u64, const MAX: u64, const DEFAULT: u64> JsonSchema for Int<MIN, MAX, DEFAULT> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Int_{MIN}_{MAX}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

/// A switch that is `DEFAULT` where the document is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, DeriveDeserialize, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Flag<const DEFAULT: bool>(pub bool);

impl<const DEFAULT: bool> Default for Flag<DEFAULT> {
    fn default() -> Self {
        Self(DEFAULT)
    }
}

/// A share from 0 to 1; all by default.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio(f64);

impl Ratio {
    /// The share.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl Default for Ratio {
    fn default() -> Self {
        Self(1.0)
    }
}

impl<'de> Deserialize<'de> for Ratio {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Share;

        impl Visitor<'_> for Share {
            type Value = Ratio;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number from 0 to 1")
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Ratio, E> {
                if (0.0..=1.0).contains(&value) {
                    Ok(Ratio(value))
                } else {
                    Err(E::invalid_value(Unexpected::Float(value), &self))
                }
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Ratio, E> {
                match value {
                    0 => Ok(Ratio(0.0)),
                    1 => Ok(Ratio(1.0)),
                    _ => Err(E::invalid_value(Unexpected::Signed(value), &self)),
                }
            }
        }

        deserializer.deserialize_f64(Share)
    }
}

impl JsonSchema for Ratio {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Ratio".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "minimum": 0, "maximum": 1 })
    }
}
