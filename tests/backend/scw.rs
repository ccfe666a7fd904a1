//! Contract wallets and their chain: the `scw` subsystem in a whole backend, beside a node for development.

use bytes::Bytes;
use tonic::{Code, Status};
use xmtp_fixtures::signers::{ContractWallet, Installation, Wallet};
use xmtp_fixtures::{IdentityUpdateBuilder, envelope, inbox_id_of};
use xmtp_protocol::identity::MAX_BLOCK_AGE_SECONDS;
use xmtp_protocol::proto::xmtp::backend::v1::publish_error::Reason;
use xmtp_protocol::proto::xmtp::backend::v1::verify_smart_contract_wallet_signatures_request::Signature;
use xmtp_protocol::proto::xmtp::backend::v1::{
    ClientEnvelope, GetConfigurationRequest, VerifySmartContractWalletSignaturesRequest,
};
use xmtp_server::config::sections::LogLevel;
use xmtp_server::subsystem::Subsystem;
use xmtp_test_support::contracts::{Factory, Owned, Way, deploy_odd_wallet, deploy_wallet};
use xmtp_test_support::payloads::group_message;
use xmtp_test_support::{Anvil, TestDatabase};

use crate::harness::{Backend, configured_with_scw};
use crate::publish::{at, failed, refusal};
use crate::telemetry::watch::Watch;

/// The chain of these tests.
const CHAIN_ID: u64 = 31337;

/// What a signature of the RPC signs.
const HASH: [u8; 32] = [7; 32];

/// Leads to a provider at this URL.
fn route(url: &str) -> String {
    format!("chains.\"eip155:{CHAIN_ID}\" = {url:?}")
}

/// The wallet at an address, whose signatures name a block.
fn wallet(address: [u8; 20], owner: &str, block_number: u64) -> Owned {
    Owned {
        account: ContractWallet {
            chain_id: CHAIN_ID,
            address,
            block_number,
        },
        owner: Wallet::new(owner),
        factory: None,
    }
}

/// A wallet of its own that is deployed, and signs at the head.
async fn deployed(chain: &Anvil, owner: &str) -> Owned {
    let address = deploy_wallet(chain, &Wallet::new(owner)).await;
    wallet(address, owner, chain.head().await.number)
}

/// An inbox of this wallet.
fn created_by(wallet: &Owned) -> ClientEnvelope {
    let update = IdentityUpdateBuilder::new(&inbox_id_of(wallet, 0));
    envelope(update.create(wallet, 0).sign())
}

/// An installation that is added to the inbox of this wallet.
fn added_by(wallet: &Owned, installation: &str) -> ClientEnvelope {
    let update = IdentityUpdateBuilder::new(&inbox_id_of(wallet, 0)).at(2);
    envelope(update.add(wallet, &Installation::new(installation)).sign())
}

fn asked(wallet: &Owned, block_number: Option<u64>) -> Signature {
    Signature {
        account_id: wallet.account.account_id(),
        block_number,
        hash: Bytes::from_static(&HASH),
        signature: wallet.sign_hash(HASH).into(),
    }
}

async fn verify(
    backend: &Backend,
    signatures: Vec<Signature>,
) -> Result<Vec<(bool, Option<u64>)>, Status> {
    let request = VerifySmartContractWalletSignaturesRequest { signatures };
    let response = backend
        .identities()
        .verify_smart_contract_wallet_signatures(request)
        .await?;
    let verdicts = response.into_inner().responses.into_iter();
    Ok(verdicts
        .map(|verdict| (verdict.is_valid, verdict.block_number))
        .collect())
}

