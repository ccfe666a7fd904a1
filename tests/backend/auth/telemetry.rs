//! What is told of credentials: the reason of a rejection, the name of an API key, and nothing else (AUTH-027,
//! AUTH-028).

use serde_json::{Value, json};
use xmtp_server::config::sections::LogLevel;

use super::issuer::{Issuer, Publication, claims};
use super::{API_KEY, ONE_API_KEY, QUERY, bearer};
use crate::harness::Backend;
use crate::raw::{self, frame};
use crate::telemetry::watch::Watch;

#[test]
fn auth_027_auth_028_ops_013_s32_rejections_are_counted_and_logged_by_reason_alone() {
    Watch::run(LogLevel::Trace, async |watch| {
        let issuer = Issuer::new("planted-kid");
        let settings = format!(
            "{ONE_API_KEY}\n{}\nauth.audiences = [\"here\"]\nauth.issuers = [\"issuer\"]\n\
             auth.required_scopes = [\"use\"]",
            issuer.settings()
        );
        let backend = Backend::with_auth(&settings).await;
        let token = |name: &str, value: Value| {
            let mut claims = claims();
            claims[name] = value;
            issuer.token(&claims)
        };
        let rows = [
            (None, "missing"),
            (Some("planted-word".to_owned()), "malformed"),
            (
                Some(issuer.token_of("HS256", "x", &claims())),
                "unsupported_alg",
            ),
            (
                Some(issuer.token_of("EdDSA", "planted-other", &claims())),
                "untrusted",
            ),
            (Some(token("exp", json!(1))), "expired"),
            (Some(token("nbf", json!(u64::MAX))), "not_yet_valid"),
            (Some(token("aud", json!("planted-aud"))), "audience"),
            (Some(token("iss", json!("planted-iss"))), "issuer"),
            (Some(token("scope", json!("planted-scope"))), "scope"),
        ];
        let mut expected = Vec::new();
        for (token, reason) in &rows {
            let header = token.as_deref().map(bearer);
            let headers: Vec<(&str, &str)> = header
                .iter()
                .map(|it| ("authorization", it.as_str()))
                .collect();
            let answer = raw::native(backend.address, QUERY, frame(b""), &headers).await;
            let id = answer
                .header("x-request-id")
                .expect("always there")
                .to_owned();
            expected.push((id, *reason));
        }
        for admitted in [API_KEY, &issuer.token(&claims())] {
            let header = bearer(admitted);
            let headers = [("authorization", header.as_str())];
            raw::native(backend.address, QUERY, frame(b""), &headers).await;
        }
        let labels = "grpc_service=\"xmtp.backend.v1.QueryService\",grpc_method=\"Query\",grpc_type=\"unary\"";
        let handled =
            |code: &str| format!("grpc_server_handled_total{{{labels},grpc_code=\"{code}\"}}");
        watch.until(&handled("OK"), 2).await;
        watch.until(&handled("Unauthenticated"), 8).await;
        watch.until(&handled("PermissionDenied"), 1).await;
        watch
            .until(&format!("grpc_server_in_flight{{{labels}}}"), 0)
            .await;
        for (_, reason) in &rows {
            let series = format!("xmtp_auth_rejections_total{{reason=\"{reason}\"}}");
            assert_eq!(watch.value(&series), Some(1), "{reason}");
        }
        assert_eq!(watch.value("xmtp_auth_keys"), Some(1));
        backend.stop().await;

        let events = watch.events("request rejected");
        let told: Vec<(String, &str)> = events
            .iter()
            .map(|event| {
                assert_eq!(event["level"], "DEBUG");
                assert_eq!(event["identifier"], "org.example.test");
                let id = event["request_id"].as_str().expect("text");
                (id.to_owned(), event["reason"].as_str().expect("text"))
            })
            .collect();
        assert_eq!(told, expected);
        assert_no_other_field(&events);
        // Of an API key its name, once; of a JWT nothing.
        let spans = watch.spans();
        let principals = spans.lines().filter(|line| line.contains("auth.principal"));
        let principals: Vec<&str> = principals.collect();
        assert_eq!(principals, ["request auth.principal=\"mobile\""]);
        let everything = [watch.log(), spans, watch.metrics.render()].concat();
        assert!(
            !everything.contains("planted"),
            "a credential or a claim is told"
        );
        for (token, reason) in rows {
            let parts = token.iter().flat_map(|token| token.split('.'));
            for part in parts.filter(|part| part.len() > 8) {
                assert!(!everything.contains(part), "{reason}");
            }
        }
    });
}

/// A rejection has the fields that the contract names, and those of every line.
fn assert_no_other_field(events: &[Value]) {
    let known = [
        "timestamp",
        "level",
        "target",
        "message",
        "request_id",
        "identifier",
        "reason",
    ];
    for event in events {
        let fields = event.as_object().expect("an object").keys();
        for field in fields {
            assert!(known.contains(&field.as_str()), "{field}");
        }
    }
}

#[test]
fn auth_016_auth_027_s20_each_entry_that_is_skipped_is_warned_of_without_its_content() {
    Watch::run(LogLevel::Warn, async |watch| {
        let issuer = Issuer::new("one");
        let long = format!("{}-planted", "k".repeat(32));
        let publication = Publication::start(&[
            json!({ "kty": "oct", "alg": "HS256", "kid": long, "k": "planted" }),
            json!("planted"),
            issuer.jwk(),
        ])
        .await;
        let backend = Backend::with_auth(&publication.settings()).await;
        assert_eq!(watch.value("xmtp_auth_keys"), Some(1));
        backend.stop().await;
        let warnings = watch.events("a key of the JWKS is not usable and is skipped");
        assert_eq!(warnings[0]["level"], "WARN");
        assert_eq!(warnings[0]["kid"], "k".repeat(32));
        assert!(warnings[1].get("kid").is_none());
        let everything = [watch.log(), watch.spans(), watch.metrics.render()].concat();
        assert!(!everything.contains("planted"), "{everything}");
    });
}

#[test]
fn auth_016_many_entries_that_are_skipped_are_one_more_line() {
    Watch::run(LogLevel::Warn, async |watch| {
        let mut entries = vec![json!({ "kid": "planted" }); 1000];
        entries.push(Issuer::new("one").jwk());
        let publication = Publication::start(&entries).await;
        let backend = Backend::with_auth(&publication.settings()).await;
        backend.stop().await;
        let single = watch.events("a key of the JWKS is not usable and is skipped");
        assert_eq!(single.len(), 8);
        let rest = watch.events("more keys of the JWKS are not usable and are skipped");
        assert_eq!(rest.len(), 1);
        assert_eq!(rest[0]["more"], 992);
    });
}
