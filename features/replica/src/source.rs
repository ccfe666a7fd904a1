//! When a replica begins to be read from.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::sleep;
use xmtp_server::config::sections::PostgresUrl;
use xmtp_server::doctor::Check;
use xmtp_server::subsystem::{ReadSource, SubsystemError};
use xmtp_store::{Primary, Reads, SchemaState, StoreError};

use crate::examine::examine;

/// Pause between two looks at a replica that is awaited.
const PAUSE: Duration = Duration::from_millis(100);

/// The configured replica.
pub(crate) struct Replica(pub(crate) PostgresUrl);

impl ReadSource for Replica {
    fn word(&self) -> &'static str {
        "replica"
    }

    fn open<'a>(&'a self, primary: &'a Primary) -> BoxFuture<'a, Result<Reads, SubsystemError>> {
        async move {
            let reads = primary.replica(self.0.secret().clone()).await?;
            await_migrations(&reads).await?;
            Ok(reads)
        }
        .boxed()
    }

    fn examine<'a>(&'a self, primary: &'a Primary) -> BoxFuture<'a, Vec<Check>> {
        examine(primary, self.0.secret()).boxed()
    }
}

/// Waits until the replica shows the schema that the primary has. That it shows the primary's rows as well is proved
/// by the boundary, which the start of streams waits for (ARC-039, ARC-041).
async fn await_migrations(reads: &Reads) -> Result<(), StoreError> {
    tracing::info!("waiting for the replica to show the migrations");
    // It shows only what the primary had at some time, and the primary's schema has been found to be this binary's.
    while reads.schema().await? != SchemaState::Current {
        sleep(PAUSE).await;
    }
    tracing::info!("the replica shows the migrations");
    Ok(())
}
