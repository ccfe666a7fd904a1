use xmtp_server::config::checks::retention_fits;
use xmtp_server::config::sections::{Retention, WELL_KNOWN_NAMES};

use crate::{load, minimal, refused, with};

/// The minimal document with keys of `[table]` in one line.
fn table(table: &str, keys: &str) -> String {
    if table == "database" {
        minimal() + keys
    } else {
        minimal() + &format!("[{table}]\n{keys}\n")
    }
}

#[test]
fn arc_100_a_publish_outlasts_its_statements() {
    let text = with("publishing.max_publish_duration_ms", "5000");
    assert_eq!(
        refused(&text),
        ["publishing.max_publish_duration_ms (line 6, column 27): \
          must be above database.max_statement_timeout_ms"]
    );
    assert!(load(&with("publishing.max_publish_duration_ms", "5001")).is_ok());
    // The key is named, without a place, where it is at its default.
    let text = table("database", "max_statement_timeout_ms = 10000");
    assert!(refused(&text)[0].starts_with("publishing.max_publish_duration_ms: must be above"));
}

#[test]
fn arc_100_a_pong_has_longer_than_the_keepalive() {
    let text = with("streams.max_pong_wait_ms", "30000");
    assert_eq!(
        refused(&text),
        ["streams.max_pong_wait_ms (line 6, column 20): \
          must be above streams.keepalive_interval_ms"]
    );
    assert!(load(&with("streams.max_pong_wait_ms", "30001")).is_ok());
}

#[test]
fn arc_100_the_largest_query_limit_covers_the_default_one() {
    assert_eq!(
        refused(&with("limits.max_query_limit", "99")),
        ["limits.max_query_limit (line 6, column 19): \
          must be at least limits.default_query_limit"]
    );
    assert!(load(&with("limits.max_query_limit", "100")).is_ok());
}

#[test]
fn arc_100_an_update_adds_no_more_than_a_stream_holds() {
    assert_eq!(
        refused(&with("limits.max_update_adds", "100001")),
        ["limits.max_update_adds (line 6, column 19): must be at most limits.max_stream_topics"]
    );
    assert!(
        load(&table(
            "limits",
            "max_update_adds = 7\nmax_stream_topics = 7"
        ))
        .is_ok()
    );
}

#[test]
fn ops_021_an_envelope_fits_what_it_travels_through() {
    let limits = |envelope: u64, request: u64, response: u64| {
        table(
            "limits",
            &format!(
                "max_envelope_bytes = {envelope}\nmax_request_bytes = {request}\n\
                 max_response_bytes = {response}"
            ),
        )
    };
    let cap = 26_214_400;
    // One byte of tag, and of length one up to 127, two up to 16383, three, four.
    for (envelope, length) in [
        (1, 1),
        (127, 1),
        (128, 2),
        (16_383, 2),
        (16_384, 3),
        (2_096_896, 3),
    ] {
        let request = envelope + 1 + length;
        let response = envelope + 256;
        assert!(
            load(&limits(envelope, request, response)).is_ok(),
            "{envelope}"
        );
        for text in [
            limits(envelope, request - 1, response),
            limits(envelope, request, response - 1),
        ] {
            assert_eq!(
                refused(&text),
                [
                    "limits.max_envelope_bytes (line 6, column 22): must, with its framing, \
                  fit limits.max_request_bytes and limits.max_response_bytes"
                ]
            );
        }
    }
    let lines = refused(&limits(2_096_897, cap, cap));
    assert!(
        lines[0].ends_with("expected an integer from 1 to 2096896"),
        "the delivery frame"
    );
}

#[test]
fn arc_100_every_failed_check_is_reported() {
    let text = minimal()
        + "[streams]\nmax_pong_wait_ms = 1\n[limits]\nmax_query_limit = 1\nmax_update_adds = 200000\n";
    let lines = refused(&text);
    let keys: Vec<_> = lines
        .iter()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(
        keys,
        [
            "streams.max_pong_wait_ms",
            "limits.max_query_limit",
            "limits.max_update_adds"
        ]
    );
}

