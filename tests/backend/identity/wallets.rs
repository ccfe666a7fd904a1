//! `VerifySmartContractWalletSignatures` (section 9 of the API contract), and contract wallets in identity
//! updates.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::time;
use tonic::{Code, Status};
use xmtp_fixtures::signers::ContractWallet;
use xmtp_fixtures::{Asked, IdentityUpdateBuilder, StubChain, envelope, inbox_id_of};
use xmtp_protocol::identity::{
    Block, ChainAnswer, ChainFault, ChainVerifier, ContractSignature, ContractVerdict,
    MAX_BLOCK_AGE_SECONDS,
};
use xmtp_protocol::proto::xmtp::backend::v1::publish_error::Reason;
use xmtp_protocol::proto::xmtp::backend::v1::verify_smart_contract_wallet_signatures_request::Signature;
use xmtp_protocol::proto::xmtp::backend::v1::verify_smart_contract_wallet_signatures_response::Response;
use xmtp_protocol::proto::xmtp::backend::v1::{
    ClientEnvelope, VerifySmartContractWalletSignaturesRequest,
};
use xmtp_test_support::eventually;
use xmtp_test_support::payloads::group_message;

use crate::harness::Backend;
use crate::publish::{at, failed, refusal};
use crate::raw::{self, frame};

const PATH: &str = "/xmtp.backend.v1.IdentityService/VerifySmartContractWalletSignatures";

/// The head of the chains of these tests.
const HEAD: Block = Block {
    number: 70,
    timestamp: 1_700_000_000,
};

/// Routes to the chains 1 and 2; the wallets of the byte 0xbb accept nothing.
fn chain() -> StubChain {
    let mut chain = StubChain::new([1, 2]).with_head(Some(HEAD));
    chain.refusing = HashSet::from([[0xbb; 20]]);
    chain
}

fn signature(account_id: &str) -> Signature {
    Signature {
        account_id: account_id.to_owned(),
        block_number: None,
        hash: Bytes::from_static(&[7; 32]),
        signature: Bytes::from_static(b"signature"),
    }
}

fn of(chain_id: u64, byte: u8) -> Signature {
    signature(&ContractWallet::new(chain_id, byte).account_id())
}

async fn verify(backend: &Backend, signatures: Vec<Signature>) -> Result<Vec<Response>, Status> {
    let request = VerifySmartContractWalletSignaturesRequest { signatures };
    let response = backend
        .identities()
        .verify_smart_contract_wallet_signatures(request)
        .await?;
    Ok(response.into_inner().responses)
}

fn verdict(is_valid: bool, block_number: u64) -> Response {
    Response {
        is_valid,
        block_number: Some(block_number),
        error: None,
    }
}

#[tokio::test]
async fn api_271_each_entry_has_its_verdict_and_the_block_of_it() {
    let stub = Arc::new(chain());
    let backend = Backend::with_chain("", stub.clone()).await;
    let at_block = |signature: Signature, block| Signature {
        block_number: Some(block),
        ..signature
    };
    let mixed_case = signature("eip155:1:0xAaaAAAaaaaaAAAAAaaaaaAAAaaaaaaAAAaaaaaAA");
    let verdicts = verify(
        &backend,
        vec![
            of(1, 0xaa),
            at_block(of(2, 0xbb), 9),
            at_block(of(2, 0xaa), 0),
            of(1, 0xbb),
            mixed_case,
        ],
    )
    .await
    .expect("there are verdicts");
    assert_eq!(
        verdicts,
        [
            verdict(true, HEAD.number),
            verdict(false, 9),
            verdict(true, 0),
            verdict(false, HEAD.number),
            verdict(true, HEAD.number),
        ]
    );
    // All at once, and no block of it is held against the clock.
    assert_eq!(stub.asked(), [Asked::Verdicts(5)]);
}

#[tokio::test]
async fn api_271_a_malformed_entry_is_refused_before_any_chain_is_asked() {
    let stub = Arc::new(chain());
    let backend = Backend::with_chain("", stub.clone()).await;
    let no_route = || of(9, 1);
    let account = "0xaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    for account_id in [
        String::new(),
        account.to_owned(),
        format!("1:{account}"),
        format!("eip155:1:{account}:1"),
        format!("EIP155:1:{account}"),
        format!("eip155:one:{account}"),
        format!("eip155:01:{account}"),
        format!("eip155:18446744073709551616:{account}"),
        format!("eip155:1:{}", &account[2..]),
        format!("eip155:1:{}", &account[..41]),
        format!("eip155:1:{account}aa"),
        format!("eip155:1:0xg{}", &account[3..]),
    ] {
        let signatures = vec![of(1, 0xaa), no_route(), signature(&account_id)];
        let refused = verify(&backend, signatures).await;
        failed(refused, Code::InvalidArgument);
    }
    for length in [0, 31, 33] {
        let wrong = Signature {
            hash: vec![7; length].into(),
            ..of(1, 0xaa)
        };
        let signatures = vec![of(1, 0xaa), no_route(), wrong];
        let refused = verify(&backend, signatures).await;
        failed(refused, Code::InvalidArgument);
    }
    assert_eq!(stub.asked(), []);
}

#[tokio::test]
async fn api_271_no_route_is_unavailable_for_the_whole_request() {
    let backend = Backend::with_chain("", Arc::new(chain())).await;
    failed(
        verify(&backend, vec![of(1, 0xaa), of(3, 0xaa)]).await,
        Code::Unavailable,
    );
    // Well-formed, and on a chain of another kind.
    let elsewhere = signature(
        "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp:7S3P4HxJpyyigGzodYwHtCxZyUQe9JiBMHyRWXArAaKv",
    );
    failed(
        verify(&backend, vec![of(1, 0xaa), elsewhere]).await,
        Code::Unavailable,
    );
}

