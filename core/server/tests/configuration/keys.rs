//! Each key alone: type, form, bounds.

use xmtp_server::config::Refusal;
use xmtp_server::config::sections::LogLevel;

use crate::published::accepts;
use crate::{SECRET, load, minimal, refused, with};

const INTEGER: u64 = i64::MAX as u64;
const UINT32: u64 = u32::MAX as u64;
const INT32: u64 = i32::MAX as u64;

/// Every integer key: bounds and default.
pub(crate) const INTEGERS: [(&str, u64, u64, u64); 36] = [
    ("server.max_drain_duration_ms", 1, INTEGER, 10_000),
    ("database.max_connections", 1, UINT32, 20),
    ("database.max_statement_timeout_ms", 1, INT32, 5000),
    ("publishing.max_publish_duration_ms", 1, INT32, 10_000),
    ("publishing.max_barrier_wait_ms", 1, INT32, 1000),
    ("streams.poll_interval_ms", 1, INTEGER, 100),
    ("streams.max_gap_ranges", 1, INTEGER, 10_000),
    ("streams.keepalive_interval_ms", 1, UINT32, 30_000),
    ("streams.max_pong_wait_ms", 1, INTEGER, 90_000),
    (
        "retention.group_message_seconds",
        1,
        9_223_372_036,
        7_776_000,
    ),
    ("retention.welcome_seconds", 1, 9_223_372_036, 7_776_000),
    ("retention.key_package_seconds", 1, 9_223_372_036, 7_776_000),
    ("limits.max_query_topics", 1, UINT32, 1000),
    ("limits.default_query_limit", 1, UINT32, 100),
    ("limits.max_query_limit", 1, UINT32, 1000),
    ("limits.max_newest_metadata_topics", 1, UINT32, 1000),
    ("limits.max_newest_full_topics", 1, UINT32, 100),
    ("limits.max_publish_topics", 1, UINT32, 1000),
    ("limits.max_envelope_bytes", 1, 2_096_896, 1_048_576),
    ("limits.max_request_bytes", 1, 26_214_400, 26_214_400),
    ("limits.max_response_bytes", 1, 26_214_400, 26_214_400),
    ("limits.max_update_adds", 1, UINT32, 100_000),
    ("limits.max_update_removes", 1, UINT32, 100_000),
    ("limits.max_stream_topics", 1, UINT32, 100_000),
    ("limits.max_static_topics", 1, UINT32, 10_000),
    ("limits.max_lookup_identifiers", 1, UINT32, 250),
    ("limits.max_scw_signatures", 1, UINT32, 100),
    ("limits.max_identity_entries", 1, UINT32, 256),
    ("limits.max_http2_streams", 1, UINT32, 100),
    ("limits.max_update_frames_per_second", 1, UINT32, 10),
    ("limits.max_update_burst", 1, UINT32, 100),
    ("limits.max_ping_frames_per_second", 1, UINT32, 10),
    ("limits.max_ping_burst", 1, UINT32, 100),
    ("mls.max_group_members", 1, 65_535, 250),
    ("mls.max_installations_per_inbox", 1, 65_535, 10),
    ("telemetry.sample_ratio", 0, 1, 1),
];

/// Whether the key's own type takes the value, whatever checks across keys say. What it refuses it
/// names, with its place.
fn takes(key: &str, value: &str) -> bool {
    let Err(errors) = load(&with(key, value)) else {
        return true;
    };
    crate::shown(&errors);
    let of_type = |refusal: &Refusal| !matches!(refusal, Refusal::Check(_));
    let Some(error) = errors.iter().find(|error| of_type(&error.refusal)) else {
        return true;
    };
    assert_eq!(error.key, key);
    let place = error.position.expect("a place");
    let column = key.rsplit('.').next().expect("a name").len() + 4;
    assert_eq!(place.column, column, "{key}");
    false
}

/// Runs both the parser and the schema.
fn both_take(key: &str, value: &str) -> bool {
    let taken = takes(key, value);
    assert_eq!(
        accepts(&with(key, value)),
        taken,
        "schema and parser differ: {key} = {value}"
    );
    taken
}