#[test]
fn arc_100_checks_are_reported_beside_what_does_not_decode() {
    let text = "[server]\nlisten = 3\n\
                [streams]\nmax_pong_wait_ms = 1\n\
                [limits]\nmax_query_limit = 1\ndefault_query_limit = \"many\"\n\
                max_update_adds = 200000\nmax_ping_burst = 0\n";
    let errors = load(text).expect_err("a refusal");
    let keys: Vec<_> = errors.iter().map(|error| error.key.as_str()).collect();
    // `max_query_limit` is not held against a default that nobody has set.
    assert_eq!(
        keys,
        [
            "database.url",
            "server.identifier",
            "server.listen",
            "streams.max_pong_wait_ms",
            "limits.default_query_limit",
            "limits.max_update_adds",
            "limits.max_ping_burst"
        ]
    );
}

#[test]
fn conf_078_an_entry_is_checked_beside_a_refused_one() {
    let refused_entry = component(&[("in_dms", "7")]);
    let text = minimal() + &component(&[]) + &refused_entry + &component(&[]);
    let errors = load(&text).expect_err("a refusal");
    let keys: Vec<_> = errors.iter().map(|error| error.key.as_str()).collect();
    assert_eq!(
        keys,
        [
            "application_components[1].in_dms",
            "application_components[2].component_id",
            "application_components[2].name"
        ]
    );
    let text = format!("application_components = 3\n{}", minimal());
    assert_eq!(
        refused(&text),
        ["application_components (line 1, column 26): expected an array"]
    );
}

#[test]
fn ops_013_reserved_resource_attributes_are_refused() {
    for name in ["service.name", "service.version", "xmtp.backend.identifier"] {
        let text = with(
            "telemetry.resource_attributes",
            &format!("{{ {name:?} = \"x\" }}"),
        );
        let lines = refused(&text);
        assert_eq!(lines.len(), 1);
        assert!(
            lines[0].starts_with("telemetry.resource_attributes (line 6, column 23): must not")
        );
    }
    assert!(
        load(&with(
            "telemetry.resource_attributes",
            "{ \"service.names\" = \"x\" }"
        ))
        .is_ok()
    );
}

#[test]
fn ops_022_metrics_have_an_address_of_their_own() {
    let addresses = |grpc: &str, metrics: &str| {
        with("server.listen", &format!("{grpc:?}"))
            + &format!("[telemetry]\nmetrics_listen = {metrics:?}\n")
    };
    for (grpc, metrics) in [
        ("127.0.0.1:5050", "127.0.0.1:5050"),
        ("0.0.0.0:5050", "127.0.0.1:5050"),
        ("127.0.0.1:5050", "0.0.0.0:5050"),
        ("[::]:5050", "[::1]:5050"),
    ] {
        let lines = refused(&addresses(grpc, metrics));
        let expected = "telemetry.metrics_listen (line 7, column 18): must not be the address of server.listen";
        assert_eq!(lines, [expected], "{grpc} {metrics}");
    }
    for (grpc, metrics) in [
        ("127.0.0.1:5050", "127.0.0.2:5050"),
        ("127.0.0.1:5050", "[::1]:5050"),
        ("0.0.0.0:5050", "0.0.0.0:5051"),
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("0.0.0.0:5050", ""),
    ] {
        assert!(load(&addresses(grpc, metrics)).is_ok(), "{grpc} {metrics}");
    }
    // At its default as well.
    let lines = refused(&with("server.listen", "\"0.0.0.0:9464\""));
    assert!(lines[0].starts_with("telemetry.metrics_listen: must not be"));
}