/// Has nothing to say.
struct Silent(Result<(), ChainFault>);

impl ChainVerifier for Silent {
    fn verify<'a>(
        &'a self,
        _signatures: &'a [ContractSignature],
    ) -> ChainAnswer<'a, Vec<ContractVerdict>> {
        Box::pin(std::future::ready(self.0.map(|()| Vec::new())))
    }

    fn block(&self, _chain_id: u64, _number: Option<u64>) -> ChainAnswer<'_, Block> {
        Box::pin(std::future::ready(self.0.map(|()| HEAD)))
    }
}

#[tokio::test]
async fn api_271_a_chain_that_gives_no_verdict_is_unavailable() {
    for answer in [Err(ChainFault::Unreachable), Ok(())] {
        let backend = Backend::with_chain("", Arc::new(Silent(answer))).await;
        failed(verify(&backend, vec![of(1, 0xaa)]).await, Code::Unavailable);
        // ARC-091: no less in an update, and it is no invalid signature.
        failed(
            backend.try_publish([created_by(0xaa, HEAD.number)]).await,
            Code::Unavailable,
        );
        assert_eq!(backend.count("envelopes").await, 0);
    }
}

#[tokio::test]
async fn arc_091_without_a_verifier_nothing_is_judged() {
    let backend = Backend::start().await;
    failed(verify(&backend, vec![of(1, 0xaa)]).await, Code::Unavailable);
    assert_eq!(verify(&backend, vec![]).await.expect("empty"), []);
    failed(
        verify(&backend, vec![signature("nobody")]).await,
        Code::InvalidArgument,
    );
}

#[tokio::test]
async fn api_131_signatures_to_verify_are_counted_before_anything_else() {
    let stub = Arc::new(chain());
    let backend = Backend::with_chain("limits.max_scw_signatures = 2", stub.clone()).await;
    let verdicts = verify(&backend, vec![of(1, 0xaa); 2]).await;
    assert_eq!(verdicts.expect("at the bound").len(), 2);
    failed(
        verify(&backend, vec![of(1, 0xaa); 3]).await,
        Code::InvalidArgument,
    );
    // Entries that cannot be decoded are counted all the same.
    let broken = [0x0a, 1, 0x0a];
    for (entries, code) in [(2, Code::Internal), (3, Code::InvalidArgument)] {
        let body = frame(&broken.repeat(entries));
        let answer = raw::native(backend.address, PATH, body, &[]).await;
        assert_eq!(answer.code(), code);
    }
    assert_eq!(stub.asked(), [Asked::Verdicts(2)]);
}

/// An inbox of a contract wallet, whose signature names this block.
fn created_by(byte: u8, block_number: u64) -> ClientEnvelope {
    let wallet = ContractWallet {
        block_number,
        ..ContractWallet::new(1, byte)
    };
    let update = IdentityUpdateBuilder::new(&inbox_id_of(&wallet, 0));
    envelope(update.create(&wallet, 0).sign())
}

#[tokio::test]
async fn ident_062_an_update_is_judged_by_the_registered_chain() {
    let old = Block {
        number: 5,
        timestamp: HEAD.timestamp - MAX_BLOCK_AGE_SECONDS - 1,
    };
    let stub = Arc::new(chain().with_block(old));
    let backend = Backend::with_chain("limits.max_scw_signatures = 1", stub.clone()).await;
    backend.publish([created_by(0xaa, HEAD.number)]).await;
    assert_eq!(backend.count("identifier_association").await, 1);
    for wrong in [
        created_by(0xbb, HEAD.number),
        created_by(0xcc, HEAD.number + 1),
        created_by(0xcc, old.number),
    ] {
        let refused = backend.try_publish([group_message(1, "a"), wrong]).await;
        assert_eq!(refusal(refused), at(Some(1), Reason::InvalidSignature));
    }
    assert_eq!(backend.count("envelopes").await, 1);
    // Of a copy nothing is asked: its block may be old by now.
    let asked = stub.asked();
    backend.publish([created_by(0xaa, HEAD.number)]).await;
    assert_eq!(stub.asked(), asked);
}

/// Counts what it is asked, and answers nothing.
#[derive(Default)]
struct Hanging(AtomicUsize);

impl Hanging {
    fn asked<'a, T: Send + 'a>(&'a self) -> ChainAnswer<'a, T> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::pending())
    }
}

impl ChainVerifier for Hanging {
    fn verify<'a>(&'a self, _: &'a [ContractSignature]) -> ChainAnswer<'a, Vec<ContractVerdict>> {
        self.asked()
    }

    fn block(&self, _: u64, _: Option<u64>) -> ChainAnswer<'_, Block> {
        self.asked()
    }
}

#[tokio::test]
async fn api_231_no_request_waits_for_chains_for_more_than_a_minute() {
    let hanging = Arc::new(Hanging::default());
    let backend = Backend::with_chain("", hanging.clone()).await;
    let answers = async {
        tokio::join!(
            backend.try_publish([created_by(0xaa, HEAD.number)]),
            verify(&backend, vec![of(1, 0xaa)]),
        )
    };
    let passes = async {
        eventually("both wait", async || {
            (hanging.0.load(Ordering::Relaxed) == 2).then_some(())
        })
        .await;
        // The server and the test have one clock.
        time::pause();
        time::advance(Duration::from_secs(61)).await;
        time::resume();
        time::sleep(Duration::from_secs(30)).await;
    };
    let (published, verified) = tokio::select! {
        answers = answers => answers,
        () = passes => panic!("they wait on"),
    };
    failed(published, Code::Unavailable);
    failed(verified, Code::Unavailable);
    assert_eq!(backend.count("envelopes").await, 0);
}
