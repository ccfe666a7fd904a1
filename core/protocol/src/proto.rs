//! The messages of the wire, in one module for each protobuf package, and their descriptors.
//!
//! Fields of type `bytes` are [`bytes::Bytes`]: a message decoded from `Bytes` shares its memory.
//! The `Debug` of a message of an `xmtp` package shows its type alone.

/// The encoded `google.protobuf.FileDescriptorSet` of every schema, imports included, without
/// comments.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

pub use generated::{google, grpc, xmtp};

#[expect(
    missing_docs,
    reason = "the schemas speak for the fields whose names do not"
)]
#[expect(
    clippy::doc_markdown,
    reason = "the comments of the schemas are plain text"
)]
#[cfg_attr(
    feature = "client",
    expect(
        unused_qualifications,
        clippy::allow_attributes_without_reason,
        clippy::missing_errors_doc,
        reason = "tonic generates the clients"
    )
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/wire.rs"));
}

/// Gives types a `Debug` that tells nothing of what they hold.
macro_rules! hide_fields {
    ($($ty:path = $name:literal),+) => {$(
        impl std::fmt::Debug for $ty {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(concat!($name, " { .. }"))
            }
        }
    )+};
}

include!(concat!(env!("OUT_DIR"), "/private_messages.rs"));
