//! When a replica begins to be read from.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::sleep;
use xmtp_server::config::sections::PostgresUrl;
use xmtp_server::doctor::Check;
use xmtp_server::subsystem::ReadSource;
use xmtp_store::{Primary, Reads, SchemaState, StartupCheckError};

use crate::examine::examine;

/// Pause between two looks at a replica that is awaited: each one costs it a connection.
const PAUSE: Duration = Duration::from_millis(500);

/// The configured replica.
pub(crate) struct Replica(pub(crate) PostgresUrl);

impl ReadSource for Replica {
    fn word(&self) -> &'static str {
        "replica"
    }

    fn open<'a>(&'a self, primary: &'a Primary) -> BoxFuture<'a, Result<Reads, StartupCheckError>> {
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

/// Waits until the replica shows this program's schema. That it shows the primary's rows as well is proved by the
/// boundary, which the start of streams waits for (ARC-039, ARC-041).
///
/// The primary had this schema when the start looked at it, and a replica shows only what the primary had at some time:
/// what is missing comes. A schema that this program cannot serve is no past of its own, or a newer program has migrated
/// the primary meanwhile, and waiting mends neither.
async fn await_migrations(reads: &Reads) -> Result<(), StartupCheckError> {
    tracing::info!("waiting for the replica to show the migrations");
    loop {
        match reads.schema().await? {
            SchemaState::Current => break,
            SchemaState::Empty | SchemaState::Older => sleep(PAUSE).await,
            SchemaState::Unusable { version, problem } => {
                return Err(StartupCheckError::Schema { version, problem });
            }
        }
    }
    tracing::info!("the replica shows the migrations");
    Ok(())
}
