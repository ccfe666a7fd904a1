//! `GetInboxIds` (section 8 of the API contract).

use prost::Message;
use tonic::{Code, Status};
use xmtp_fixtures::signers::{ContractWallet, Installation, Passkey, Signer, Wallet};
use xmtp_fixtures::{IdentityUpdateBuilder, StubChain, envelope, inbox_id_of, registration};
use xmtp_protocol::TopicKind;
use xmtp_protocol::proto::xmtp::backend::v1::get_inbox_ids_request::Request as Lookup;
use xmtp_protocol::proto::xmtp::backend::v1::{GetInboxIdsRequest, GetInboxIdsResponse};
use xmtp_protocol::proto::xmtp::identity::associations::{
    IdentityUpdate, identity_action, signature::Signature,
};
use xmtp_test_support::payloads::{identity_update, owner, topic};

use crate::harness::Backend;
use crate::raw::{self, frame};

const PATH: &str = "/xmtp.backend.v1.IdentityService/GetInboxIds";
const ETHEREUM: i32 = 1;
const PASSKEY: i32 = 2;

fn lookup(identifier: impl Into<String>, kind: i32) -> Lookup {
    Lookup {
        identifier: identifier.into(),
        identifier_kind: kind,
    }
}

async fn ask(backend: &Backend, requests: Vec<Lookup>) -> Result<GetInboxIdsResponse, Status> {
    let request = GetInboxIdsRequest { requests };
    let response = backend.identities().get_inbox_ids(request).await?;
    Ok(response.into_inner())
}

/// The inboxes that are found, each at the position of its entry, which the server repeats.
async fn found(backend: &Backend, requests: Vec<Lookup>) -> Vec<Option<String>> {
    let response = ask(backend, requests.clone()).await.expect("answered");
    assert_eq!(response.responses.len(), requests.len());
    response
        .responses
        .into_iter()
        .zip(requests)
        .map(|(answer, asked)| {
            assert_eq!(answer.identifier, asked.identifier);
            assert_eq!(answer.identifier_kind, asked.identifier_kind);
            answer.inbox_id
        })
        .collect()
}

/// The inbox of one account or passkey.
async fn inbox_of(backend: &Backend, signer: &dyn Signer) -> Option<String> {
    let key = signer.identifier().key().expect("no installation");
    let answers = found(backend, vec![lookup(key.text(), key.kind() as i32)]).await;
    answers.into_iter().next().expect("one answer")
}

async fn publish(backend: &Backend, update: IdentityUpdate) {
    backend.publish([envelope(update)]).await;
}

/// Writes every address that a contract wallet signed with in upper case.
fn with_upper_case_accounts(mut update: IdentityUpdate) -> IdentityUpdate {
    for action in &mut update.actions {
        let Some(identity_action::Kind::CreateInbox(create)) = &mut action.kind else {
            continue;
        };
        let signature = create.initial_identifier_signature.as_mut();
        if let Some(Signature::Erc6492(wallet)) =
            signature.and_then(|signature| signature.signature.as_mut())
        {
            let (chain, address) = wallet.account_id.rsplit_once(":0x").expect("an account");
            wallet.account_id = format!("{chain}:0x{}", address.to_uppercase());
        }
    }
    update
}

