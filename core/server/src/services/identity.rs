//! `IdentityService`.

use std::sync::Arc;

use tokio::time::timeout;
use tonic::{Request, Response, Status};
use xmtp_protocol::identity::{
    AccountId, ChainFault, ChainVerifier, ContractSignature, EvmAccount, IdentifierKey,
    SignatureError,
};
use xmtp_protocol::proto::xmtp::backend::v1::{
    self as v1, GetInboxIdsResponse, VerifySmartContractWalletSignaturesResponse,
    get_inbox_ids_response, verify_smart_contract_wallet_signatures_response as verified,
};
use xmtp_store::Reads;
use xmtp_telemetry::{observed, operation};

use super::xmtp::backend::v1::identity_service_server::IdentityService;
use super::{decode, within};
use crate::chains::MAX_CHAIN_WAIT;
use crate::request::{GetInboxIdsRequest, VerifySmartContractWalletSignaturesRequest};
use crate::status;

/// Number of the field `GetInboxIdsRequest.requests`.
const REQUESTS: u32 = 1;
/// Number of the field `VerifySmartContractWalletSignaturesRequest.signatures`.
const SIGNATURES: u32 = 1;

/// The namespace of the chains that can be asked (CAIP-2).
const ETHEREUM: &str = "eip155";

/// Bounds of the service (API-131), counted on the request as sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdentityLimits {
    pub(crate) max_lookup_identifiers: usize,
    pub(crate) max_scw_signatures: usize,
}

/// Serves lookups from the reads that may lag (OPS-009), and verdicts from chains.
pub(crate) struct IdentityEndpoint {
    pub(crate) reads: Reads,
    pub(crate) chain: Arc<dyn ChainVerifier>,
    pub(crate) limits: IdentityLimits,
}

#[tonic::async_trait]
impl IdentityService for IdentityEndpoint {
    async fn get_inbox_ids(
        &self,
        request: Request<GetInboxIdsRequest>,
    ) -> Result<Response<GetInboxIdsResponse>, Status> {
        let found = self.look_up(request.into_inner());
        observed(operation!("rpc.get_inbox_ids"), found)
            .await
            .map(Response::new)
    }

    async fn verify_smart_contract_wallet_signatures(
        &self,
        request: Request<VerifySmartContractWalletSignaturesRequest>,
    ) -> Result<Response<VerifySmartContractWalletSignaturesResponse>, Status> {
        let verified = self.verify(request.into_inner());
        observed(
            operation!("rpc.verify_smart_contract_wallet_signatures"),
            verified,
        )
        .await
        .map(Response::new)
    }
}

impl IdentityEndpoint {
    /// Answers each entry at its own position, as it was sent (API-270).
    async fn look_up(&self, request: GetInboxIdsRequest) -> Result<GetInboxIdsResponse, Status> {
        within(&request, REQUESTS, self.limits.max_lookup_identifiers)?;
        let requests = decode(request)?.requests;
        let keys: Vec<Option<IdentifierKey>> = requests
            .iter()
            .map(|wanted| IdentifierKey::from_lookup(&wanted.identifier, wanted.identifier_kind))
            .collect::<Result<_, _>>()
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let possible: Vec<IdentifierKey> = keys.iter().flatten().cloned().collect();
        let found = if possible.is_empty() {
            Vec::new()
        } else {
            self.reads
                .inbox_ids(&possible)
                .await
                .map_err(|error| status::store(&error))?
        };
        let mut found = found.into_iter();
        let responses = requests
            .into_iter()
            .zip(keys)
            .map(|(wanted, key)| get_inbox_ids_response::Response {
                identifier: wanted.identifier,
                identifier_kind: wanted.identifier_kind,
                inbox_id: key.and_then(|_| found.next()).flatten().map(hex::encode),
            })
            .collect();
        Ok(GetInboxIdsResponse { responses })
    }

    /// Asks chains for verdicts (API-271). Every entry is looked at before anything is asked.
    async fn verify(
        &self,
        request: VerifySmartContractWalletSignaturesRequest,
    ) -> Result<VerifySmartContractWalletSignaturesResponse, Status> {
        within(&request, SIGNATURES, self.limits.max_scw_signatures)?;
        let asked: Vec<Option<ContractSignature>> = decode(request)?
            .signatures
            .into_iter()
            .map(contract_signature)
            .collect::<Result<_, _>>()?;
        let signatures: Vec<ContractSignature> = asked
            .into_iter()
            .collect::<Option<_>>()
            .ok_or_else(|| status::chain(ChainFault::NoRoute))?;
        if signatures.is_empty() {
            return Ok(VerifySmartContractWalletSignaturesResponse::default());
        }
        let verdicts = timeout(MAX_CHAIN_WAIT, self.chain.verify(&signatures))
            .await
            .unwrap_or(Err(ChainFault::Unreachable))
            .map_err(status::chain)?;
        // A verifier that leaves one out has not judged it.
        if verdicts.len() != signatures.len() {
            return Err(status::chain(ChainFault::Unreachable));
        }
        let responses = verdicts
            .into_iter()
            .map(|verdict| verified::Response {
                is_valid: verdict.is_valid,
                block_number: Some(verdict.block_number),
                error: None,
            })
            .collect();
        Ok(VerifySmartContractWalletSignaturesResponse { responses })
    }
}

/// Reads one entry. `None` is an account on a chain of another kind than Ethereum's: it is no error of
/// the caller's, but nothing can lead there.
fn contract_signature(
    asked: v1::verify_smart_contract_wallet_signatures_request::Signature,
) -> Result<Option<ContractSignature>, Status> {
    let malformed = |error: SignatureError| Status::invalid_argument(error.to_string());
    let account = AccountId::parse(&asked.account_id).map_err(malformed)?;
    let hash = <[u8; 32]>::try_from(&asked.hash[..])
        .map_err(|_| Status::invalid_argument("hash must contain 32 bytes"))?;
    if account.namespace() != ETHEREUM {
        return Ok(None);
    }
    Ok(Some(ContractSignature {
        account: EvmAccount::try_from(account).map_err(malformed)?,
        hash,
        signature: asked.signature,
        block_number: asked.block_number,
    }))
}
