//! The words of telemetry: metric families and operation spans (OPS section 5).
//!
//! Each crate declares the families that it records, as statics; the server puts them together into one
//! catalogue, from which they are described, documented and tested. Nothing records past a declaration, so
//! a name or a label value outside the catalogue cannot come to be.

mod family;
mod operation;

pub use family::{Family, Kind, Label, Start};
pub use operation::{ERROR, Observed, observed};

/// For [`operation!`].
#[doc(hidden)]
pub use tracing;