#[tokio::test]
async fn ident_061_an_update_that_a_contract_wallet_signed_is_judged_by_its_chain() {
    let Some(chain) = Anvil::start(CHAIN_ID).await else {
        return;
    };
    let backend = Backend::with_scw(&route(&chain.url())).await;
    let there = deployed(&chain, "there").await;
    let factory = Factory::deploy(&chain).await;
    let owner = Wallet::new("to come");
    let address = factory.address_of(&chain, &owner).await;
    let to_come = Owned {
        factory: Some(factory),
        ..wallet(address, "to come", chain.head().await.number)
    };
    backend.publish([created_by(&there)]).await;
    backend.publish([created_by(&to_come)]).await;
    assert_eq!(backend.count("identifier_association").await, 2);

    // Their logs go on, which takes the verdicts on what is stored as well.
    backend.publish([added_by(&there, "phone")]).await;
    backend.publish([added_by(&to_come, "tablet")]).await;
    assert_eq!(backend.count("envelopes").await, 4);

    let stranger = Owned {
        owner: Wallet::new("stranger"),
        ..deployed(&chain, "somebody").await
    };
    let refused = backend
        .try_publish([group_message(1, "a"), created_by(&stranger)])
        .await;
    assert_eq!(refusal(refused), at(Some(1), Reason::InvalidSignature));
    let odd = deploy_odd_wallet(&chain, Way::Revert).await;
    let odd = wallet(odd, "odd", chain.head().await.number);
    failed(
        backend.try_publish([created_by(&odd)]).await,
        Code::Unavailable,
    );
    assert_eq!(backend.count("envelopes").await, 4);
}

#[tokio::test]
async fn ident_062_a_new_signature_names_a_block_of_the_last_half_hour() {
    let Some(chain) = Anvil::start(CHAIN_ID).await else {
        return;
    };
    let backend = Backend::with_scw(&route(&chain.url())).await;
    let old = deployed(&chain, "old").await;
    let soon = Owned {
        account: ContractWallet {
            block_number: old.account.block_number + 2,
            ..old.account.clone()
        },
        owner: Wallet::new("old"),
        factory: None,
    };
    let refused = backend.try_publish([created_by(&soon)]).await;
    assert_eq!(refusal(refused), at(Some(0), Reason::InvalidSignature));
    backend.publish([created_by(&old)]).await;
    chain.mine(2, MAX_BLOCK_AGE_SECONDS + 1).await;
    let refused = backend.try_publish([added_by(&old, "phone")]).await;
    assert_eq!(refusal(refused), at(Some(0), Reason::InvalidSignature));
    // What was not there yet is recent now, and what is stored may be old.
    backend.publish([added_by(&soon, "phone")]).await;
    assert_eq!(backend.count("envelopes").await, 2);
}

#[tokio::test]
async fn api_231_s18_a_chain_that_is_down_changes_nothing_and_is_asked_again() {
    let Some(chain) = Anvil::start(CHAIN_ID).await else {
        return;
    };
    let (port, url) = (chain.port(), chain.url());
    let signer = deployed(&chain, "owner").await;
    chain.stop().await;
    // It is down from the start, which waits for no chain.
    let backend = Backend::with_scw(&route(&url)).await;
    for _ in 0..2 {
        failed(
            backend
                .try_publish([group_message(1, "a"), created_by(&signer)])
                .await,
            Code::Unavailable,
        );
        failed(
            verify(&backend, vec![asked(&signer, Some(1))]).await,
            Code::Unavailable,
        );
    }
    assert_eq!(backend.count("envelopes").await, 0);

    let chain = Anvil::start_on(port, CHAIN_ID).await.expect("there is one");
    let again = deployed(&chain, "owner").await;
    assert_eq!(again.account.address, signer.account.address);
    backend.publish([created_by(&signer)]).await;
    assert_eq!(backend.count("envelopes").await, 1);

    // The verdict at that block is kept; the head is not.
    chain.stop().await;
    failed(
        backend.try_publish([added_by(&signer, "phone")]).await,
        Code::Unavailable,
    );
    assert_eq!(backend.count("envelopes").await, 1);
}

#[tokio::test]
async fn api_271_each_signature_of_a_request_has_its_verdict_and_its_block() {
    let Some(chain) = Anvil::start(CHAIN_ID).await else {
        return;
    };
    let backend = Backend::with_scw(&route(&chain.url())).await;
    let owner = deployed(&chain, "owner").await;
    let stranger = wallet(owner.account.address, "stranger", 0);
    let key = wallet(Wallet::new("key").address(), "key", 0);
    chain.mine(5, 1).await;
    let (first, head) = (owner.account.block_number, chain.head().await.number);
    let verdicts = verify(
        &backend,
        vec![
            asked(&owner, None),
            asked(&stranger, None),
            asked(&owner, Some(first)),
            asked(&stranger, Some(first)),
            asked(&owner, Some(first - 1)),
            asked(&key, Some(0)),
        ],
    )
    .await
    .expect("there are verdicts");
    assert_eq!(
        verdicts,
        [
            (true, Some(head)),
            (false, Some(head)),
            (true, Some(first)),
            (false, Some(first)),
            (false, Some(first - 1)),
            (true, Some(0)),
        ]
    );
    // One without a verdict is one for all.
    let odd = deploy_odd_wallet(&chain, Way::BurnGas).await;
    let odd = asked(&wallet(odd, "odd", 0), None);
    let elsewhere = Signature {
        account_id: "eip155:1:0x0101010101010101010101010101010101010101".to_owned(),
        ..asked(&owner, None)
    };
    for fault in [odd, elsewhere] {
        failed(
            verify(&backend, vec![asked(&owner, Some(first)), fault]).await,
            Code::Unavailable,
        );
    }
}

