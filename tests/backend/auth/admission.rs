//! Which requests need a credential, and what those without one are answered.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Version};
use http_body_util::Full;
use prost::Message;
use serde_json::json;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};
use xmtp_protocol::TopicKind;
use xmtp_protocol::proto::xmtp::backend::v1::auth_configuration::SigningKey;
use xmtp_protocol::proto::xmtp::backend::v1::subscribe_static_response::Response;
use xmtp_protocol::proto::xmtp::backend::v1::{
    AuthConfiguration, GetConfigurationRequest, GetConfigurationResponse, PublishRequest,
    SubscribeStaticRequest,
};
use xmtp_server::StartError;
use xmtp_test_support::payloads::{group_message, topic};
use xmtp_test_support::{TestDatabase, eventually};

use super::issuer::{Issuer, claims, now};
use super::{API_KEY, ONE_API_KEY, QUERY, bearer};
use crate::harness::{Backend, configured_with_auth, query, within};
use crate::publish;
use crate::raw::{self, Answer, frame};

const CONFIGURATION: &str = "/xmtp.backend.v1.ConfigurationService/GetConfiguration";

const PUBLIC: [&str; 3] = [
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/List",
    CONFIGURATION,
];

/// Paths of every other kind.
const PROTECTED: [&str; 9] = [
    QUERY,
    publish::PATH,
    "/xmtp.backend.v1.QueryService/Nothing",
    "/nothing.Nothing/Nothing",
    "/",
    "/xmtp.backend.v1.QueryService/Query/",
    "/grpc.health.v2.Health/Check",
    "/xmtp.backend.v1.ConfigurationServices/GetConfiguration",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
];

#[track_caller]
fn assert_rejected(answer: &Answer, code: Code, text: &str, what: &str) {
    assert_eq!(answer.http, 200, "{what}");
    let status = answer.status();
    assert_eq!(status.code(), code, "{what}");
    assert_eq!(status.message(), text, "{what}");
    assert!(answer.messages.is_empty(), "{what}");
    assert!(answer.header("x-request-id").is_some(), "{what}");
    assert_eq!(
        answer.header("access-control-allow-origin"),
        Some("*"),
        "{what}"
    );
    let exposed = answer
        .header("access-control-expose-headers")
        .expect("exposed");
    assert!(exposed.contains("x-request-id") && exposed.contains("grpc-status"));
}

#[tokio::test]
async fn auth_001_auth_002_every_path_but_the_public_ones_needs_a_credential() {
    let backend = Backend::with_auth(ONE_API_KEY).await;
    let missing = "missing bearer token";
    for path in PROTECTED {
        // The body is not looked at.
        for body in [&b""[..], b"\xff"] {
            let native = raw::native(backend.address, path, frame(body), &[]).await;
            assert_rejected(&native, Code::Unauthenticated, missing, path);
            assert_eq!(native.header("content-type"), Some("application/grpc"));
            let web = raw::web(backend.address, path, frame(body), &[]).await;
            assert_rejected(&web, Code::Unauthenticated, missing, path);
            assert_eq!(
                web.header("content-type"),
                Some("application/grpc-web+proto")
            );
        }
        let good = bearer(API_KEY);
        let headers = [("authorization", good.as_str())];
        for answer in [
            raw::native(backend.address, path, frame(b""), &headers).await,
            raw::web(backend.address, path, frame(b""), &headers).await,
        ] {
            let expected = match path {
                QUERY | publish::PATH => [Code::Ok, Code::InvalidArgument],
                _ => [Code::Unimplemented; 2],
            };
            assert!(expected.contains(&answer.code()), "{path}: {answer:?}");
        }
    }
    for path in PUBLIC {
        // The header is not read.
        for headers in [&[][..], &[("authorization", "nonsense")]] {
            let native = raw::native(backend.address, path, frame(b""), headers).await;
            assert_eq!(native.code(), Code::Ok, "{path}");
            let web = raw::web(backend.address, path, frame(b""), headers).await;
            assert_eq!(web.code(), Code::Ok, "{path}");
        }
    }
}

