//! Requests as they came, for the services whose requests hold lists.
//!
//! An item can be two bytes on the wire and a hundred in memory. Decoded at once, as the library does, a
//! request within its byte limit could take gigabytes; so lists are counted, or taken apart item by item,
//! while they are still bytes.

use std::marker::PhantomData;

use bytes::{Buf, Bytes};
use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use xmtp_protocol::proto::xmtp::backend::v1;

/// The names by which the generated services know their requests.
pub(crate) type PublishRequest = Encoded<v1::PublishRequest>;
pub(crate) type GetInboxIdsRequest = Encoded<v1::GetInboxIdsRequest>;
pub(crate) type VerifySmartContractWalletSignaturesRequest =
    Encoded<v1::VerifySmartContractWalletSignaturesRequest>;
pub(crate) type QueryRequest = Encoded<v1::QueryRequest>;
pub(crate) type QueryNewestRequest = Encoded<v1::QueryNewestRequest>;

/// The bytes are not an encoded message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request cannot be decoded")]
pub(crate) struct Undecodable;

/// A request that is not decoded yet.
pub(crate) struct Encoded<M> {
    bytes: Bytes,
    message: PhantomData<fn() -> M>,
}

impl<M: Message + Default> Encoded<M> {
    /// Decodes the whole message.
    pub(crate) fn decode(self) -> Result<M, Undecodable> {
        M::decode(self.bytes).map_err(|_| Undecodable)
    }

    /// How often the field at the end of `path` occurs; before it stand the numbers of the fields that
    /// hold it.
    pub(crate) fn count(&self, path: &[u32]) -> Result<usize, Undecodable> {
        count(&self.bytes, path)
    }

    /// Bytes of the message on the wire.
    pub(crate) const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Each occurrence of the embedded message `field`. They share the bytes of this one.
    pub(crate) fn items<I>(
        &self,
        field: u32,
    ) -> impl Iterator<Item = Result<Encoded<I>, Undecodable>> {
        let occurrences = Occurrences {
            rest: &self.bytes,
            field,
        };
        occurrences.map(|item| Ok(self.bytes.slice_ref(item?).into()))
    }
}

impl<M> From<Bytes> for Encoded<M> {
    fn from(bytes: Bytes) -> Self {
        Self {
            bytes,
            message: PhantomData,
        }
    }
}

fn count(bytes: &[u8], path: &[u32]) -> Result<usize, Undecodable> {
    let Some((&field, inner)) = path.split_first() else {
        return Ok(1);
    };
    Occurrences { rest: bytes, field }
        .map(|item| count(item?, inner))
        .sum()
}

/// The contents of one length-delimited field, wherever it occurs in a message.
struct Occurrences<'a> {
    rest: &'a [u8],
    field: u32,
}

impl<'a> Occurrences<'a> {
    fn find(&mut self) -> Result<Option<&'a [u8]>, Undecodable> {
        while self.rest.has_remaining() {
            let (field, wire_type) = decode_key(&mut self.rest).map_err(|_| Undecodable)?;
            if field != self.field {
                skip_field(wire_type, field, &mut self.rest, DecodeContext::default())
                    .map_err(|_| Undecodable)?;
                continue;
            }
            if wire_type != WireType::LengthDelimited {
                return Err(Undecodable);
            }
            let length = decode_varint(&mut self.rest).map_err(|_| Undecodable)?;
            let length = usize::try_from(length).map_err(|_| Undecodable)?;
            let (item, rest) = self.rest.split_at_checked(length).ok_or(Undecodable)?;
            self.rest = rest;
            return Ok(Some(item));
        }
        Ok(None)
    }
}

impl<'a> Iterator for Occurrences<'a> {
    type Item = Result<&'a [u8], Undecodable>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.find();
        if found.is_err() {
            self.rest = &[];
        }
        found.transpose()
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use xmtp_protocol::proto::xmtp::backend::v1::subscribe_request::{Request, Update};
    use xmtp_protocol::proto::xmtp::backend::v1::{ClientEnvelope, TopicQuery};

    use super::*;

    const ENVELOPES: u32 = 1;

    fn publish(envelopes: usize) -> Vec<u8> {
        v1::PublishRequest {
            envelopes: vec![ClientEnvelope::default(); envelopes],
        }
        .encode_to_vec()
    }

    fn outcomes(bytes: Vec<u8>) -> Vec<Result<ClientEnvelope, Undecodable>> {
        PublishRequest::from(Bytes::from(bytes))
            .items::<ClientEnvelope>(ENVELOPES)
            .map(|item| item.and_then(Encoded::decode))
            .collect()
    }

    #[test]
    fn items_are_those_of_the_decoded_message_and_other_fields_are_passed_over() {
        let mut bytes = publish(2);
        bytes.extend([0x78, 1, 0x7a, 2, 0x0a, 0x00]);
        bytes.extend(publish(1));
        let whole = PublishRequest::from(Bytes::from(bytes.clone()))
            .decode()
            .unwrap();
        assert_eq!(whole.envelopes.len(), 3);
        assert!(
            outcomes(bytes)
                .into_iter()
                .eq(whole.envelopes.into_iter().map(Ok))
        );
    }

    #[test]
    fn a_broken_item_ends_the_list_as_an_error() {
        // A length beyond the end; a varint where a message belongs; a key cut short; a broken envelope.
        for broken in [&[0x0a, 5, 0][..], &[0x08, 1], &[0x80], &[0x0a, 1, 0x0a]] {
            let bytes = [publish(1), broken.to_vec()].concat();
            let request = PublishRequest::from(Bytes::from(bytes.clone()));
            assert_eq!(request.decode().err(), Some(Undecodable));
            assert_eq!(
                outcomes(bytes),
                [Ok(ClientEnvelope::default()), Err(Undecodable)]
            );
        }
    }

    #[test]
    fn items_inside_items_are_counted_over_all_of_them() {
        let update = v1::SubscribeRequest {
            request: Some(Request::Update(Update {
                id: 7,
                adds: vec![TopicQuery::default(); 3],
                removes: Vec::new(),
            })),
        };
        let once = update.encode_to_vec();
        let twice = [once.clone(), once].concat();
        let request = Encoded::<v1::SubscribeRequest>::from(Bytes::from(twice));
        assert_eq!(request.count(&[1, 2]), Ok(6));
        assert_eq!(request.count(&[1, 3]), Ok(0));
        let broken = Encoded::<v1::SubscribeRequest>::from(Bytes::from_static(&[0x0a, 2, 0x12, 9]));
        assert_eq!(broken.count(&[1, 2]), Err(Undecodable));
    }
}
