//! Clients that publish over gRPC.

use std::net::SocketAddr;
use std::time::Duration;

use prost::Message;
use tonic::Request;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Channel;
use uuid::Uuid;
use xmtp_protocol::client::PublishServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::{ClientEnvelope, PublishRequest};
use xmtp_test_support::payloads::{ContentType, mls_message};

use crate::clients;

/// With its framing, a message of about 1 KB.
const CIPHERTEXT: [u8; 960] = [0x5a; 960];

/// An application message on a topic that nobody has used.
fn envelope() -> ClientEnvelope {
    let group = Uuid::new_v4().into_bytes();
    mls_message(&group, ContentType::Application, &CIPHERTEXT)
}

/// Bytes of one envelope.
pub(crate) fn envelope_len() -> usize {
    envelope().encoded_len()
}

/// The clients, each with its `authorization`.
pub(crate) struct Load(Vec<Client>);

type Client = (PublishServiceClient<Channel>, Option<AsciiMetadataValue>);

impl Load {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::authorized(address, |_| None).await
    }

    /// Clients of which each sends the same `authorization` with every publish.
    pub(crate) async fn authorized(
        address: SocketAddr,
        authorization: impl Fn(usize) -> Option<AsciiMetadataValue>,
    ) -> Self {
        let channels = clients::connect(address).await;
        let clients = channels
            .into_iter()
            .enumerate()
            .map(|(number, channel)| (PublishServiceClient::new(channel), authorization(number)));
        Self(clients.collect())
    }

    /// Publishes with all clients for `time`; answers publishes a second.
    pub(crate) async fn run(&self, time: Duration) -> f64 {
        clients::run(&self.0, time, publish).await
    }

    /// Publishes `count` times, one after the other.
    pub(crate) async fn publish(&self, count: usize) {
        for _ in 0..count {
            publish(self.0[0].clone()).await;
        }
    }
}

async fn publish((mut client, authorization): Client) {
    let mut request = Request::new(PublishRequest {
        envelopes: vec![envelope()],
    });
    if let Some(authorization) = authorization {
        request
            .metadata_mut()
            .insert("authorization", authorization);
    }
    let answer = client.publish(request).await.expect("a publish succeeds");
    assert_eq!(answer.into_inner().envelope_metas.len(), 1);
}