#[test]
fn arc_100_every_integer_keeps_its_bounds() {
    for (key, least, most, _) in INTEGERS {
        for value in [least, least.max(1), most] {
            assert!(both_take(key, &value.to_string()), "{key} = {value}");
        }
        assert!(!both_take(key, "-1"), "{key}");
        assert!(!both_take(key, "1.5"), "{key}");
        if least > 0 {
            assert!(!both_take(key, "0"), "{key}");
        }
        // TOML itself has no integer beyond 64 bits, so that the schema has nothing to say.
        if most == INTEGER {
            assert!(!takes(key, "9223372036854775808"), "{key}");
        } else {
            assert!(!both_take(key, &(most + 1).to_string()), "{key}");
        }
        for wrong in ["true", "\"hunter2-Zx9\"", "[1]", "{}", "1979-05-27"] {
            assert!(!takes(key, wrong), "{key} = {wrong}");
        }
    }
}

#[test]
fn arc_100_an_integer_is_refused_by_name_place_and_bounds() {
    assert_eq!(
        refused(&with("database.max_connections", "\"hunter2-Zx9\"")),
        ["database.max_connections (line 4, column 19): expected an integer from 1 to 4294967295"]
    );
}

#[test]
fn a_number_may_be_written_in_every_way_of_toml() {
    for value in ["0x10", "0o20", "0b10000", "1_6", "+16"] {
        let config = load(&with("mls.max_group_members", value)).expect(value);
        assert_eq!(config.mls.max_group_members.to_u32(), 16);
    }
    let config = load(&with("telemetry.sample_ratio", "1e-1")).expect("a share");
    assert!((config.telemetry.sample_ratio.get() - 0.1).abs() < f64::EPSILON);
}

#[test]
fn telemetry_sample_ratio_is_finite() {
    for value in ["nan", "inf", "-inf", "-0.1", "1.1"] {
        assert!(!takes("telemetry.sample_ratio", value), "{value}");
    }
    assert!(both_take("telemetry.sample_ratio", "0.25"));
}

#[test]
fn conf_002_identifier_is_required_and_has_a_form() {
    let missing = minimal().replace("identifier = \"org.example.test\"\n", "");
    assert_eq!(
        refused(&missing),
        ["server.identifier (line 1, column 1): required"]
    );
    assert_eq!(
        refused("[database]\nurl = \"postgres://localhost/x\""),
        ["server.identifier: required"]
    );

    let identifier = |text: &str| {
        let text = minimal().replace("org.example.test", text);
        let taken = load(&text).is_ok();
        assert_eq!(accepts(&text), taken, "schema and parser differ");
        taken || {
            let lines = refused(&text);
            assert!(lines[0].starts_with("server.identifier (line 2, column 14): expected"));
            false
        }
    };
    for good in ["x", "org.example", "Zoë", &"i".repeat(256)] {
        assert!(identifier(good), "{good}");
    }
    for bad in [
        "",
        "a b",
        "a\\tb",
        "a\\n",
        "a\\u007F",
        "a\\u0085b",
        "a\\u3000",
        "\\u0000",
        &"i".repeat(257),
    ] {
        assert!(!identifier(bad), "{bad}");
    }
    // 256 is a number of bytes, which a schema cannot count.
    let wide = minimal().replace("org.example.test", &"ë".repeat(129));
    assert_eq!(refused(&wide).len(), 1);
}

#[test]
fn conf_067_min_libxmtp_version_is_a_semantic_version() {
    for good in [
        "1.2.3",
        "0.0.0",
        "1.2.3-rc.1",
        "1.2.3-rc.1+build.05",
        "1.0.0-0a.-",
    ] {
        assert!(
            both_take("server.min_libxmtp_version", &format!("{good:?}")),
            "{good}"
        );
    }
    for bad in [
        "", "1.2", "v1.2.3", "01.2.3", "1.2.3-01", "1.2.3 ", "1.2.3\n", "1.2.3+", "latest",
    ] {
        assert!(
            !both_take("server.min_libxmtp_version", &format!("{bad:?}")),
            "{bad}"
        );
    }
}