#[tokio::test]
async fn auth_001_neither_the_method_nor_the_content_type_opens_a_path() {
    let backend = Backend::with_auth(ONE_API_KEY).await;
    for (method, kind, answered) in [
        ("GET", "text/html", "application/grpc"),
        ("POST", "application/json", "application/grpc"),
        ("PUT", "application/grpc", "application/grpc"),
        ("GET", "application/grpc-web", "application/grpc-web+proto"),
        ("HEAD", "", "application/grpc"),
    ] {
        let request = Request::builder()
            .method(method)
            .uri(QUERY)
            .header("content-type", kind)
            .body(Full::new(Bytes::new()))
            .expect("legal");
        let answer = raw::http1(backend.address, request).await;
        assert_eq!(answer.status(), 200, "{method} {kind}");
        assert_eq!(answer.headers()["grpc-status"], "16", "{method} {kind}");
        assert_eq!(answer.headers()["content-type"], answered);
    }
    // A browser's question is answered, whatever the header says.
    let preflight = raw::preflight(backend.address, QUERY, "authorization,content-type").await;
    assert!(preflight.http.is_success());
    let allowed = preflight.header("access-control-allow-headers");
    assert_eq!(allowed, Some("authorization,content-type"));
    let request = Request::options(QUERY)
        .header("origin", "https://app.example.org")
        .header("access-control-request-method", "POST")
        .header("authorization", "nonsense")
        .body(Full::default())
        .expect("legal");
    let answer = raw::http1(backend.address, request).await;
    assert!(answer.status().is_success());
    assert!(!answer.headers().contains_key("grpc-status"));
}

#[tokio::test]
async fn auth_002_only_a_preflight_is_answered_without_a_credential() {
    let backend = Backend::with_auth(ONE_API_KEY).await;
    let origin = ("origin", "https://app.example.org");
    let asks = ("access-control-request-method", "POST");
    for version in [Version::HTTP_11, Version::HTTP_2] {
        for (headers, is_preflight) in [
            (&[][..], false),
            (&[origin], false),
            (&[asks], true),
            (
                &[("access-control-request-headers", "authorization"), origin],
                false,
            ),
            (&[origin, asks], true),
        ] {
            let request = Request::options(QUERY);
            let request = headers.iter().fold(request, |request, (name, value)| {
                request.header(*name, *value)
            });
            let request = request.body(Full::default()).expect("legal");
            let answer = raw::refusable(version, backend.address, request).await;
            let answer = answer.expect("answered");
            assert_eq!(answer.status(), 200, "{version:?} {headers:?}");
            let status = answer.headers().get("grpc-status");
            let rejected = status.is_some_and(|status| status == "16");
            assert_eq!(rejected, !is_preflight, "{version:?} {headers:?}");
            // What is not a preflight is an answer that scripts may read.
            let exposed = answer
                .headers()
                .contains_key("access-control-expose-headers");
            assert_eq!(exposed, !is_preflight, "{version:?} {headers:?}");
        }
    }
}

