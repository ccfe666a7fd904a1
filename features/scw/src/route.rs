//! The way to one chain. Every answer is held against what was asked; what does not fit is no answer.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use alloy_primitives::{Bytes, U64};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::{Instant, timeout};
use xmtp_https::{Endpoint, Fault};
use xmtp_protocol::identity::{Block, ChainFault};

use crate::config::caip_2;
use crate::rpc::{self, Data};
use crate::trouble::Trouble;

/// One question, with the wait for its turn.
pub(crate) const MAX_DURATION: Duration = Duration::from_secs(10);

/// Questions to one chain at the same time. Those of one chain do not hold up those of another.
pub(crate) const MAX_QUESTIONS: usize = 16;

/// Most bytes of an answer. The longest is a block with the hashes of its transactions, 69 bytes each: this is some
/// thirty thousand of them.
pub(crate) const MAX_ANSWER_BYTES: usize = 2 << 20;

/// How long a head stays known. Behind the address of a provider are many nodes, and some lag.
const HEAD_MEMORY: Duration = Duration::from_mins(1);

/// Time between two lines of the log about one chain.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// A chain, through its provider.
pub(crate) struct Route {
    chain_id: u64,
    provider: Endpoint,
    turns: Semaphore,
    /// Set once the provider has said that it serves this chain.
    is_of_chain: OnceCell<()>,
    /// The greatest head of late, and when it was seen.
    head: Mutex<Option<(Block, Instant)>>,
    logged: Mutex<Option<Instant>>,
}

/// A block, as far as it matters here.
#[derive(Deserialize)]
struct Header {
    number: U64,
    timestamp: U64,
}

impl From<Header> for Block {
    fn from(header: Header) -> Self {
        Self {
            number: header.number.to(),
            timestamp: header.timestamp.to(),
        }
    }
}

impl Route {
    /// To the chain `eip155:<chain_id>`.
    pub(crate) fn new(chain_id: u64, provider: Endpoint) -> Self {
        Self {
            chain_id,
            provider,
            turns: Semaphore::new(MAX_QUESTIONS),
            is_of_chain: OnceCell::new(),
            head: Mutex::new(None),
            logged: Mutex::new(None),
        }
    }

    /// The number of the latest block.
    pub(crate) async fn latest(&self) -> Result<u64, ChainFault> {
        let number: U64 = self.answer("eth_blockNumber", || json!([])).await?;
        Ok(number.to())
    }

    /// A block; `None` is the head.
    ///
    /// The head does not go back: where the answer is behind one that was seen of late, that one stands. An update that
    /// names a block of it would otherwise be refused because the wrong node was asked.
    pub(crate) async fn block(&self, number: Option<u64>) -> Result<Block, ChainFault> {
        let tag = number.map_or("latest".to_owned(), quantity);
        let header: Header = self
            .answer("eth_getBlockByNumber", || json!([tag, false]))
            .await?;
        let block = Block::from(header);
        match number {
            None => Ok(self.highest(block)),
            Some(number) if number == block.number => Ok(block),
            Some(_) => Err(self.fault(Trouble::Malformed)),
        }
    }

    /// What a call without a recipient answers, at a block: `data` is code, and runs.
    pub(crate) async fn call(
        &self,
        data: impl Fn() -> Bytes,
        block_number: u64,
    ) -> Result<Vec<u8>, ChainFault> {
        let parameters = || json!([{ "data": data() }, quantity(block_number)]);
        let Data(answer) = self.answer("eth_call", parameters).await?;
        Ok(answer)
    }

    /// Says in the log, now and then, what is wrong. An error that the provider answers with is told to those who debug:
    /// any caller can bring one about.
    pub(crate) fn fault(&self, trouble: Trouble) -> ChainFault {
        let chain = caip_2(self.chain_id);
        if trouble == Trouble::RpcError {
            tracing::debug!(%chain, cause = %trouble, "a chain gave no verdict");
            return ChainFault::Unreachable;
        }
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            *logged = Some(Instant::now());
            tracing::warn!(%chain, cause = %trouble, "a chain does not answer as it should");
        }
        ChainFault::Unreachable
    }

    async fn answer<T: DeserializeOwned>(
        &self,
        method: &'static str,
        parameters: impl Fn() -> Value,
    ) -> Result<T, ChainFault> {
        let answer = timeout(MAX_DURATION, self.ask(method, parameters)).await;
        let answer = answer.unwrap_or(Err(Fault::Timeout.into()));
        answer.map_err(|trouble| self.fault(trouble))
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: &'static str,
        parameters: impl Fn() -> Value,
    ) -> Result<T, Trouble> {
        // It is never closed.
        let _turn = self.turns.acquire().await;
        self.is_of_chain
            .get_or_try_init(async || self.check_chain().await)
            .await?;
        self.exchange(method, parameters()).await
    }

    async fn check_chain(&self) -> Result<(), Trouble> {
        let chain_id: U64 = self.exchange("eth_chainId", json!([])).await?;
        if chain_id == U64::from(self.chain_id) {
            Ok(())
        } else {
            Err(Trouble::WrongChain)
        }
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        method: &'static str,
        parameters: Value,
    ) -> Result<T, Trouble> {
        let body = self
            .provider
            .post_json(rpc::question(method, parameters), MAX_ANSWER_BYTES)
            .await?;
        rpc::answer(&body)
    }

    fn highest(&self, answered: Block) -> Block {
        let mut head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        match *head {
            Some((seen, at)) if answered.number < seen.number && at.elapsed() < HEAD_MEMORY => seen,
            _ => {
                *head = Some((answered, Instant::now()));
                answered
            }
        }
    }
}

/// A number as chains write it.
fn quantity(number: u64) -> String {
    format!("{number:#x}")
}