#[test]
fn ops_020_retention_periods_end_within_the_stored_time() {
    let config = load(&with("retention.welcome_seconds", "9223372036")).expect("within bounds");
    let longest_ns = 9_223_372_036_000_000_000;
    let latest = i64::MAX - longest_ns;
    assert_eq!(retention_fits(latest, &config.retention), Ok(()));
    let error = retention_fits(latest + 1, &config.retention).expect_err("too late");
    assert_eq!(error.key, "retention.welcome_seconds");

    let error = retention_fits(i64::MAX, &Retention::default()).expect_err("too late");
    assert_eq!(error.key, "retention.group_message_seconds");
    assert_eq!(retention_fits(0, &Retention::default()), Ok(()));
}

fn component(change: &[(&str, &str)]) -> String {
    let mut keys = vec![
        ("component_id", "49152"),
        ("name", "\"COLOR\""),
        ("component_type", "\"bytes\""),
        ("insert_policy", "\"allow\""),
        ("update_policy", "\"allow_if_admin\""),
        ("delete_policy", "\"deny\""),
        ("in_groups", "true"),
        ("in_dms", "false"),
    ];
    for (key, value) in &mut keys {
        if let Some((_, changed)) = change.iter().find(|(name, _)| name == key) {
            *value = changed;
        }
    }
    let lines = keys.iter().filter(|(_, value)| !value.is_empty());
    lines.fold(
        "[[application_components]]\n".to_owned(),
        |text, (key, value)| text + &format!("{key} = {value}\n"),
    )
}

/// A sound entry, then the changed one.
fn second(change: &[(&str, &str)]) -> Vec<String> {
    let change = [("component_id", "49153"), ("name", "\"SHAPE\"")]
        .into_iter()
        .filter(|(key, _)| change.iter().all(|(changed, _)| changed != key))
        .chain(change.iter().copied())
        .collect::<Vec<_>>();
    match load(&(minimal() + &component(&[]) + &component(&change))) {
        Ok(_) => Vec::new(),
        Err(errors) => crate::shown(&errors),
    }
}

#[test]
fn conf_078_application_components_are_checked_entry_by_entry() {
    let long = format!("\"{}\"", "n".repeat(101));
    let at = "application_components[1]";
    assert!(second(&[]).is_empty());
    assert!(
        second(&[("name", "\"group_name\"")]).is_empty(),
        "case matters"
    );
    for (change, expected) in [
        (
            ("component_id", "49151"),
            format!("{at}.component_id: expected an integer from 49152"),
        ),
        (
            ("component_id", "65280"),
            format!("{at}.component_id: expected an integer from 49152"),
        ),
        (
            ("component_id", "49152"),
            format!("{at}.component_id: repeats an earlier id"),
        ),
        (
            ("name", "\"COLOR\""),
            format!("{at}.name: repeats an earlier name"),
        ),
        (
            ("name", "\"\""),
            format!("{at}.name: expected a name of 1 to 100 bytes"),
        ),
        (
            ("name", &long),
            format!("{at}.name: expected a name of 1 to 100 bytes"),
        ),
        (
            ("in_groups", "false"),
            format!("{at}: must be in groups or in direct messages"),
        ),
        (
            ("component_type", "\"hunter2-Zx9\""),
            format!("{at}.component_type: expected one of"),
        ),
        (
            ("delete_policy", "\"Deny\""),
            format!("{at}.delete_policy: expected one of \"allow\""),
        ),
        (("in_dms", ""), format!("{at}.in_dms: required")),
    ] {
        let lines = second(&[change]);
        assert_eq!(lines.len(), 1, "{change:?}");
        let (place, rest) = lines[0].split_once(" (line ").expect("a place");
        let (_, refusal) = rest.split_once("): ").expect("a refusal");
        assert!(
            format!("{place}: {refusal}").starts_with(&expected),
            "{lines:?}"
        );
    }
    for name in WELL_KNOWN_NAMES {
        let lines = second(&[("name", &format!("{name:?}"))]);
        assert!(
            lines[0].ends_with("is the name of a well-known component"),
            "{lines:?}"
        );
    }
}
