//! A build as its operator first meets it: the example configuration that it writes, the services that it has, and what
//! it says of those that it lacks. `ci/boot-matrix` runs this on the minimal build, on each subsystem alone and on all,
//! so that it asks the program what it has.

use tonic::Code;
use xmtp_protocol::client::HealthClient;
use xmtp_protocol::proto::grpc::health::v1::HealthListRequest;
use xmtp_protocol::proto::grpc::health::v1::health_check_response::ServingStatus;
use xmtp_test_support::TestDatabase;

use crate::harness::connect;
use crate::process::{Process, run};
use crate::raw::{self, frame};

/// One call of each service that every build has; an empty message is legal in all of them or refused as a request.
const CORE: [&str; 5] = [
    "/xmtp.backend.v1.ConfigurationService/GetConfiguration",
    "/xmtp.backend.v1.IdentityService/GetInboxIds",
    "/xmtp.backend.v1.PublishService/Publish",
    "/xmtp.backend.v1.QueryService/Query",
    "/xmtp.backend.v1.SubscriptionService/SubscribeStatic",
];

/// Services that this build lacks.
const ABSENT: [&str; 3] = [
    "/xmtp.backend.v1.NotificationService/Register",
    "/xmtp.backend.v1.AttachmentService/CreateUpload",
    "/xmtp.mls.api.v1.MlsApi/QueryGroupMessages",
];

#[tokio::test]
async fn arc_100_a_build_serves_with_its_example_what_it_has_and_nothing_else() {
    let output = run(["config", "example"]).await;
    assert!(output.status.success(), "{output:?}");
    let mut example = String::from_utf8(output.stdout).expect("the program writes text");
    // Ports that are free, and a log that a test can read.
    for (written, here) in [
        ("listen = \"0.0.0.0:5050\"", "listen = \"127.0.0.1:0\""),
        ("metrics_listen = \"0.0.0.0:9464\"", "metrics_listen = \"\""),
        ("log_format = \"text\"", "log_format = \"json\""),
    ] {
        assert!(example.contains(written), "{written}");
        example = example.replacen(written, here, 1);
    }
    let database = TestDatabase::create().await;
    let url = database.url();
    let server = Process::serve_document(&example, &[("XMTP_DATABASE_URL", &url)]).await;

    let mut health = HealthClient::new(connect(server.address).await);
    let list = health.list(HealthListRequest {}).await.expect("answered");
    let statuses = list.into_inner().statuses;
    assert_eq!(statuses.len(), CORE.len() + 1, "and the empty name");
    for (name, status) in &statuses {
        assert_eq!(status.status(), ServingStatus::Serving, "{name}");
    }
    for path in CORE {
        let (_, service) = path.split_once('/').expect("a path");
        let (service, _) = service.split_once('/').expect("a path");
        assert!(statuses.contains_key(service), "{service}");
        let answer = raw::native(server.address, path, frame(b""), &[]).await;
        let expected = [Code::Ok, Code::InvalidArgument];
        assert!(
            expected.contains(&answer.code()),
            "{path}: {:?}",
            answer.status()
        );
    }
    for path in ABSENT {
        let answer = raw::native(server.address, path, frame(b""), &[]).await;
        assert_eq!(answer.code(), Code::Unimplemented, "{path}");
    }
}

#[tokio::test]
async fn arc_100_a_part_of_an_absent_subsystem_is_refused_by_the_feature_that_it_needs() {
    let output = run(["subsystems"]).await;
    let subsystems = String::from_utf8(output.stdout).expect("the program writes text");
    let parts = [
        ("auth", "auth.enabled = true"),
        ("embedded-postgres", "database.url = \"embedded:data\""),
        (
            "otlp",
            "telemetry.otlp_endpoint = \"http://localhost:4317\"",
        ),
        (
            "replica",
            "database.replica_url = \"postgres://localhost/xmtp\"",
        ),
        (
            "scw",
            "chains.\"eip155:1\" = { url = \"https://localhost\" }",
        ),
        ("push", "push.enabled = true"),
    ];
    for (feature, part) in parts {
        if subsystems.lines().any(|present| present == feature) {
            continue;
        }
        let mut document = format!("server.identifier = \"org.example.boot\"\n{part}\n");
        if !part.starts_with("database.url") {
            document += "database.url = \"postgres://localhost/xmtp\"\n";
        }
        let output = run(["serve", "--config", &document]).await;
        assert_eq!(output.status.code(), Some(1), "{feature}: {output:?}");
        let said = String::from_utf8(output.stderr).expect("the program writes text");
        assert!(said.starts_with("CONFIG_SUBSYSTEM: "), "{said}");
        assert!(said.contains(&format!("`{feature}`")), "{feature}: {said}");
    }
}