#[tokio::test]
async fn auth_002_no_spelling_of_a_path_leads_past_the_gate() {
    let backend = Backend::with_auth(ONE_API_KEY).await;
    // They only resemble a public path.
    for path in [
        "/%67rpc.health.v1.Health/Check",
        "/grpc%2ehealth.v1.Health/Check",
        "//grpc.health.v1.Health/Check",
        "/./grpc.health.v1.Health/Check",
        "/Grpc.health.v1.Health/Check",
        "/grpc.health.v1",
        "/xmtp.backend.v1.ConfigurationService",
        "/xmtp.backend.v1.ConfigurationService%2FGetConfiguration",
        "/xmtp.backend.v1.QueryService/Query?/grpc.health.v1.Health/Check",
        "/xmtp.backend.v1.QueryService/Query#/grpc.health.v1.Health/Check",
    ] {
        for answer in [
            raw::native(backend.address, path, frame(b""), &[]).await,
            raw::web(backend.address, path, frame(b""), &[]).await,
        ] {
            assert_rejected(&answer, Code::Unauthenticated, "missing bearer token", path);
        }
    }
    // They begin as a public one, and nothing takes them for another.
    for path in [
        "/grpc.health.v1./../xmtp.backend.v1.QueryService/Query",
        "/grpc.health.v1.%2F..%2Fxmtp.backend.v1.QueryService/Query",
        "/xmtp.backend.v1.ConfigurationService/../QueryService/Query",
        "/xmtp.backend.v1.ConfigurationService/%2e%2e/QueryService/Query",
        "/xmtp.backend.v1.ConfigurationService/GetConfiguration/",
        "/grpc.health.v1.Health/Check/",
    ] {
        for answer in [
            raw::native(backend.address, path, frame(b""), &[]).await,
            raw::web(backend.address, path, frame(b""), &[]).await,
        ] {
            assert_eq!(answer.code(), Code::Unimplemented, "{path}");
        }
    }
}

#[tokio::test]
async fn auth_005_a_credential_is_in_the_authorization_header_and_nowhere_else() {
    let backend = Backend::with_auth(ONE_API_KEY).await;
    let good = bearer(API_KEY);
    let encoded = STANDARD.encode(&good);
    for header in [
        ("authorization-bin", encoded.as_str()),
        ("proxy-authorization", &good),
        ("x-authorization", &good),
        ("cookie", &format!("authorization={good}")),
    ] {
        let path = format!("{QUERY}?authorization={API_KEY}&access_token={API_KEY}");
        let answer = raw::native(backend.address, &path, frame(b""), &[header]).await;
        let text = "missing bearer token";
        assert_rejected(&answer, Code::Unauthenticated, text, header.0);
    }
    // Its name has no case.
    let headers = [("Authorization", good.as_str())];
    let answer = raw::web(backend.address, QUERY, frame(b""), &headers).await;
    assert_eq!(answer.code(), Code::Ok);
    // Two of them are none, in whatever order.
    for headers in [[&good, "Bearer other"], ["Bearer other", &good]] {
        let headers = headers.map(|value| ("authorization", value));
        let answer = raw::web(backend.address, QUERY, frame(b""), &headers).await;
        let text = "authorization header is not a bearer token";
        assert_rejected(&answer, Code::Unauthenticated, text, "two headers");
    }
}

#[tokio::test]
async fn auth_030_the_longest_api_key_passes_and_a_header_of_a_mebibyte_harms_nobody() {
    let longest = "k".repeat(8192);
    let settings = format!("auth.enabled = true\nauth.api_keys.long = {longest:?}");
    let backend = Backend::with_auth(&settings).await;
    let good = bearer(&longest);
    let headers = [("authorization", good.as_str())];
    let served = async || {
        let native = raw::native(backend.address, QUERY, frame(b""), &headers).await;
        assert_eq!(native.code(), Code::Ok);
        let web = raw::web(backend.address, QUERY, frame(b""), &headers).await;
        assert_eq!(web.code(), Code::Ok);
    };
    served().await;
    let huge = bearer(&"k".repeat(1 << 20));
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let request = Request::post(QUERY)
            .header("content-type", "application/grpc-web+proto")
            .header("authorization", &huge)
            .body(Full::new(frame(b"")))
            .expect("legal");
        // Too long for HTTP: there is a refusal, or the end of the connection.
        if let Some(answer) = raw::refusable(version, backend.address, request).await {
            assert_eq!(answer.status(), 431, "{version:?}");
        }
    }
    served().await;
}

