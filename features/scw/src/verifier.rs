//! Judges signatures: by what is kept, or by asking their chains.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{StreamExt, TryStreamExt, stream};
use tokio::sync::OnceCell;
use xmtp_protocol::identity::{
    Block, ChainAnswer, ChainFault, ChainVerifier, ContractSignature, ContractVerdict,
};
use xmtp_telemetry::{observed, operation};

use crate::cache::{Key, Verdicts};
use crate::families::VERIFICATIONS;
use crate::route::{MAX_QUESTIONS, Route};
use crate::validator;

/// Knows the ways to chains, and the verdicts that were reached.
pub(crate) struct Verifier {
    routes: HashMap<u64, Route>,
    verdicts: Verdicts,
}

impl Verifier {
    /// With these routes, by chain id, and `most` verdicts kept.
    pub(crate) fn new(routes: HashMap<u64, Route>, most: NonZeroUsize) -> Self {
        Self {
            routes,
            verdicts: Verdicts::new(most),
        }
    }

    fn route(&self, chain_id: u64) -> Result<&Route, ChainFault> {
        self.routes.get(&chain_id).ok_or(ChainFault::NoRoute)
    }

    /// Judges one signature and counts it, also in `judged`. `latest` is the latest block of its chain, once somebody has
    /// asked.
    async fn verify_one(
        &self,
        route: &Route,
        signature: &ContractSignature,
        latest: &OnceCell<u64>,
        judged: &AtomicUsize,
    ) -> Result<ContractVerdict, ChainFault> {
        let work = self.judge(route, signature, latest);
        let verdict = observed(operation!("scw.verify"), work).await;
        let result = match &verdict {
            Ok(verdict) if verdict.is_valid => "valid",
            Ok(_) => "invalid",
            Err(_) => ERROR,
        };
        count(result, 1);
        judged.fetch_add(1, Ordering::Relaxed);
        verdict
    }

    async fn judge(
        &self,
        route: &Route,
        signature: &ContractSignature,
        latest: &OnceCell<u64>,
    ) -> Result<ContractVerdict, ChainFault> {
        let key = Key::of(signature);
        let block_number = match signature.block_number {
            Some(number) => number,
            None => *latest.get_or_try_init(|| route.latest()).await?,
        };
        let kept = key.as_ref().and_then(|key| self.verdicts.get(key));
        let is_valid = if let Some(is_valid) = kept {
            is_valid
        } else {
            let call = || validator::call(signature);
            let answer = route.call(call, block_number).await?;
            validator::verdict(&answer)
        };
        if let Some(key) = key {
            self.verdicts.keep(key, is_valid);
        }
        Ok(ContractVerdict {
            is_valid,
            block_number,
        })
    }
}

/// The result of what got no verdict.
const ERROR: &str = "error";

fn count(result: &'static str, verifications: usize) {
    VERIFICATIONS.count(&[result], verifications as u64);
}

impl ChainVerifier for Verifier {
    fn verify<'a>(
        &'a self,
        signatures: &'a [ContractSignature],
    ) -> ChainAnswer<'a, Vec<ContractVerdict>> {
        Box::pin(async move {
            let chains = || signatures.iter().map(|it| it.account.chain_id);
            // Without a way to every chain, none is asked.
            let routes: Result<Vec<&Route>, ChainFault> =
                chains().map(|it| self.route(it)).collect();
            let routes = routes.inspect_err(|_| count(ERROR, signatures.len()))?;
            let latest: HashMap<u64, OnceCell<u64>> =
                chains().map(|chain| (chain, OnceCell::new())).collect();
            let judged = AtomicUsize::new(0);
            let verdicts = stream::iter(0..signatures.len())
                .map(|index| {
                    let signature = &signatures[index];
                    let latest = &latest[&signature.account.chain_id];
                    self.verify_one(routes[index], signature, latest, &judged)
                })
                .buffered(MAX_QUESTIONS)
                .try_collect()
                .await;
            // After a fault the others are not waited for. They got no verdict either.
            verdicts
                .inspect_err(|_| count(ERROR, signatures.len() - judged.load(Ordering::Relaxed)))
        })
    }

    fn block(&self, chain_id: u64, number: Option<u64>) -> ChainAnswer<'_, Block> {
        Box::pin(async move { self.route(chain_id)?.block(number).await })
    }
}