#[test]
fn addresses_are_numeric() {
    for key in ["server.listen", "telemetry.metrics_listen"] {
        for good in [
            "127.0.0.1:0",
            "0.0.0.0:65535",
            "255.255.255.255:05050",
            "[::]:5050",
            "[::1]:1",
            "[1:2:3:4:5:6:7:8]:1",
            "[1:2:3:4:5:6:7::]:1",
            "[::2:3:4:5:6:7:8]:1",
            "[1::8]:1",
            "[::ffff:1.2.3.4]:1",
            "[1:2:3:4:5:6:1.2.3.4]:1",
            "[1::5:6:1.2.3.4]:1",
            "[FE80::1%3]:1",
            "[fe80::1%4294967295]:1",
        ] {
            assert!(both_take(key, &format!("{good:?}")), "{good}");
        }
        for bad in [
            "localhost:5050",
            "0.0.0.0",
            "0.0.0.0:",
            "0.0.0.0:65536",
            "0.0.0.0:-1",
            "01.0.0.0:1",
            "256.0.0.0:1",
            "1.2.3:1",
            "::1:1",
            "[::1]",
            "[1:2:3:4:5:6:7]:1",
            "[1:2:3:4:5:6:7:8:9]:1",
            "[1:2:3:4:5:6:7:8::]:1",
            "[1::2::3]:1",
            "[12345::]:1",
            "[1:2:3:4:5:6:7:1.2.3.4]:1",
            "[::1.2.3.04]:1",
            "[fe80::1%eth0]:1",
            "[fe80::1%4294967296]:1",
            "[fe80::1%]:1",
            "0.0.0.0:1\n",
            " 0.0.0.0:1",
        ] {
            assert!(!both_take(key, &format!("{bad:?}")), "{bad}");
        }
    }
    assert!(both_take("telemetry.metrics_listen", "\"\""));
    assert!(!both_take("server.listen", "\"\""));
}

#[test]
fn words_and_switches_are_exact() {
    for (key, words) in [
        (
            "server.log_level",
            &["off", "error", "warn", "info", "debug", "trace"][..],
        ),
        ("server.log_format", &["text", "json"]),
    ] {
        for word in words {
            assert!(both_take(key, &format!("{word:?}")), "{key} = {word}");
        }
        for wrong in [
            "\"hunter2-Zx9\"",
            "\"Info\"",
            "\"\"",
            "3",
            "true",
            "{}",
            "[]",
        ] {
            assert!(!both_take(key, wrong), "{key} = {wrong}");
        }
    }
    assert_eq!(
        refused(&with("server.log_format", "\"hunter2-Zx9\"")),
        ["server.log_format (line 2, column 14): expected one of \"text\", \"json\""]
    );
    for key in ["server.request_logger", "mls.commit_log_enabled"] {
        assert!(both_take(key, "false"));
        for wrong in ["\"true\"", "1", "[]"] {
            assert!(!both_take(key, wrong), "{key} = {wrong}");
        }
    }
}

#[test]
fn log_level_of_the_command_line_takes_the_same_words() {
    assert_eq!("trace".parse(), Ok(LogLevel::Trace));
    assert_eq!(LogLevel::Off.to_string(), "off");
    assert!("loud".parse::<LogLevel>().is_err());
}

#[test]
fn telemetry_texts_have_their_form() {
    assert!(both_take("telemetry.service_name", "\" a \""));
    for bad in ["\"\"", "\" \\t\"", "1"] {
        assert!(!both_take("telemetry.service_name", bad), "{bad}");
    }
    assert!(both_take(
        "telemetry.resource_attributes",
        "{ \"deployment.environment\" = \"x\" }"
    ));
    assert_eq!(
        refused(&with("telemetry.resource_attributes", "{ \"a.b\" = 1 }")),
        ["telemetry.resource_attributes.\"a.b\" (line 6, column 33): expected a string"]
    );
}

