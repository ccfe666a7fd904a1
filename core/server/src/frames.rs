//! Frames of streams as gRPC messages, on the wire exactly the messages of the two services.
//!
//! Rows come encoded, and the large ones leave as they came: every stream that gets one sends the same bytes.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use prost::encoding::{encoded_len_varint, key_len};
use smallvec::SmallVec;
use xmtp_protocol::proto::xmtp::backend::v1::{
    Ping, Pong, subscribe_response, subscribe_static_response,
};
use xmtp_protocol::wire::{nested_len, put_bytes, put_nested, put_varint, varint_len};
use xmtp_streams::{Frame, Target};

/// The parts of one message, in their order. Most have one.
pub(crate) type Parts = SmallVec<[Bytes; 1]>;

/// Rows from this length on are parts of their own. One more part is one more HTTP/2 frame, which is what an
/// HTTP/2 frame holds at most by default.
const OWN_PART_BYTES: usize = 16 * 1024;

/// A byte that says that the message is not compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// Encodes a frame as `SubscribeResponse`.
pub(crate) fn subscribe_response(frame: &Frame, keepalive_interval_ms: u32) -> Parts {
    match frame {
        Frame::Started => small(
            1,
            &subscribe_response::Started {
                keepalive_interval_ms,
            },
        ),
        Frame::Applied { id, targets } => numbered_targets(2, *id, targets),
        Frame::Messages(rows) => messages(3, rows),
        Frame::Ping(nonce) => small(4, &Ping { nonce: *nonce }),
        Frame::Pong(nonce) => small(5, &Pong { nonce: *nonce }),
        Frame::StartedStatic(_) | Frame::Keepalive => unreachable!("frames of a static stream"),
    }
}

/// Encodes a frame as `SubscribeStaticResponse`.
pub(crate) fn subscribe_static_response(frame: &Frame, keepalive_interval_ms: u32) -> Parts {
    match frame {
        Frame::StartedStatic(targets) => numbered_targets(1, keepalive_interval_ms.into(), targets),
        Frame::Messages(rows) => messages(2, rows),
        Frame::Keepalive => small(3, &subscribe_static_response::Keepalive {}),
        Frame::Started | Frame::Applied { .. } | Frame::Ping(_) | Frame::Pong(_) => {
            unreachable!("frames of a bidirectional stream")
        }
    }
}

/// Begins a message whose one field, `field`, holds a message of `len` bytes. There is room for `room` of them.
fn begin(field: u32, len: usize, room: usize) -> BytesMut {
    let key = key_len(field) + encoded_len_varint(len as u64);
    let mut out = BytesMut::with_capacity(PREFIX_BYTES + key + room);
    out.put_u8(0);
    let length = u32::try_from(key + len).expect("an admitted frame has a few megabytes");
    out.put_u32(length);
    put_nested(field, len, &mut out);
    out
}

fn small(field: u32, member: &impl Message) -> Parts {
    let len = member.encoded_len();
    let mut out = begin(field, len, len);
    member.encode_raw(&mut out);
    Parts::from_elem(out.freeze(), 1)
}

/// `SubscribeResponse.Applied` and `SubscribeStaticResponse.Started`, which are alike on the wire: a number,
/// then the targets.
fn numbered_targets(field: u32, number: u64, targets: &[Target]) -> Parts {
    const NUMBER: u32 = 1;
    const TARGETS: u32 = 2;
    let targets_len: usize = targets
        .iter()
        .map(|target| nested_len(target_len(target)))
        .sum();
    let len = varint_len(number) + targets_len;
    let mut out = begin(field, len, len);
    put_varint(NUMBER, number, &mut out);
    for target in targets {
        put_nested(TARGETS, target_len(target), &mut out);
        put_target(target, &mut out);
    }
    Parts::from_elem(out.freeze(), 1)
}

/// Bytes of a `CatchupTarget`.
fn target_len(target: &Target) -> usize {
    let topic_len = nested_len(target.topic.as_bytes().len());
    nested_len(topic_len) + varint_len(target.through.into())
}

fn put_target(target: &Target, out: &mut BytesMut) {
    let topic = target.topic.as_bytes();
    put_nested(1, nested_len(topic.len()), out);
    put_bytes(1, topic, out);
    put_varint(2, target.through.into(), out);
}

