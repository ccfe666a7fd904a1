//! Keys that are fetched: at the start, on a schedule, and no more once they are stale.

use std::time::Duration;

use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tonic::Code;
use xmtp_protocol::proto::xmtp::backend::v1::GetConfigurationRequest;
use xmtp_server::StartError;
use xmtp_test_support::{TestDatabase, eventually};

use super::issuer::{Issuer, Publication, claims};
use super::{QUERY, bearer};
use crate::harness::{Backend, configured_with_auth, within};
use crate::process::{self, Process};
use crate::raw::{self, frame};

async fn code(backend: &Backend, token: &str) -> Code {
    let header = bearer(token);
    let headers = [("authorization", header.as_str())];
    raw::native(backend.address, QUERY, frame(b""), &headers)
        .await
        .code()
}

#[tokio::test]
async fn auth_018_s21_keys_change_with_a_refresh_and_no_request_fetches_them() {
    let (old, new) = (Issuer::new("old"), Issuer::new("new"));
    let publication = Publication::start(&[json!({ "kid": "unusable" }), old.jwk()]).await;
    let backend = Backend::with_auth(&publication.settings()).await;
    let (of_old, of_new) = (old.token(&claims()), new.token(&claims()));
    assert_eq!(code(&backend, &of_old).await, Code::Ok);
    let (start, before) = (Instant::now(), publication.fetches());
    for number in 0..300 {
        let token = new.token_of("EdDSA", &format!("random-{number}"), &claims());
        assert_eq!(code(&backend, &token).await, Code::Unauthenticated);
    }
    // At most one a second, whatever was asked.
    let most = usize::try_from(start.elapsed().as_secs()).expect("short") + 1;
    let fetches = publication.fetches() - before;
    assert!(
        fetches <= most,
        "{fetches} fetches in {:?}",
        start.elapsed()
    );

    publication.publish(&[]);
    let (empty, before) = (Instant::now(), publication.fetches());
    eventually("an empty set is fetched", async || {
        (publication.fetches() >= before + 2).then_some(())
    })
    .await;
    assert!(empty.elapsed() >= Duration::from_secs(1));
    assert_eq!(code(&backend, &of_old).await, Code::Ok, "the old set stays");

    publication.publish(&[new.jwk()]);
    eventually("the new key is accepted", async || {
        (code(&backend, &of_new).await == Code::Ok).then_some(())
    })
    .await;
    assert_eq!(code(&backend, &of_old).await, Code::Unauthenticated);
    // CONF-012, CONF-068: clients are told the keys of the start.
    let answer = backend
        .configuration()
        .get_configuration(GetConfigurationRequest {})
        .await;
    let auth = answer
        .expect("served")
        .into_inner()
        .auth
        .expect("always there");
    let kids: Vec<&str> = auth.keys.iter().map(|key| key.kid.as_str()).collect();
    assert_eq!(kids, ["old"]);
}

#[tokio::test]
async fn auth_017_ops_005_without_keys_nothing_is_served() {
    let publication = Publication::start(&[json!({ "kty": "oct", "kid": "planted" })]).await;
    let held = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = held.local_addr().expect("bound");
    let settings = format!("{}\nserver.listen = \"{address}\"", publication.settings());
    let database = TestDatabase::create().await;
    // The port is taken: whoever tried to bind it would say so.
    let error = configured_with_auth(&database, &settings)
        .start()
        .await
        .err();
    let error = error.expect("no usable key");
    assert!(
        matches!(error, StartError::Step { word: "keys", .. }),
        "{error:?}"
    );
    let text = error.to_string();
    assert_eq!(
        text,
        "keys: auth.jwks_url: no usable signing key after 3 attempts: no_usable_key"
    );
    assert_eq!(publication.fetches(), 3);
}

#[tokio::test]
async fn ops_005_readiness_waits_for_the_keys() {
    let publication = Publication::start(&[]).await;
    publication.hang();
    let held = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let telemetry = held.local_addr().expect("bound");
    drop(held);
    let metrics = format!("telemetry.metrics_listen = \"{telemetry}\"");
    let settings = format!("{}\n{metrics}", publication.settings());
    let database = TestDatabase::create().await;
    let starting = configured_with_auth(&database, &settings).start();
    let request = || {
        let request = http::Request::get("/readyz").body(Full::default());
        request.expect("legal")
    };
    let asking = async {
        eventually("the first fetch hangs", async || {
            (publication.fetches() == 1).then_some(())
        })
        .await;
        let answer = raw::http1(telemetry, request()).await;
        assert_eq!(answer.status(), 503);
        let body = answer.into_body().collect().await.expect("arrives");
        let body: Value = serde_json::from_slice(&body.to_bytes()).expect("JSON");
        assert_eq!(body["waiting"][0], "keys");
        // The next attempt works.
        publication.publish(&[Issuer::new("one").jwk()]);
    };
    let (running, ()) = within(Box::pin(async { tokio::join!(starting, asking) })).await;
    let running = running.expect("starts");
    assert_eq!(raw::http1(telemetry, request()).await.status(), 200);
    running.stop().await;
}

#[tokio::test]
async fn auth_019_stale_keys_drain_the_server_although_a_fetch_hangs() {
    let issuer = Issuer::new("one");
    let publication = Publication::start(&[issuer.jwk()]).await;
    let start = Instant::now();
    let mut backend = Backend::with_auth(&publication.settings()).await;
    publication.hang();
    let error = within(backend.failed()).await;
    assert!(
        error.starts_with("auth.jwks_max_stale_seconds: "),
        "{error}"
    );
    assert!(start.elapsed() >= Duration::from_secs(12));
    // Requests were served until then.
    assert_eq!(code(&backend, &issuer.token(&claims())).await, Code::Ok);
    backend.stop().await;
}

#[tokio::test]
async fn auth_019_the_program_ends_with_an_error_once_its_keys_are_stale() {
    let publication = Publication::start(&[Issuer::new("one").jwk()]).await;
    let database = TestDatabase::create().await;
    let mut server = Process::serve(&database, &publication.settings()).await;
    publication.hang();
    let status = server.ended().await;
    assert_eq!(status.code(), Some(1));
    let log = server.log();
    let said = "SUBSYSTEM_FAILED: auth.jwks_max_stale_seconds: ";
    assert!(log.contains(said), "{log}");
    assert!(log.contains("\"message\":\"draining\"") && log.contains("\"message\":\"stopped\""));
    assert!(!log.contains("planted"), "{log}");
}

#[tokio::test]
async fn arc_101_config_show_shows_no_credential_and_no_url() {
    let settings = "auth.enabled = true
        auth.api_keys.mobile = \"planted-planted-planted-planted-\"
        auth.jwks_url = \"https://planted.example.org/\"\n";
    let database = TestDatabase::create().await;
    let document = process::document(&database, settings);
    let output = process::run(["config", "show", "--config", &document]).await;
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{text}");
    assert!(text.contains("auth.api_keys.mobile"), "{text}");
    assert!(!text.contains("planted"), "{text}");
}
