//! What `pgbench` runs: the statements of a publish as they were seen on the wire.

use std::fmt::Write as _;

use super::load;
use crate::wire::Publish;

/// The statements, with pgbench's random numbers instead of the envelope that was sent.
pub(crate) fn script(publish: &Publish) -> String {
    let mut script = String::new();
    for variable in ["a", "b", "key"] {
        let _ = writeln!(script, "\\set {variable} random(1, 9000000000000000000)");
    }
    for message in &publish.before_answer {
        let statements: Vec<&str> = message.split(';').map(str::trim).collect();
        // What went in one message goes in one here; the extended protocol has pipelines for that.
        let pipeline = statements.len() > 1;
        if pipeline {
            script.push_str("\\startpipeline\n");
        }
        for statement in statements {
            let _ = writeln!(script, "{};", with_values(statement));
        }
        if pipeline {
            script.push_str("\\endpipeline\n");
        }
    }
    script
}

/// A statement with an expression in place of each parameter, and of the one key in a list of keys.
fn with_values(statement: &str) -> String {
    let topic = "ARRAY[decode('00', 'hex') || int8send(:a) || int8send(:b)]";
    let hash = "ARRAY[sha256(int8send(:a) || int8send(:b))]";
    let length = load::envelope_len();
    let payload = format!("ARRAY[convert_to(rpad(md5(int8send(:a)), {length}, 'x'), 'UTF8')]");
    let values = [
        topic,
        hash,
        "ARRAY[false]",
        "ARRAY[false]",
        "ARRAY[NULL]",
        "ARRAY[7776000]",
        &payload,
    ];
    let mut text = match (statement.find("'{"), statement.find("}'")) {
        (Some(begin), Some(end)) => {
            format!(
                "{}ARRAY[:key]{}",
                &statement[..begin],
                &statement[end + 2..]
            )
        }
        _ => statement.to_owned(),
    };
    for (number, value) in (1..).zip(values) {
        text = text.replace(&format!("${number}"), value);
    }
    text
}