fn messages(field: u32, rows: &[Bytes]) -> Parts {
    let is_small = |row: &&Bytes| row.len() < OWN_PART_BYTES;
    let len = rows.iter().map(Bytes::len).sum();
    let small: usize = rows.iter().filter(is_small).map(Bytes::len).sum();
    let mut parts = Parts::new();
    let mut out = begin(field, len, small);
    for row in rows {
        if is_small(&row) {
            out.put_slice(row);
        } else {
            parts.push(out.split().freeze());
            parts.push(row.clone());
        }
    }
    parts.push(out.freeze());
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use prost::encoding::encode_varint;
    use xmtp_protocol::proto::xmtp::backend::v1::subscribe_response::{Applied, Response, Started};
    use xmtp_protocol::proto::xmtp::backend::v1::subscribe_static_response as r#static;
    use xmtp_protocol::proto::xmtp::backend::v1::{
        CatchupTarget, ServerEnvelope, SubscribeResponse, SubscribeStaticResponse,
        Topic as WireTopic,
    };
    use xmtp_protocol::{Topic, TopicKind};

    use super::*;

    /// What a client makes of the parts: the message, after a prefix that tells its length.
    fn read<M: Message + Default>(parts: &Parts) -> M {
        let bytes = parts.concat();
        let (prefix, message) = bytes.split_at(PREFIX_BYTES);
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        assert_eq!(prefix, [&[0][..], &length].concat());
        M::decode(message).unwrap()
    }

    fn target(kind: TopicKind, through: u64) -> (Target, CatchupTarget) {
        let topic = Topic::new(kind, &vec![7; kind.identifier_len()]).unwrap();
        let target = Target {
            topic,
            through: through.try_into().unwrap(),
        };
        let expected = CatchupTarget {
            topic: Some(WireTopic {
                topic: Bytes::copy_from_slice(topic.as_bytes()),
            }),
            through_sequence_id: through,
        };
        (target, expected)
    }

    #[test]
    fn api_250_frames_are_the_generated_messages() {
        let (targets, expected): (Vec<_>, Vec<_>) = [
            target(TopicKind::GroupMessage, 0),
            target(TopicKind::Welcome, 1),
            target(TopicKind::IdentityUpdate, i64::MAX as u64),
        ]
        .into_iter()
        .unzip();
        let bidirectional = |id: u64| {
            [
                (
                    Frame::Started,
                    Response::Started(Started {
                        keepalive_interval_ms: 9,
                    }),
                ),
                (
                    Frame::Applied {
                        id,
                        targets: targets.clone(),
                    },
                    Response::Applied(Applied {
                        id,
                        added_targets: expected.clone(),
                    }),
                ),
                (Frame::Ping(id), Response::Ping(Ping { nonce: id })),
                (Frame::Pong(id), Response::Pong(Pong { nonce: id })),
            ]
        };
        for (frame, expected) in [0, 300, u64::MAX].into_iter().flat_map(bidirectional) {
            let response: SubscribeResponse = read(&subscribe_response(&frame, 9));
            assert_eq!(response.response, Some(expected));
        }
        let started = r#static::Started {
            keepalive_interval_ms: 9,
            targets: expected,
        };
        for (frame, expected) in [
            (
                Frame::StartedStatic(targets),
                r#static::Response::Started(started),
            ),
            (
                Frame::Keepalive,
                r#static::Response::Keepalive(r#static::Keepalive {}),
            ),
        ] {
            let response: SubscribeStaticResponse = read(&subscribe_static_response(&frame, 9));
            assert_eq!(response.response, Some(expected));
        }
    }

    /// A row, as an element, whose envelope is unknown bytes of some length.
    fn row(length: usize) -> Bytes {
        let mut out = BytesMut::new();
        let payload = [&[0x7a][..], &varint(length), &vec![1; length]].concat();
        put_bytes(1, &payload, &mut out);
        out.freeze()
    }

    fn varint(number: usize) -> Vec<u8> {
        let mut out = Vec::new();
        encode_varint(number as u64, &mut out);
        out
    }

    #[test]
    fn large_rows_leave_as_they_came_and_small_ones_together() {
        let rows = [10, 20_000, 30, 40, 70_000, 16_384].map(row);
        let frame = Frame::Messages(rows.to_vec());
        let parts = subscribe_response(&frame, 0);
        let shared = |part: &Bytes| rows.iter().any(|row| row.as_ptr() == part.as_ptr());
        assert_eq!(
            parts.iter().map(shared).collect::<Vec<_>>(),
            [false, true, false, true, true]
        );
        let envelopes = vec![ServerEnvelope::default(); rows.len()];
        let response: SubscribeResponse = read(&parts);
        let Some(Response::Messages(messages)) = response.response else {
            panic!("rows were sent");
        };
        assert_eq!(messages.envelopes, envelopes);
        let response: SubscribeStaticResponse = read(&subscribe_static_response(&frame, 0));
        let Some(r#static::Response::Messages(messages)) = response.response else {
            panic!("rows were sent");
        };
        assert_eq!(messages.envelopes, envelopes);
    }
}