#[tokio::test]
async fn s14_every_spelling_finds_the_inbox_at_its_own_position() {
    let backend = Backend::with_chain("", std::sync::Arc::new(StubChain::new([1]))).await;
    let (wallet, passkey) = (Wallet::new("wallet"), Passkey::new("passkey"));
    let contract = ContractWallet::new(1, 0xab);
    let inbox = inbox_id_of(&wallet, 0);
    let with_passkey = IdentityUpdateBuilder::new(&inbox)
        .create(&wallet, 0)
        .add(&wallet, &passkey)
        .sign();
    let contract_inbox = inbox_id_of(&contract, 0);
    let by_contract = IdentityUpdateBuilder::new(&contract_inbox)
        .create(&contract, 0)
        .sign();
    let by_contract = with_upper_case_accounts(by_contract);
    publish(&backend, with_passkey).await;
    publish(&backend, by_contract.clone()).await;

    let mut requests = Vec::new();
    let mut expected = Vec::new();
    for (signer, kind, inbox) in [
        (&wallet as &dyn Signer, ETHEREUM, &inbox),
        (&passkey, PASSKEY, &inbox),
        (&contract, ETHEREUM, &contract_inbox),
    ] {
        let text = signer.identifier().text();
        let upper = text.to_uppercase();
        let mixed: String = text
            .chars()
            .zip(upper.chars())
            .enumerate()
            .map(|(at, (lower, upper))| if at % 3 == 0 { upper } else { lower })
            .collect();
        let other_kind = ETHEREUM + PASSKEY - kind;
        for spelling in [&text, &upper, &mixed, &text] {
            requests.push(lookup(spelling, kind));
            expected.push(Some(inbox.clone()));
        }
        // A passkey is no address, and an address without its prefix is hex like a passkey.
        requests.push(lookup(text.trim_start_matches("0x"), other_kind));
        expected.push(None);
    }
    // The kind 0 is read as Ethereum.
    requests.push(lookup(wallet.identifier().text(), 0));
    expected.push(Some(inbox));
    assert_eq!(found(&backend, requests).await, expected);

    let id = hex::decode(&contract_inbox).expect("hex");
    let contract_topic =
        xmtp_protocol::Topic::new(TopicKind::IdentityUpdate, &id).expect("an inbox id");
    let stored = backend.read(&contract_topic).await;
    let payload = stored[0].envelope.clone();
    assert_eq!(payload, Some(envelope(by_contract)), "as it was signed");
}

#[tokio::test]
async fn api_270_a_revocation_exposes_an_older_association() {
    let backend = Backend::start().await;
    let (alice, bob, shared) = (
        Wallet::new("alice"),
        Wallet::new("bob"),
        Wallet::new("shared"),
    );
    let of = |owner: &Wallet| IdentityUpdateBuilder::new(&inbox_id_of(owner, 0));
    let (of_alice, of_bob) = (inbox_id_of(&alice, 0), inbox_id_of(&bob, 0));
    let id = shared.identifier();
    for (update, expected) in [
        (of(&alice).create(&alice, 0).sign(), None),
        (of(&alice).add(&alice, &shared).sign(), Some(&of_alice)),
        (of(&bob).create(&bob, 0).sign(), Some(&of_alice)),
        (of(&bob).add(&bob, &shared).sign(), Some(&of_bob)),
        (of(&bob).revoke(&bob, &id).sign(), Some(&of_alice)),
        (of(&bob).at(2).add(&bob, &shared).sign(), Some(&of_bob)),
        (of(&alice).revoke(&alice, &id).sign(), Some(&of_bob)),
        (
            of(&alice).at(2).add(&alice, &shared).sign(),
            Some(&of_alice),
        ),
        // Removed and added by one update, it is associated from that update on.
        (
            of(&bob).at(3).revoke(&bob, &id).add(&bob, &shared).sign(),
            Some(&of_bob),
        ),
        (of(&bob).at(4).revoke(&bob, &id).sign(), Some(&of_alice)),
        (of(&alice).at(4).revoke(&alice, &id).sign(), None),
    ] {
        publish(&backend, update).await;
        assert_eq!(inbox_of(&backend, &shared).await.as_ref(), expected);
        assert_ne!(inbox_of(&backend, &alice).await, None);
    }
}

#[tokio::test]
async fn api_270_an_inbox_without_members_is_found_by_nobody() {
    let backend = Backend::start().await;
    let owner = owner(1);
    backend.publish([identity_update(1, 1)]).await;
    let own = IdentityUpdateBuilder::new(&inbox_id_of(&owner, 0))
        .revoke(&owner, &owner.identifier())
        .sign();
    publish(&backend, own).await;
    assert_eq!(inbox_of(&backend, &owner).await, None);
    assert_eq!(
        backend
            .read(&topic(TopicKind::IdentityUpdate, 1))
            .await
            .len(),
        2
    );
}

