//! No request data in telemetry (OPS-014): every RPC is called with marked values, well and badly, natively
//! and as a browser does, and everything that the backend tells is searched for the marks.

use std::collections::HashMap;
#[cfg(feature = "otlp")]
use std::collections::HashSet;
use std::net::SocketAddr;

use base64::Engine;
use base64::alphabet;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::{NO_PAD, STANDARD_NO_PAD};
#[cfg(feature = "otlp")]
use nix::sys::signal::Signal;
use prost::Message;
use tonic::Status;
use xmtp_fixtures::{KeyPackageBuilder, envelope};
use xmtp_protocol::proto::xmtp::backend::v1::subscribe_request::{Request, Update};
use xmtp_protocol::proto::xmtp::backend::v1::{
    ClientEnvelope, Cursor, Ping, Pong, PublishRequest, QueryNewestRequest, QueryRequest,
    SubscribeRequest, SubscribeStaticRequest, Topic as WireTopic, TopicQuery,
};
use xmtp_protocol::{ParsedEnvelope, Topic, TopicKind};
use xmtp_server::config::sections::LogLevel;
use xmtp_server::telemetry::Catalogue;
use xmtp_test_support::TestDatabase;
use xmtp_test_support::payloads::{ContentType, identity_update, installation, mls_message, owner};

use super::watch::Watch;
use crate::harness::{Backend, wire};
#[cfg(feature = "otlp")]
use crate::otlp::collector::{Collector, Manner};
#[cfg(feature = "otlp")]
use crate::process::Process;
use crate::raw::{self, frame};

/// A value that nothing else can be taken for, in every form in which it could be told.
struct Mark {
    name: &'static str,
    forms: Vec<String>,
}

impl Mark {
    /// Of bytes: as text, escaped, in hex, in base64 at each of its three alignments, as numbers.
    fn bytes(name: &'static str, bytes: &[u8]) -> Self {
        let hex = hex::encode(bytes);
        let numbers: Vec<String> = bytes.iter().map(u8::to_string).collect();
        let mut forms = vec![
            hex.to_uppercase(),
            hex,
            bytes.escape_ascii().to_string(),
            numbers.join(", "),
            numbers.join(","),
        ];
        forms.extend(str::from_utf8(bytes).map(str::to_owned));
        let url_safe = GeneralPurpose::new(&alphabet::URL_SAFE, NO_PAD);
        for engine in [STANDARD_NO_PAD, url_safe] {
            for skipped in 0..3 {
                // Whole groups of three bytes look the same whatever stands around them.
                let whole = &bytes[skipped..];
                let whole = &whole[..whole.len() / 3 * 3];
                forms.push(engine.encode(whole));
            }
        }
        forms.retain(|form| form.len() >= 8);
        Self { name, forms }
    }

    /// Of a number: decimal, hex, and as the eight bytes of it.
    fn number(name: &'static str, number: u64) -> Self {
        let mut forms = vec![number.to_string(), format!("{number:x}")];
        forms.extend(Self::bytes(name, &number.to_be_bytes()).forms);
        forms.extend(Self::bytes(name, &number.to_le_bytes()).forms);
        Self { name, forms }
    }

    /// Of text.
    fn text(name: &'static str, text: &str) -> Self {
        Self::bytes(name, text.as_bytes())
    }

    fn is_in(&self, told: &str) -> bool {
        self.forms.iter().any(|form| told.contains(form))
    }
}

/// What is marked.
const GROUP: [u8; 16] = *b"\xa7Group\x9e\xd3\x81\xfe\xc2\x94\xb5\x8d\xe6\xf1";
const CONTENT: &[u8] = b"Content-of-a-message-\xf0\x9f\x92\x8c-\xba\xad\xf0\x0d";
const CURSOR: u64 = 7_318_349_182_736_450_121;
const NONCE: u64 = 8_127_364_519_283_746_511;
const TOKEN: &str = "Token-c2VjcmV0-4f1d8a6b";
const CHOSEN_ID: &str = "Chosen-id-6b1f4d8a";
const VERSION: &str = "Version-9d3e7c5f";
const AGENT: &str = "Agent-1c8e5b7d";
const PATH_PART: &str = "Path-3f9b6d2a";
const SERVICE: &str = "Service-5a7c9e1b";
const HANDLE: &str = "handle-2e4a6c8e.example.eth";