#[test]
fn s35_database_url_is_judged_without_being_shown() {
    let url = |url: &str| {
        let text = minimal();
        let (head, _) = text.split_once("url = ").expect("a url");
        let text = format!("{head}url = {url:?}\n");
        match load(&text) {
            Ok(_) => assert!(accepts(&text), "the schema refuses {url}"),
            Err(_) => {
                assert!(refused(&text)[0].starts_with("database.url (line 4, column 7): expected"));
            }
        }
        load(&text).is_ok()
    };
    for good in [
        "postgres://localhost/xmtp",
        "postgresql://u:p%40%2Fss%23@[::1]:5432/xmtp?sslmode=require",
        "postgres:///xmtp?host=/run/postgresql",
        "postgres://u:p@ss@localhost/xmtp",
    ] {
        assert!(url(good), "{good}");
    }
    for bad in [
        "",
        "localhost/xmtp",
        "mysql://localhost/xmtp",
        "postgres:localhost/xmtp",
        "Postgres ://localhost",
        "postgres://u:hunter2-Zx9/ss@localhost/xmtp",
        "postgres://u:hunter2-Zx9#ss@localhost/xmtp",
        "postgres://u:hunter2-Zx9?ss@localhost/xmtp",
        "postgres://u:hunter2-Zx9%@localhost/xmtp",
        "postgres://u:hunter2-Zx9%2@localhost/xmtp",
        "postgres://u:hunter2-Zx9 x@localhost/xmtp",
        "postgres://localhost:99999/hunter2-Zx9",
        "postgres://localhost/xmtp\n",
    ] {
        assert!(!url(bad), "{bad}");
    }
    let missing = "[server]\nidentifier = \"x\"\n";
    assert_eq!(refused(missing), ["database.url: required"]);
    assert_eq!(
        refused(&format!("{missing}[database]\n")),
        ["database.url (line 3, column 1): required"]
    );
    assert!(!accepts(missing));
}

#[test]
fn arc_100_unknown_keys_are_refused_in_every_table() {
    for table in [
        "server",
        "telemetry",
        "database",
        "publishing",
        "streams",
        "retention",
        "limits",
        "mls",
        "stray",
    ] {
        let text = with(&format!("{table}.zzzzzzzz"), "\"hunter2-Zx9\"");
        let key = if table == "stray" {
            "stray"
        } else {
            &format!("{table}.zzzzzzzz")
        };
        let lines = refused(&text);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with(&format!("{key} (line ")), "{lines:?}");
        assert!(lines[0].ends_with("): unknown key"), "{lines:?}");
        assert!(!accepts(&text), "the schema takes {table}");
    }
    let root = format!("zzz = \"{SECRET}\"\n{}", minimal());
    assert_eq!(refused(&root), ["zzz (line 1, column 1): unknown key"]);
}

#[test]
fn arc_100_an_unknown_key_is_met_with_the_nearest_known_one() {
    assert_eq!(
        refused(&with("limits.max_query_topic", "1")),
        ["limits.max_query_topic (line 6, column 1): unknown key; \
          did you mean `max_query_topics`?"]
    );
    assert_eq!(
        refused(&with("limit.max_query_topics", "1")),
        ["limit (line 5, column 2): unknown key; did you mean `limits`?"]
    );
}

#[test]
fn arc_100_errors_of_every_section_are_reported_at_once_in_order() {
    let text = "[mls]\nmax_group_members = 0\n[server]\nlisten = 3\n[stray]\n[limits]\nx = 1\n";
    let lines = refused(text);
    let keys: Vec<_> = lines
        .iter()
        .filter_map(|line| line.split([' ', ':']).next())
        .collect();
    assert_eq!(
        keys,
        [
            "database.url",
            "mls.max_group_members",
            "server.identifier",
            "server.listen",
            "stray",
            "limits.x"
        ]
    );
}