async fn published(backend: &Backend) -> Vec<String> {
    let request = GetConfigurationRequest::default();
    let answer = backend.configuration().get_configuration(request).await;
    answer
        .expect("it is public")
        .into_inner()
        .smart_contract_wallet_chains
}

#[tokio::test]
async fn conf_070_clients_are_told_which_chains_can_be_asked() {
    let urls = "chains.\"eip155:8453\" = \"https://rpc.example.org/planted\"
        chains.\"eip155:1\" = \"http://127.0.0.1:1/planted\"";
    let backend = Backend::with_scw(urls).await;
    assert_eq!(published(&backend).await, ["eip155:1", "eip155:8453"]);
}

#[tokio::test]
async fn conf_009_an_answer_that_chains_make_too_long_keeps_the_server_from_starting() {
    let database = TestDatabase::create().await;
    let chains: Vec<String> = (0..4000)
        .map(|number| {
            format!(
                "chains.\"eip155:{}\" = \"http://127.0.0.1:1\"",
                u64::MAX - number
            )
        })
        .collect();
    let server = configured_with_scw(&database, &chains.join("\n"));
    let error = server.start().await.err().expect("it does not start");
    assert!(error.to_string().contains("65536"), "{error}");
}

#[tokio::test]
async fn api_231_without_a_chain_the_subsystem_is_as_absent() {
    for settings in ["", "validation.max_scw_cache_entries = 1"] {
        let backend = Backend::with_scw(settings).await;
        assert_eq!(published(&backend).await, [""; 0]);
        let signer = wallet([1; 20], "owner", 1);
        failed(
            verify(&backend, vec![asked(&signer, None)]).await,
            Code::Unavailable,
        );
        failed(
            backend.try_publish([created_by(&signer)]).await,
            Code::Unavailable,
        );
    }
}

#[test]
fn ops_016_ops_019_verifications_are_counted_and_timed_and_nothing_of_them_is_told() {
    let subsystems: [Box<dyn Subsystem>; 1] = [Box::new(xmtp_scw::ScwSubsystem)];
    Watch::run_with(&subsystems, LogLevel::Trace, async |watch| {
        let Some(chain) = Anvil::start(CHAIN_ID).await else {
            return;
        };
        let authority = format!("127.0.0.1:{}", chain.port());
        let url = format!("http://user:planted-credential@{authority}");
        let backend = Backend::with_scw(&route(&url)).await;
        let owner = deployed(&chain, "owner").await;
        let stranger = wallet(owner.account.address, "stranger", 0);
        let odd = deploy_odd_wallet(&chain, Way::Revert).await;
        let odd = wallet(odd, "odd", 0);
        let head = Some(chain.head().await.number);
        for signature in [
            asked(&owner, head),
            asked(&owner, head),
            asked(&stranger, head),
            asked(&odd, head),
        ] {
            let _ = verify(&backend, vec![signature]).await;
        }
        chain.stop().await;
        let _ = verify(&backend, vec![asked(&owner, None)]).await;
        for (result, count) in [("valid", 2), ("invalid", 1), ("error", 2)] {
            let series = format!("xmtp_scw_verifications_total{{result=\"{result}\"}}");
            watch.until(&series, count).await;
        }
        let timed = |status: &str| {
            format!(
                "xmtp_operation_duration_seconds_count{{operation=\"scw.verify\",status=\"{status}\"}}"
            )
        };
        watch.until(&timed("ok"), 3).await;
        watch.until(&timed("error"), 2).await;
        backend.stop().await;
        let told = format!("{}{}{}", watch.log(), watch.spans(), watch.metrics.render());
        let address = hex::encode(owner.account.address);
        for secret in ["planted-credential", &*authority, &address] {
            assert!(!told.contains(secret), "{secret}");
        }
    });
}
