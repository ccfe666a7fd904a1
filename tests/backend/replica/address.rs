//! An address that can be led to another server, as a name or a floating address can.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Passes connections on. Those that were made before it was led elsewhere stay where they are.
pub(super) struct Address {
    port: u16,
    target: Arc<Mutex<SocketAddr>>,
    /// Ends with this.
    _passing: JoinSet<()>,
}

impl Address {
    pub(super) async fn of(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let target = Arc::new(Mutex::new(target));
        let mut passing = JoinSet::new();
        passing.spawn(pass(listener, Arc::clone(&target)));
        Self {
            port,
            target,
            _passing: passing,
        }
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// Leads what connects from now on to `target`.
    pub(super) fn lead_to(&self, target: SocketAddr) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
    }
}

async fn pass(listener: TcpListener, target: Arc<Mutex<SocketAddr>>) {
    let mut connections = JoinSet::new();
    loop {
        let (mut here, _) = listener.accept().await.expect("connections come");
        let target = *target.lock().unwrap_or_else(PoisonError::into_inner);
        connections.spawn(async move {
            // One that cannot be passed on is closed.
            if let Ok(mut there) = TcpStream::connect(target).await {
                let _ = copy_bidirectional(&mut here, &mut there).await;
            }
        });
    }
}