/// The bytes of every path of the route table, well and badly.
#[expect(clippy::too_many_lines, reason = "it is one table")]
fn requests(inbox: u8) -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let group = Topic::new(TopicKind::GroupMessage, &GROUP).expect("a topic");
    let cursor = Some(Cursor {
        sequence_id: CURSOR,
    });
    let beyond = Some(Cursor {
        sequence_id: CURSOR | 1 << 63,
    });
    let topic = |cursor| TopicQuery {
        topic: Some(wire(&group)),
        cursor,
    };
    let bad_topic = || WireTopic {
        topic: [&[99][..], &GROUP, CONTENT].concat().into(),
    };
    let bad = || TopicQuery {
        topic: Some(bad_topic()),
        cursor,
    };
    let publish = |envelopes| PublishRequest { envelopes }.encode_to_vec();
    let message = || mls_message(&GROUP, ContentType::Application, CONTENT);
    let other = mls_message(&GROUP, ContentType::Commit, CONTENT);
    let query = |queries| QueryRequest { queries, limit: 0 }.encode_to_vec();
    let newest = |topics, full| {
        QueryNewestRequest {
            topics,
            include_full_envelope: full,
        }
        .encode_to_vec()
    };
    let fixed = |topics| SubscribeStaticRequest { topics }.encode_to_vec();
    let update = |adds, removes| {
        let update = Update {
            id: NONCE,
            adds,
            removes,
        };
        SubscribeRequest {
            request: Some(Request::Update(update)),
        }
        .encode_to_vec()
    };
    let control = |request| {
        let request = Some(request);
        SubscribeRequest { request }.encode_to_vec()
    };
    let key_package = KeyPackageBuilder::new(&installation(), HANDLE).build();
    // No length of ours: raw bytes, and a message cut off in the middle.
    let garbage = || [b"\xff", CONTENT].concat();
    let cut = |mut bytes: Vec<u8>| {
        bytes.truncate(bytes.len() - 3);
        bytes
    };
    let identity = [0x0a, u8::try_from(HANDLE.len() + 2).expect("short"), 0x0a]
        .into_iter()
        .chain([u8::try_from(HANDLE.len()).expect("short")])
        .chain(HANDLE.bytes())
        .collect::<Vec<u8>>();
    vec![
        (
            "/xmtp.backend.v1.PublishService/Publish",
            vec![
                publish(vec![message(), message(), other]),
                publish(vec![identity_update(inbox, 1)]),
                publish(vec![envelope(key_package)]),
                publish(vec![message(), ClientEnvelope::default()]),
                cut(publish(vec![message()])),
                garbage(),
            ],
        ),
        (
            "/xmtp.backend.v1.QueryService/Query",
            vec![
                query(vec![topic(cursor), topic(None)]),
                query(vec![topic(beyond)]),
                query(vec![bad()]),
                cut(query(vec![topic(cursor)])),
                garbage(),
            ],
        ),
        (
            "/xmtp.backend.v1.QueryService/QueryNewest",
            vec![
                newest(vec![wire(&group)], true),
                newest(vec![wire(&group)], false),
                newest(vec![bad_topic()], false),
                garbage(),
            ],
        ),
        (
            "/xmtp.backend.v1.SubscriptionService/SubscribeStatic",
            vec![
                fixed(vec![topic(cursor)]),
                fixed(vec![topic(None)]),
                fixed(vec![topic(beyond)]),
                fixed(vec![bad()]),
                garbage(),
            ],
        ),
        (
            "/xmtp.backend.v1.SubscriptionService/Subscribe",
            vec![
                update(vec![topic(cursor)], vec![]),
                update(vec![topic(None)], vec![wire(&group)]),
                update(vec![bad()], vec![bad_topic()]),
                control(Request::Ping(Ping { nonce: NONCE })),
                control(Request::Pong(Pong { nonce: NONCE })),
                garbage(),
            ],
        ),
        (
            "/xmtp.backend.v1.IdentityService/GetInboxIds",
            vec![identity.clone(), garbage()],
        ),
        (
            "/xmtp.backend.v1.IdentityService/VerifySmartContractWalletSignatures",
            vec![identity.clone(), garbage()],
        ),
        (
            "/xmtp.backend.v1.ConfigurationService/GetConfiguration",
            vec![identity.clone(), garbage()],
        ),
        (
            "/grpc.health.v1.Health/Check",
            vec![health(SERVICE), garbage()],
        ),
        (
            "/grpc.health.v1.Health/Watch",
            vec![health(SERVICE), garbage()],
        ),
        ("/grpc.health.v1.Health/List", vec![identity, garbage()]),
    ]
}

fn health(service: &str) -> Vec<u8> {
    crate::health::named(service).encode_to_vec()
}

