//! How requests and answers are taken off the wire and put on it, for the generated services and for streams.

use std::marker::PhantomData;

use bytes::Buf;
use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::ProstCodec;

use crate::request::{Encoded, Undecodable};
use crate::status;

/// The buffer of a call's one answer. The second number is the library's own.
fn answer_buffer() -> BufferSettings {
    BufferSettings::new(512, YIELD_THRESHOLD)
}

/// The buffer of a call's requests: what the first of them needs, since an idle stream keeps it.
fn request_buffer() -> BufferSettings {
    BufferSettings::new(0, YIELD_THRESHOLD)
}

const YIELD_THRESHOLD: usize = 32 * 1024;

/// The library's codec, but for requests, which stay [`Encoded`].
pub(crate) struct EncodedCodec<U, M>(PhantomData<fn() -> (U, M)>);

impl<U, M> Default for EncodedCodec<U, M> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<U: Message + Send + 'static, M: 'static> Codec for EncodedCodec<U, Encoded<M>> {
    type Encode = U;
    type Decode = Encoded<M>;
    type Encoder = <ProstCodec<U, ()> as Codec>::Encoder;
    type Decoder = EncodedDecoder<M>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<U, ()>::raw_encoder(answer_buffer())
    }

    fn decoder(&mut self) -> Self::Decoder {
        EncodedDecoder::default()
    }
}

/// Takes a message off the wire.
pub(crate) struct EncodedDecoder<M>(PhantomData<fn() -> M>);

impl<M> Default for EncodedDecoder<M> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<M> Decoder for EncodedDecoder<M> {
    type Item = Encoded<M>;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<Encoded<M>>, Status> {
        Ok(Some(source.copy_to_bytes(source.remaining()).into()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        request_buffer()
    }
}

/// The library's codec for requests that are decoded at once, with our own words for what cannot be.
pub(crate) struct DecodedCodec<U, M>(PhantomData<fn() -> (U, M)>);

impl<U, M> Default for DecodedCodec<U, M> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<U: Message + Send + 'static, M: Message + Default + 'static> Codec for DecodedCodec<U, M> {
    type Encode = U;
    type Decode = M;
    type Encoder = <ProstCodec<U, ()> as Codec>::Encoder;
    type Decoder = DecodedDecoder<M>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<U, ()>::raw_encoder(answer_buffer())
    }

    fn decoder(&mut self) -> Self::Decoder {
        DecodedDecoder(PhantomData)
    }
}

/// Takes a message off the wire, and decodes it.
pub(crate) struct DecodedDecoder<M>(PhantomData<fn() -> M>);

impl<M: Message + Default> Decoder for DecodedDecoder<M> {
    type Item = M;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<M>, Status> {
        let decoded = M::decode(source).map_err(|_| status::undecodable(Undecodable))?;
        Ok(Some(decoded))
    }

    fn buffer_settings(&self) -> BufferSettings {
        request_buffer()
    }
}
