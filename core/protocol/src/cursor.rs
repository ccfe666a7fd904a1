//! Sequence ids: positions in the order of stored envelopes.

use std::fmt;

use thiserror::Error;

use crate::proto::xmtp::backend::v1::Cursor;

/// A position in the order of stored envelopes, from 0 to 9223372036854775807 (API-286).
///
/// Unsigned on the wire and signed in the database, it has the values that both can hold. 0 is the
/// start, where no envelope is. `Debug` does not show the value.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId(
    /// Never negative.
    i64,
);

/// A position outside the signed 64-bit range (API-004).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("sequence id exceeds the signed 64-bit range")]
pub struct SequenceIdError;

impl SequenceId {
    /// The position before every envelope.
    pub const START: Self = Self(0);
    /// The last position.
    pub const MAX: Self = Self(i64::MAX);

    /// Reads the cursor of a request, which is the start where it is absent.
    ///
    /// # Errors
    ///
    /// A cursor above [`SequenceId::MAX`].
    pub fn from_cursor(cursor: Option<&Cursor>) -> Result<Self, SequenceIdError> {
        cursor.map_or(Ok(Self::START), |cursor| cursor.sequence_id.try_into())
    }
}

impl TryFrom<u64> for SequenceId {
    type Error = SequenceIdError;

    fn try_from(value: u64) -> Result<Self, SequenceIdError> {
        i64::try_from(value).map(Self).map_err(|_| SequenceIdError)
    }
}

impl TryFrom<i64> for SequenceId {
    type Error = SequenceIdError;

    fn try_from(value: i64) -> Result<Self, SequenceIdError> {
        if value < 0 {
            Err(SequenceIdError)
        } else {
            Ok(Self(value))
        }
    }
}

impl From<SequenceId> for u64 {
    fn from(id: SequenceId) -> Self {
        id.0.cast_unsigned()
    }
}

impl From<SequenceId> for i64 {
    fn from(id: SequenceId) -> Self {
        id.0
    }
}

impl From<SequenceId> for Cursor {
    fn from(id: SequenceId) -> Self {
        Self {
            sequence_id: id.into(),
        }
    }
}

impl fmt::Debug for SequenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SequenceId(..)")
    }
}
