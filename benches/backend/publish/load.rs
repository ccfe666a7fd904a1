//! Clients that publish over gRPC.

use std::net::SocketAddr;
use std::time::Duration;

use prost::Message;
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

/// The clients.
pub(crate) struct Load(Vec<PublishServiceClient<Channel>>);

impl Load {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let channels = clients::connect(address).await;
        Self(
            channels
                .into_iter()
                .map(PublishServiceClient::new)
                .collect(),
        )
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

async fn publish(mut client: PublishServiceClient<Channel>) {
    let request = PublishRequest {
        envelopes: vec![envelope()],
    };
    let answer = client.publish(request).await.expect("a publish succeeds");
    assert_eq!(answer.into_inner().envelope_metas.len(), 1);
}