#[tokio::test]
async fn auth_003_while_off_the_header_is_not_read() {
    let off = format!("{ONE_API_KEY}\nauth.enabled = false\nauth.required_scopes = [\"use\"]");
    for settings in ["", &off] {
        let backend = Backend::with_auth(settings).await;
        for header in [
            "nonsense",
            "Bearer",
            "Basic abc",
            &bearer(&"x".repeat(9000)),
        ] {
            let headers = [("authorization", header)];
            let answer = raw::native(backend.address, QUERY, frame(b""), &headers).await;
            assert_eq!(answer.code(), Code::Ok);
            let unknown = raw::web(backend.address, "/no.No/No", frame(b""), &headers).await;
            assert_eq!(unknown.code(), Code::Unimplemented);
        }
        // CONF-068: nothing else is told.
        let told = get_configuration(&backend).await.auth;
        assert_eq!(told, Some(AuthConfiguration::default()));
    }
}

#[tokio::test]
async fn auth_014_each_reason_is_answered_over_both_transports() {
    let issuer = Issuer::new("one");
    let settings = format!(
        "{ONE_API_KEY}\n{}\nauth.audiences = [\"here\"]\nauth.issuers = [\"issuer\"]\n\
         auth.required_scopes = [\"use\"]\nauth.leeway_seconds = 0",
        issuer.settings()
    );
    let backend = Backend::with_auth(&settings).await;
    let token = |name: &str, value: serde_json::Value| {
        let mut claims = claims();
        claims[name] = value;
        bearer(&issuer.token(&claims))
    };
    let unsupported = "token is not a supported JWT";
    let rows = [
        (
            "Basic abc".to_owned(),
            "authorization header is not a bearer token",
        ),
        (bearer("abc"), unsupported),
        (bearer(&"a".repeat(8193)), unsupported),
        (
            bearer(&issuer.token_of("HS256", "one", &claims())),
            unsupported,
        ),
        (token("sub", json!(1)), unsupported),
        (
            bearer(&issuer.token_of("EdDSA", "two", &claims())),
            "token signature is not trusted",
        ),
        (
            bearer(&Issuer::new("one").token(&claims())),
            "token signature is not trusted",
        ),
        (token("exp", json!(now() - 1)), "token has expired"),
        (token("nbf", json!(now() + 3600)), "token is not yet valid"),
        (
            token("aud", json!("elsewhere")),
            "token audience is not allowed",
        ),
        (
            token("iss", json!("stranger")),
            "token issuer is not allowed",
        ),
        (
            token("scope", json!("other")),
            "token is missing a required scope",
        ),
    ];
    for (header, text) in rows {
        let headers = [("authorization", header.as_str())];
        let code = if text.contains("scope") {
            Code::PermissionDenied
        } else {
            Code::Unauthenticated
        };
        for path in [QUERY, "/nothing.Nothing/Nothing"] {
            let native = raw::native(backend.address, path, frame(b"\xff"), &headers).await;
            assert_rejected(&native, code, text, text);
            let web = raw::web(backend.address, path, frame(b"\xff"), &headers).await;
            assert_rejected(&web, code, text, text);
        }
    }
    let twice = bearer(API_KEY);
    let headers = [
        ("authorization", twice.as_str()),
        ("authorization", twice.as_str()),
    ];
    let answer = raw::native(backend.address, QUERY, frame(b""), &headers).await;
    let text = "authorization header is not a bearer token";
    assert_rejected(&answer, Code::Unauthenticated, text, "two headers");
    for header in [bearer(&issuer.token(&claims())), bearer(API_KEY)] {
        let headers = [("authorization", header.as_str())];
        let answer = raw::native(backend.address, QUERY, frame(b""), &headers).await;
        assert_eq!(answer.code(), Code::Ok, "scopes are not asked of API keys");
    }
}

