use schemars::JsonSchema;
use serde::Deserialize;
use xmtp_server::config::scalar::Int;
use xmtp_server::config::{AbsentSubsystem, Build, Config, Document};

use crate::{SECRET, load_in, minimal, refused, shown, with};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Lamp {
    color: String,
    #[serde(default)]
    bulbs: Vec<Bulb>,
    shade: Option<Shade>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Bulb {
    watts: Int<1, 100, 60>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
enum Shade {
    Paper { sheets: u8 },
}

const LAMP: AbsentSubsystem = AbsentSubsystem {
    feature: "lamp",
    paths: &["lamp", "limits.max_lamps", "rooms.lamps"],
    url_schemes: &["lamplight"],
    exists: true,
};

fn document(text: &str) -> Document {
    Document::parse(text, Build::default(), |_| None).expect("a document")
}

#[test]
fn a_subsystem_takes_its_paths_and_core_the_rest() {
    let text = with("limits.max_lamps", "7")
        + "[lamp]\ncolor = \"red\"\nbulbs = [{ watts = 40 }]\n\
           shade = { kind = \"paper\", sheets = 2 }\n[rooms]\nlamps = 2\n";
    let mut document = document(&text);
    let lamp: Lamp = document.take("lamp").expect("decodes").expect("is there");
    let most: Option<Int<1, 9>> = document.take("limits.max_lamps").expect("decodes");
    let rooms: Option<u8> = document.take("rooms.lamps").expect("decodes");
    let config = Config::load(&mut document).expect("nothing is left");

    assert_eq!(
        (lamp.color.as_str(), lamp.bulbs[0].watts.get(), rooms),
        ("red", 40, Some(2))
    );
    assert!(matches!(lamp.shade, Some(Shade::Paper { sheets: 2 })));
    assert_eq!(most.map(Int::get), Some(7));
    assert_eq!(config.limits.max_query_topics.get(), 1000);
}

#[test]
fn a_part_that_is_not_written_is_absent() {
    let mut document = document(&minimal());
    assert!(document.take::<Lamp>("lamp").expect("decodes").is_none());
    assert!(
        document
            .take::<u8>("server.identifier.deeper")
            .expect("decodes")
            .is_none()
    );
}

#[test]
fn arc_100_keys_beside_an_owned_path_are_unknown() {
    let mut document = document(&(minimal() + "[rooms]\nlamp = 2\n"));
    assert!(
        document
            .take::<u8>("rooms.lamps")
            .expect("decodes")
            .is_none()
    );
    let errors = Config::load(&mut document).expect_err("an unknown key");
    assert_eq!(
        shown(&errors),
        ["rooms.lamp (line 6, column 1): unknown key; did you mean `lamps`?"]
    );
}

#[test]
fn arc_100_a_value_in_the_place_of_a_table_is_refused() {
    for (path, owned) in [("limits", "limits.max_lamps"), ("rooms", "rooms.lamps")] {
        let mut document = document(&(format!("{path} = \"{SECRET}\"\n") + &minimal()));
        assert!(document.take::<u8>(owned).expect("decodes").is_none());
        let errors = Config::load(&mut document).expect_err("no table");
        let column = path.len() + 4;
        assert_eq!(
            shown(&errors),
            [format!(
                "{path} (line 1, column {column}): expected a table"
            )]
        );
    }
}

#[test]
fn arc_101_errors_of_a_part_have_path_place_and_expectation() {
    for (part, error) in [
        (
            "color = 3",
            "lamp.color (line 6, column 9): expected a string",
        ),
        ("", "lamp.color (line 5, column 1): required"),
        (
            "color = \"red\"\nbulbs = [{ watts = 5 }, { watts = 500 }]",
            "lamp.bulbs[1].watts (line 7, column 35): expected an integer from 1 to 100",
        ),
        (
            "color = \"red\"\nbulbs = [{ watts = 5, volts = 9 }]",
            "lamp.bulbs[0].volts (line 7, column 23): unknown key",
        ),
        (
            "color = \"red\"\nbulbs = [{}]",
            "lamp.bulbs[0].watts (line 7, column 10): required",
        ),
        (
            "color = \"red\"\nbulbs = 1",
            "lamp.bulbs (line 7, column 9): expected an array",
        ),
        (
            "color = \"red\"\nshade = { kind = \"paper\", sheets = 1, tears = 2 }",
            "lamp.shade.tears (line 7, column 39): unknown key",
        ),
        (
            "color = \"red\"\nshade = { kind = \"hunter2-Zx9\" }",
            "lamp.shade.kind (line 7, column 18): expected one of \"paper\"",
        ),
    ] {
        let mut document = document(&(minimal() + "[lamp]\n" + part));
        let errors = document.take::<Lamp>("lamp").expect_err("a refusal");
        assert_eq!(shown(&errors), [error], "{part}");
    }
}

#[test]
fn arc_100_every_problem_of_a_part_is_reported_at_once() {
    let text = minimal()
        + "[lamp]\nbulbs = [{ watts = 0, volts = 9 }, {}, { watts = 5 }, { watts = \"hunter2-Zx9\" }]\n\
           shade = { kind = \"paper\", sheets = 999 }\nsize = 1\n";
    let errors = document(&text).take::<Lamp>("lamp").expect_err("a refusal");
    let keys: Vec<_> = errors.iter().map(|error| error.key.as_str()).collect();
    assert_eq!(
        keys,
        [
            "lamp.color",
            "lamp.bulbs[0].watts",
            "lamp.bulbs[0].volts",
            "lamp.bulbs[1].watts",
            "lamp.bulbs[3].watts",
            "lamp.shade",
            "lamp.size"
        ]
    );
    shown(&errors);
}

#[test]
fn a_path_of_an_absent_subsystem_is_refused_by_its_feature() {
    let build = Build {
        absent: &[LAMP],
        url_schemes: &[],
    };
    let text = with("limits.max_lamps", "7") + "[lamp]\ncolor = \"red\"\n[rooms]\nlamps = 2\n";
    let lines = shown(&load_in(build, &text).expect_err("an absent subsystem"));

    let reason = "belongs to the `lamp` subsystem, which is not part of this build; \
                  build with `cargo build --features lamp`";
    assert_eq!(
        lines,
        [
            format!("limits.max_lamps (line 6, column 1): {reason}"),
            format!("lamp (line 7, column 2): {reason}"),
            format!("rooms.lamps (line 10, column 1): {reason}"),
        ]
    );
    assert!(load_in(build, &(minimal() + "[rooms]\n")).is_ok());
}

#[test]
fn arc_100_a_path_of_a_subsystem_that_no_build_has_is_refused_by_its_name() {
    let build = Build {
        absent: &[AbsentSubsystem {
            exists: false,
            ..LAMP
        }],
        url_schemes: &[],
    };
    let text = minimal() + "[lamp]\ncolor = \"red\"\n";
    assert_eq!(
        shown(&load_in(build, &text).expect_err("no such subsystem")),
        [
            "lamp (line 5, column 2): belongs to the `lamp` subsystem, which this version does not have"
        ]
    );
}

#[test]
fn database_url_schemes_belong_to_the_build() {
    let text = minimal().replace("postgres://", "lamplight:");
    let present = Build {
        absent: &[],
        url_schemes: &["lamplight"],
    };
    let absent = Build {
        absent: &[LAMP],
        url_schemes: &[],
    };

    let config = load_in(present, &text).expect("a scheme of a present subsystem");
    assert_eq!(config.database.url.scheme(), "lamplight");
    let lines = shown(&load_in(absent, &text).expect_err("an absent subsystem"));
    assert!(lines[0].starts_with("database.url (line 4, column 1): belongs to the `lamp`"));
    assert!(refused(&text)[0].starts_with("database.url (line 4, column 7): expected a postgres"));
}
