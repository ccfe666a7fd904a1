//! How long the answer to a statement is waited for, and whether one is owed (ARC-060).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::timeout;

use crate::StoreError;

/// What the network may add to a statement's own bound.
pub(crate) const NETWORK_MARGIN: Duration = Duration::from_secs(1);

/// Waits for an answer to a statement that the server bounds by `statement_timeout`. It does not bound a
/// network, or a host, that swallows statements.
pub(crate) async fn answered<T>(
    statement_timeout: Duration,
    answer: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, StoreError> {
    match timeout(statement_timeout + NETWORK_MARGIN, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(StoreError::timeout("database does not answer")),
    }
}

/// Bounds the answers to one connection's statements, and knows whether it owes one.
#[derive(Clone)]
pub(crate) struct Answers {
    statement_timeout: Duration,
    owed: Arc<AtomicBool>,
}

impl Answers {
    pub(crate) fn new(statement_timeout: Duration) -> Self {
        Self {
            statement_timeout,
            owed: Arc::default(),
        }
    }

    /// Waits for an answer of a bounded length. While this has not ended, or after it was dropped, one is owed.
    pub(crate) async fn wait<T>(
        &self,
        answer: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, StoreError> {
        self.owed.store(true, Ordering::Relaxed);
        let answer = answered(self.statement_timeout, answer).await;
        self.owed.store(false, Ordering::Relaxed);
        answer
    }

    /// Waits for one of many rows, or for more bytes than are worth reading for nobody: dropped meanwhile, the
    /// connection is closed.
    pub(crate) async fn wait_or_close<T>(
        &self,
        answer: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, StoreError> {
        answered(self.statement_timeout, answer).await
    }

    /// Whether somebody gave up waiting, or still waits.
    pub(crate) fn are_owed(&self) -> bool {
        self.owed.load(Ordering::Relaxed)
    }
}
