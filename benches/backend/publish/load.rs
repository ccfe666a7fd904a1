//! Clients that publish over gRPC.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::future::join_all;
use prost::Message;
use tonic::transport::{Channel, Endpoint};
use uuid::Uuid;
use xmtp_protocol::client::PublishServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::{ClientEnvelope, PublishRequest};
use xmtp_test_support::payloads::{ContentType, mls_message};

use super::CLIENTS;

/// Connections that the clients share.
const CONNECTIONS: usize = 4;

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
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("a URL");
        let connections = join_all((0..CONNECTIONS).map(|_| endpoint.connect())).await;
        let clients = connections.iter().cycle().take(CLIENTS).map(|connection| {
            let channel = connection.as_ref().expect("the server takes connections");
            PublishServiceClient::new(channel.clone())
        });
        Self(clients.collect())
    }

    /// Publishes with all clients for `time`; answers publishes a second.
    pub(crate) async fn run(&self, time: Duration) -> f64 {
        let begin = Instant::now();
        let clients = self.0.iter().cloned().map(|mut client| {
            tokio::spawn(async move {
                let mut count = 0_u32;
                while begin.elapsed() < time {
                    publish(&mut client).await;
                    count += 1;
                }
                count
            })
        });
        let counts = join_all(clients).await;
        let count: u32 = counts
            .into_iter()
            .map(|count| count.expect("a client ends well"))
            .sum();
        f64::from(count) / begin.elapsed().as_secs_f64()
    }

    /// Publishes `count` times, one after the other.
    pub(crate) async fn publish(&self, count: usize) {
        let mut client = self.0[0].clone();
        for _ in 0..count {
            publish(&mut client).await;
        }
    }
}

async fn publish(client: &mut PublishServiceClient<Channel>) {
    let request = PublishRequest {
        envelopes: vec![envelope()],
    };
    let answer = client.publish(request).await.expect("a publish succeeds");
    assert_eq!(answer.into_inner().envelope_metas.len(), 1);
}