#[tokio::test]
async fn conf_011_conf_068_clients_are_told_what_they_need_and_no_more() {
    let issuer = Issuer::new("one");
    let settings = format!(
        "{ONE_API_KEY}\n{}\nauth.audiences = [\"here\"]\nauth.issuers = [\"issuer\"]\n\
         auth.required_scopes = [\"use\"]",
        issuer.settings()
    );
    let backend = Backend::with_auth(&settings).await;
    let told = get_configuration(&backend).await;
    let expected = AuthConfiguration {
        enabled: true,
        keys: vec![SigningKey {
            kid: "one".to_owned(),
            alg: "EdDSA".to_owned(),
        }],
        audiences: vec!["here".to_owned()],
        issuers: vec!["issuer".to_owned()],
        required_scopes: vec!["use".to_owned()],
    };
    assert_eq!(told.auth, Some(expected));
    let bytes = told.encode_to_vec();
    for word in ["mobile", "planted", "PUBLIC"] {
        assert!(
            !bytes
                .windows(word.len())
                .any(|part| part == word.as_bytes()),
            "{word}"
        );
    }
}

async fn get_configuration(backend: &Backend) -> GetConfigurationResponse {
    let answer = backend
        .configuration()
        .get_configuration(GetConfigurationRequest {})
        .await;
    answer.expect("no credential is needed").into_inner()
}

#[tokio::test]
async fn auth_007_with_api_keys_alone_every_other_token_is_untrusted() {
    let backend = Backend::with_auth(ONE_API_KEY).await;
    let issuer = Issuer::new("one");
    let tokens = [
        "abc".to_owned(),
        "a".repeat(8193),
        format!("{API_KEY}x"),
        API_KEY[1..].to_owned(),
        API_KEY.to_uppercase(),
        issuer.token(&claims()),
    ];
    for token in tokens {
        let header = bearer(&token);
        let headers = [("authorization", header.as_str())];
        let answer = raw::native(backend.address, QUERY, frame(b""), &headers).await;
        let text = "token signature is not trusted";
        assert_rejected(&answer, Code::Unauthenticated, text, &token);
    }
}

fn request<T>(message: T, token: &str) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    let header: MetadataValue<_> = bearer(token).parse().expect("legal");
    request.metadata_mut().insert("authorization", header);
    request
}

#[tokio::test]
async fn auth_004_a_stream_outlives_the_token_that_it_was_opened_with() {
    let issuer = Issuer::new("one");
    let settings = format!(
        "{ONE_API_KEY}\n{}\nauth.leeway_seconds = 0",
        issuer.settings()
    );
    let backend = Backend::with_auth(&settings).await;
    // Long enough for a busy machine to open a stream.
    let token = issuer.token(&json!({ "exp": now() + 10 }));
    let group = topic(TopicKind::GroupMessage, 1);
    let open = async || {
        let message = SubscribeStaticRequest {
            topics: vec![query(&group, 0)],
        };
        let mut client = backend.subscriptions();
        Ok::<_, Status>(
            client
                .subscribe_static(request(message, &token))
                .await?
                .into_inner(),
        )
    };
    let mut stream = open().await.expect("the token is valid");
    let refused = eventually("the token has expired", async || open().await.err()).await;
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert_eq!(refused.message(), "token has expired");
    let message = PublishRequest {
        envelopes: vec![group_message(1, "after the expiry")],
    };
    let published = backend.publisher().publish(request(message, API_KEY)).await;
    published.expect("the API key is valid");
    loop {
        let frame = within(stream.message())
            .await
            .expect("healthy")
            .expect("open");
        if let Some(Response::Messages(messages)) = frame.response {
            assert_eq!(messages.envelopes.len(), 1);
            break;
        }
    }
}

#[tokio::test]
async fn conf_009_scopes_that_make_the_answer_too_long_keep_the_server_from_starting() {
    let scopes: Vec<String> = (0..700)
        .map(|number| format!("\"{number:0>100}\""))
        .collect();
    let settings = format!(
        "{ONE_API_KEY}\nauth.required_scopes = [{}]",
        scopes.join(", ")
    );
    let database = TestDatabase::create().await;
    let error = configured_with_auth(&database, &settings)
        .start()
        .await
        .err();
    assert!(matches!(error, Some(StartError::Published(_))), "{error:?}");
    assert!(
        error
            .expect("refused")
            .to_string()
            .contains("configuration response")
    );
}
