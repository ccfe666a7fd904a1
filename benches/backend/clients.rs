//! As many gRPC clients at once as `pgbench` has.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::future::join_all;
use tonic::transport::{Channel, Endpoint};

/// Clients at once, on either side.
pub(crate) const CLIENTS: usize = 16;

/// Connections that the clients share.
const CONNECTIONS: usize = 4;

/// A channel for each client.
pub(crate) async fn connect(address: SocketAddr) -> Vec<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("a URL");
    let connections = join_all((0..CONNECTIONS).map(|_| endpoint.connect())).await;
    let channels = connections.iter().cycle().take(CLIENTS);
    channels
        .map(|connection| connection.as_ref().expect("it takes connections").clone())
        .collect()
}

/// Lets every client do `call` after `call` for `time`; answers calls a second.
pub(crate) async fn run<C, F>(clients: &[C], time: Duration, call: fn(C) -> F) -> f64
where
    C: Clone + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let begin = Instant::now();
    let clients = clients.iter().cloned().map(|client| {
        tokio::spawn(async move {
            let mut count = 0_u32;
            while begin.elapsed() < time {
                call(client.clone()).await;
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
