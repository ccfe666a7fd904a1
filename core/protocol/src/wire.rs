//! Fields of messages that are written by hand. Every field number fits a key of one byte.

use bytes::{BufMut, BytesMut};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

/// Length of a field that holds `len` bytes.
pub fn nested_len(len: usize) -> usize {
    key_len(1) + encoded_len_varint(len as u64) + len
}

/// Opens a field that holds the `len` bytes that follow.
pub fn put_nested(field: u32, len: usize, out: &mut BytesMut) {
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(len as u64, out);
}

/// Writes a field that holds `bytes`.
pub fn put_bytes(field: u32, bytes: &[u8], out: &mut BytesMut) {
    put_nested(field, bytes.len(), out);
    out.put_slice(bytes);
}

/// Length of an implicit integer field, which is left out at zero.
pub fn varint_len(value: u64) -> usize {
    if value == 0 {
        0
    } else {
        key_len(1) + encoded_len_varint(value)
    }
}

/// Writes an implicit integer field, unless it is zero.
pub fn put_varint(field: u32, value: u64, out: &mut BytesMut) {
    if value != 0 {
        encode_key(field, WireType::Varint, out);
        encode_varint(value, out);
    }
}