#[tokio::test]
async fn arc_022_an_installation_is_not_found_under_any_kind() {
    let backend = Backend::start().await;
    let phone = Installation::new("phone");
    publish(&backend, registration(&owner(1), 0, &phone)).await;
    let key = phone.identifier().text();
    let prefixed = format!("0x{key}");
    let requests = vec![
        lookup(key.clone(), 0),
        lookup(key.clone(), ETHEREUM),
        lookup(key, PASSKEY),
        lookup(prefixed, ETHEREUM),
    ];
    assert_eq!(found(&backend, requests).await, vec![None; 4]);
    assert_eq!(backend.count("identifier_association").await, 1);
}

#[tokio::test]
async fn api_270_what_is_no_identifier_is_not_found_or_refused() {
    let backend = Backend::start().await;
    let odd = ["", "0x", "alice", "0xZZ", "\u{130}", "0x1234"];
    let requests: Vec<Lookup> = odd.iter().map(|text| lookup(*text, ETHEREUM)).collect();
    assert_eq!(found(&backend, requests).await, vec![None; odd.len()]);
    assert_eq!(found(&backend, vec![lookup("", PASSKEY)]).await, [None]);
    for wrong in [
        lookup("0x12", PASSKEY),
        lookup("abc", PASSKEY),
        lookup("zz", PASSKEY),
        lookup("0x12", 3),
        lookup("0x12", -1),
    ] {
        // One of them is enough.
        let requests = vec![lookup("0x12", ETHEREUM), wrong];
        let status = ask(&backend, requests).await.expect_err("refused");
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.details().is_empty());
    }
}

#[tokio::test]
async fn api_141_identifiers_are_counted_before_anything_else() {
    let backend = Backend::with("limits.max_lookup_identifiers = 2").await;
    assert_eq!(found(&backend, vec![]).await, []);
    assert_eq!(
        found(&backend, vec![lookup("a", 0), lookup("a", 0)]).await,
        [None, None]
    );
    let many = vec![lookup("a", 0); 3];
    let status = ask(&backend, many).await.expect_err("refused");
    assert_eq!(status.code(), Code::InvalidArgument);
    // Entries that cannot be decoded are counted all the same.
    let broken = [0x0a, 1, 0x0a];
    for (entries, code) in [(2, Code::Internal), (3, Code::InvalidArgument)] {
        let body = frame(&broken.repeat(entries));
        let answer = raw::native(backend.address, PATH, body, &[]).await;
        assert_eq!(answer.code(), code);
    }
}

#[tokio::test]
async fn api_281_lookups_keep_to_the_byte_limits() {
    let backend = Backend::with(
        "limits.max_envelope_bytes = 1000\n\
         limits.max_request_bytes = 3000\n\
         limits.max_response_bytes = 2000",
    )
    .await;
    let sized = |length: usize| GetInboxIdsRequest {
        requests: vec![lookup("a".repeat(length), 0)],
    };
    // An answer without an inbox is as long as its question.
    let most = (0..2000)
        .rev()
        .find(|length| sized(*length).encoded_len() == 2000)
        .expect("the length can be had");
    for (length, code) in [
        (most, Code::Ok),
        (most + 1, Code::OutOfRange),
        (3000, Code::OutOfRange),
    ] {
        let body = frame(&sized(length).encode_to_vec());
        for answer in [
            raw::native(backend.address, PATH, body.clone(), &[]).await,
            raw::web(backend.address, PATH, body, &[]).await,
        ] {
            assert_eq!(answer.code(), code, "{length}");
        }
    }
}

#[tokio::test]
async fn api_281_a_database_that_is_gone_is_unavailable() {
    let backend = Backend::start().await;
    backend
        .database
        .execute("ALTER TABLE identifier_association RENAME TO gone")
        .await;
    let known = owner(1).identifier().text();
    let status = ask(&backend, vec![lookup(known, ETHEREUM)])
        .await
        .expect_err("nothing can be read");
    assert_eq!(status.code(), Code::Unavailable);
    // What nobody can have is not asked for.
    assert_eq!(found(&backend, vec![lookup("a", ETHEREUM)]).await, [None]);
}