/// Everything that must not be told.
fn marks(inbox: u8) -> Vec<Mark> {
    let group = Topic::new(TopicKind::GroupMessage, &GROUP).expect("a topic");
    let identity = ParsedEnvelope::parse(identity_update(inbox, 1))
        .expect("it parses")
        .topic;
    let key_package = KeyPackageBuilder::new(&installation(), HANDLE).build();
    let key_package = ParsedEnvelope::parse(envelope(key_package))
        .expect("it parses")
        .topic;
    vec![
        Mark::bytes("group id", &GROUP),
        Mark::bytes("group topic", group.as_bytes()),
        Mark::bytes("inbox id", identity.identifier()),
        Mark::bytes("installation key", key_package.identifier()),
        Mark::bytes("address", &owner(inbox).address()),
        Mark::bytes("payload", CONTENT),
        Mark::bytes("start of the payload", &CONTENT[..12]),
        Mark::number("cursor", CURSOR),
        Mark::number("cursor beyond the range", CURSOR | 1 << 63),
        Mark::number("nonce", NONCE),
        Mark::text("token", TOKEN),
        Mark::text("chosen request id", CHOSEN_ID),
        Mark::text("client version", VERSION),
        Mark::text("user agent", AGENT),
        Mark::text("path", PATH_PART),
        Mark::text("service name", SERVICE),
        Mark::text("handle", HANDLE),
    ]
}

/// What a caller is told in words: its status.
fn words(status: &Status) -> String {
    let details = status.details();
    format!(
        "{:?} {} {}\n",
        status.code(),
        status.message(),
        details.escape_ascii()
    )
}

fn found<'a>(
    told: &HashMap<&'static str, String>,
    marks: &'a [Mark],
) -> Vec<(&'static str, &'a str)> {
    let found = told.iter().flat_map(|(place, text)| {
        let here = marks.iter().filter(|mark| mark.is_in(text));
        here.map(move |mark| (*place, mark.name))
    });
    found.collect()
}

/// Calls every RPC with marked values, well and badly, natively and as a browser does, and then while the database
/// fails.
async fn call_everything(address: SocketAddr, database: &TestDatabase, inbox: u8) -> Vec<Status> {
    let bearer = format!("Bearer {TOKEN}");
    let headers = [
        ("authorization", &*bearer),
        ("x-request-id", CHOSEN_ID),
        ("x-app-version", VERSION),
        ("x-libxmtp-version", VERSION),
        ("user-agent", AGENT),
        ("x-user-agent", AGENT),
        ("grpc-timeout", "300m"),
    ];
    let requests = requests(inbox);
    let called = requests.iter().map(|(path, _)| *path);
    let catalogue = Catalogue::new(&[]);
    let routes = catalogue.routes().iter().map(|route| route.path());
    let mut served: Vec<&str> = routes.collect();
    let mut called: Vec<&str> = called.collect();
    served.sort_unstable();
    called.sort_unstable();
    assert_eq!(called, served, "every RPC is called");

    let unknown = [
        format!("/{PATH_PART}.Service/{PATH_PART}"),
        format!("/xmtp.backend.v1.QueryService/{PATH_PART}"),
    ];
    let unknown = unknown.iter().map(|path| (&**path, vec![CONTENT.to_vec()]));
    let all = requests
        .iter()
        .map(|(path, bodies)| (*path, bodies.clone()));
    let mut statuses = Vec::new();
    for (path, bodies) in all.chain(unknown) {
        for body in bodies {
            for answer in [
                raw::native(address, path, frame(&body), &headers).await,
                raw::web(address, path, frame(&body), &headers).await,
            ] {
                statuses.push(answer.status());
            }
        }
    }
    // A database that fails meanwhile, too.
    database.kill_sessions("xmtp-backend").await;
    for (path, bodies) in &requests[..4] {
        let answer = raw::native(address, path, frame(&bodies[0]), &headers).await;
        statuses.push(answer.status());
    }
    statuses
}