#[test]
fn arc_100_every_problem_of_one_section_is_reported_at_once() {
    let text = "[server]\nlog_level = \"loud\"\nlog_format = 3\nlisten = \"localhost:1\"\n\
                max_drain_duration_ms = 0\ncolour = \"hunter2-Zx9\"\n\
                [database]\nurl = 3\nmax_connections = -1\n\
                [[application_components]]\nname = \"A\"\n[[application_components]]\n\
                component_id = 1\nname = \"A\"\n";
    let errors = load(text).expect_err("a refusal");
    let keys: Vec<_> = errors.iter().map(|error| error.key.as_str()).collect();
    let section = [
        "server.identifier",
        "server.log_level",
        "server.log_format",
        "server.listen",
        "server.max_drain_duration_ms",
        "server.colour",
        "database.url",
        "database.max_connections",
    ];
    assert_eq!(keys[..8], section);
    let missing = |entry: usize, key: &str| {
        let key = format!("application_components[{entry}].{key}");
        assert!(keys.contains(&key.as_str()), "{key}: {keys:?}");
    };
    for key in [
        "component_id",
        "component_type",
        "insert_policy",
        "update_policy",
        "delete_policy",
        "in_groups",
        "in_dms",
    ] {
        missing(0, key);
        missing(1, key);
    }
    assert_eq!(keys.len(), 8 + 7 + 7);
    crate::shown(&errors);
}

#[test]
fn arc_101_text_that_is_not_toml_is_refused_by_place_alone() {
    for (text, place) in [
        (
            "[server]\nidentifier = \"hunter2-Zx9\nx",
            "line 3, column 2",
        ),
        ("[server]\npassword = hunter2-Zx9\n", "line 2, column 12"),
        ("[server\n", "line 1"),
        ("a = 1\nb = 2\na = \"hunter2-Zx9\"\n", "line 3, column 1"),
        ("a = 99hunter2-Zx9\n", "line 1"),
    ] {
        let lines = refused(text);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with(place), "{lines:?}");
        assert!(
            lines[0].ends_with(": not valid TOML, in which a key or a table stands once"),
            "{lines:?}"
        );
    }
}

#[test]
fn arc_100_too_deep_a_nesting_has_a_place_as_well() {
    let deep = format!("{} = 1\n", vec!["a"; 20_000].join("."));
    let lines = refused(&format!("{}{deep}b = 2\n", minimal()));
    assert_eq!(lines.len(), 1);
    assert!(
        lines[0].starts_with("line 5, column 1: not valid TOML"),
        "{lines:?}"
    );
}

#[test]
fn arc_100_an_address_of_the_database_is_refused_for_its_reason() {
    for (url, reason) in [
        ("postgres://u:p@h:99999/d", "a port from 1 to 65535"),
        ("postgres://u:p@h1,h2/d", "one host"),
        ("postgres://u:hunter2-Zx9/x@h/d", "/ is %2F"),
        ("postgres://u:hunter2 Zx9@h/d", "a space is %20"),
        ("postgres://u:p@h/d\\n", "white space at its end"),
        ("postgres://u:100%@h/d", "% itself is %25"),
        ("postgres://h/d?pasword=hunter2-Zx9", "parameters"),
        ("mysql://h/d", "a postgres:// or postgresql:// address"),
    ] {
        let text = format!("server.identifier = \"org.example.test\"\ndatabase.url = \"{url}\"\n");
        let lines = refused(&text);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("database.url (line 2, column 16): expected "));
        assert!(lines[0].contains(reason), "{url}: {lines:?}");
        assert!(!lines[0].contains("Zx9"), "{lines:?}");
    }
}

#[test]
fn columns_are_counted_in_characters() {
    let lines = refused(&("\"ключ\" = 1\n".to_owned() + &minimal()));
    assert!(lines[0].contains("(line 1, column 1)"));
    let lines = refused("server = { \"ключ\" = 1 }\n[database]\nurl = \"postgres://h/d\"\n");
    assert!(lines[1].contains("(line 1, column 12)"), "{lines:?}");
}