#[test]
#[expect(
    clippy::print_stdout,
    reason = "how much was searched is part of the result"
)]
fn ops_014_nothing_of_a_request_is_in_logs_spans_metrics_or_statuses() {
    const INBOX: u8 = 77;
    Watch::run(LogLevel::Trace, async |watch| {
        let backend = Backend::start().await;
        let statuses = call_everything(backend.address, &backend.database, INBOX).await;
        let calls = statuses.len();
        let statuses = statuses.iter().map(words).collect();
        backend.stop().await;

        let told = HashMap::from([
            ("log", watch.log()),
            ("spans", watch.spans()),
            ("metrics", watch.metrics.render()),
            ("statuses", statuses),
        ]);
        let marks = marks(INBOX);
        let forms: usize = marks.iter().map(|mark| mark.forms.len()).sum();
        let sizes: Vec<String> = told
            .iter()
            .map(|(place, text)| format!("{place} {}", text.len()))
            .collect();
        println!(
            "{calls} calls; searched for {forms} forms of {} marks, in bytes: {}",
            marks.len(),
            sizes.join(", ")
        );
        for (place, least) in [
            ("log", 20_000),
            ("spans", 20_000),
            ("metrics", 10_000),
            ("statuses", 2_000),
        ] {
            assert!(
                told[place].len() > least,
                "{place} has not enough to be searched"
            );
        }
        assert_eq!(found(&told, &marks), []);
    });
}

#[cfg(feature = "otlp")]
#[tokio::test]
async fn ops_014_nothing_of_a_request_reaches_a_collector() {
    const INBOX: u8 = 78;
    let collector = Collector::start(Manner::Takes);
    let database = TestDatabase::create().await;
    let settings = format!(
        "telemetry.otlp_endpoint = \"{}\"\ntelemetry.otlp_logs = true\ntelemetry.otlp_metrics = true
         server.log_level = \"trace\"",
        collector.url()
    );
    let mut server = Process::serve(&database, &settings).await;
    call_everything(server.address, &database, INBOX).await;
    server.signal(Signal::SIGTERM);
    assert!(server.ended().await.success());
    let received = collector.received();
    // Spans of libraries are not looked through: none leaves.
    let catalogue = Catalogue::new(&[]);
    let mut names: HashSet<&str> = catalogue.operations().iter().copied().collect();
    names.extend(catalogue.routes().iter().map(|route| route.name()));
    names.insert("unknown/unknown");
    for span in received.spans() {
        assert!(names.contains(&*span.name), "{}", span.name);
    }
    let told = HashMap::from([
        ("traces", format!("{:?}", received.traces)),
        ("logs", format!("{:?}", received.logs)),
        ("metrics", format!("{:?}", received.metrics)),
    ]);
    for (place, text) in &told {
        assert!(text.len() > 50_000, "{place} has not enough to be searched");
    }
    assert_eq!(found(&told, &marks(INBOX)), []);
}

#[test]
fn ops_014_the_search_finds_every_mark_in_every_form_where_one_is_told() {
    const INBOX: u8 = 77;
    // As careless code would tell them.
    let careless = |bytes: &[u8]| {
        [
            format!("{bytes:?}"),
            format!("{:?}", bytes::Bytes::copy_from_slice(bytes)),
            hex::encode(bytes),
            STANDARD_NO_PAD.encode(bytes),
            STANDARD_NO_PAD.encode([b"x", bytes].concat()),
            STANDARD_NO_PAD.encode([b"xy", bytes, b"z"].concat()),
            String::from_utf8_lossy(bytes).into_owned(),
        ]
    };
    for (name, bytes) in [
        ("group id", &GROUP[..]),
        ("payload", CONTENT),
        ("token", TOKEN.as_bytes()),
        ("handle", HANDLE.as_bytes()),
    ] {
        let is_text = str::from_utf8(bytes).is_ok();
        let all = careless(bytes);
        let (text, others) = all.split_last().expect("there are some");
        for told in others.iter().chain(is_text.then_some(text)) {
            let told = HashMap::from([("log", format!("before {told} after"))]);
            let marks = marks(INBOX);
            assert!(found(&told, &marks).contains(&("log", name)), "{told:?}");
        }
    }
    for (name, number) in [("cursor", CURSOR), ("nonce", NONCE)] {
        for told in [
            format!("{number}"),
            format!("{number:#x}"),
            format!("{:?}", number.to_be_bytes()),
        ] {
            let told = HashMap::from([("log", told)]);
            assert!(
                found(&told, &marks(INBOX)).contains(&("log", name)),
                "{told:?}"
            );
        }
    }
    // The pipeline itself: what is told there is seen by the search.
    Watch::run(LogLevel::Trace, async |watch| {
        let _span = tracing::trace_span!(target: "xmtp_server", "careless", key = HANDLE).entered();
        tracing::trace!(target: "xmtp_server", content = ?CONTENT, "careless");
        let told = HashMap::from([("log", watch.log()), ("spans", watch.spans())]);
        let marks = marks(INBOX);
        let found = found(&told, &marks);
        for expected in [("log", "payload"), ("log", "handle"), ("spans", "handle")] {
            assert!(found.contains(&expected), "{expected:?}");
        }
    });
}
