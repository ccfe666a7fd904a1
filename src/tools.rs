//! What `doctor`, `inspect` and `config show` print.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use xmtp_protocol::TopicKind;
use xmtp_server::Server;
use xmtp_server::config::Setting;
use xmtp_server::config::sections::LogLevel;
use xmtp_server::doctor::{Check, Outcome, Ports};
use xmtp_store::{Inspection, KindCount, Position, PushBacklog, Size, Trouble};

use crate::failure::Failure;

/// Every check of a configured server.
///
/// # Errors
/// The system gives no runtime.
pub(crate) fn examine(server: &Server, ports: Ports) -> Result<Vec<Check>, Failure> {
    Ok(Runtime::new()?.block_on(server.examine(ports)))
}

/// The checks, one line or one JSON object each.
pub(crate) fn show_checks(checks: &[Check], as_json: bool) -> String {
    if as_json {
        return format!("{:#}", json!(checks));
    }
    let lines: Vec<String> = checks.iter().map(Check::to_string).collect();
    lines.join("\n")
}

/// Fails where a check did.
pub(crate) fn judge(checks: &[Check]) -> Result<(), Failure> {
    let failed = checks
        .iter()
        .filter(|check| check.outcome == Outcome::Failed);
    match failed.count() {
        0 => Ok(()),
        failed => Err(Failure::Checks {
            failed,
            all: checks.len(),
        }),
    }
}

/// What the database of a configured server holds, as lines or as one JSON object.
///
/// # Errors
/// The database cannot be reached or asked.
pub(crate) fn inspect(server: &Server, as_json: bool) -> Result<String, Failure> {
    let inspection = Runtime::new()?.block_on(server.inspect())?;
    let numbers = numbers(&inspection);
    if as_json {
        return Ok(format!("{numbers:#}"));
    }
    let mut text = String::new();
    lines("", &numbers, &mut text);
    Ok(text.trim_end().to_owned())
}

/// One object: numbers and fixed words only.
fn numbers(inspection: &Inspection) -> Value {
    let kinds = inspection.kinds.iter().map(|count| {
        let KindCount {
            kind,
            envelopes,
            topics,
        } = count;
        let counts = json!({ "envelopes": envelopes, "topics": topics });
        (word(*kind).to_owned(), counts)
    });
    let kinds: serde_json::Map<String, Value> = kinds.collect();
    let Size {
        identifiers,
        database_bytes,
        envelopes_bytes,
        index_bytes,
    } = inspection.size;
    let Position {
        allocated,
        greatest,
        boundary,
        oldest_age_seconds,
        newest_age_seconds,
    } = inspection.position;
    let PushBacklog {
        recipients,
        subscriptions,
        miscounted_recipients,
        cursor,
        waiting,
    } = inspection.push;
    let Trouble {
        waiting_for_locks,
        overlong_transactions,
    } = inspection.trouble;
    let sum = |count: fn(&KindCount) -> i64| inspection.kinds.iter().map(count).sum::<i64>();
    json!({
        "envelopes": sum(|count| count.envelopes),
        "topics": sum(|count| count.topics),
        "kinds": kinds,
        "identifiers": identifiers,
        "bytes": {
            "database": database_bytes,
            "envelopes": envelopes_bytes,
            "indexes": index_bytes,
        },
        "sequence": {
            "allocated": allocated,
            "greatest": greatest,
            "boundary": boundary,
            "above_boundary": allocated - boundary,
        },
        "age_seconds": { "oldest": oldest_age_seconds, "newest": newest_age_seconds },
        "push": {
            "recipients": recipients,
            "subscriptions": subscriptions,
            "miscounted_recipients": miscounted_recipients,
            "behind_boundary": boundary - cursor,
            "waiting_envelopes": waiting,
        },
        "trouble": {
            "waiting_for_locks": waiting_for_locks,
            "overlong_transactions": overlong_transactions,
        },
    })
}

const fn word(kind: TopicKind) -> &'static str {
    match kind {
        TopicKind::GroupMessage => "group_message",
        TopicKind::Welcome => "welcome",
        TopicKind::IdentityUpdate => "identity_update",
        TopicKind::KeyPackage => "key_package",
        TopicKind::CommitLogEntry => "commit_log_entry",
    }
}

/// `kinds.welcome.topics  7`, for every number in the object.
fn lines(path: &str, value: &Value, text: &mut String) {
    match value {
        Value::Object(entries) => {
            for (name, value) in entries {
                let dot = if path.is_empty() { "" } else { "." };
                lines(&format!("{path}{dot}{name}"), value, text);
            }
        }
        Value::Null => {
            let _ = writeln!(text, "{path:<40} none");
        }
        number => {
            let _ = writeln!(text, "{path:<40} {number}");
        }
    }
}

/// One line for each key: itself, as TOML has it, and where it comes from.
pub(crate) fn show_settings(settings: &[Setting], log_level: Option<LogLevel>) -> String {
    let lines = settings.iter().map(|setting| {
        let Setting { key, value, origin } = setting;
        match log_level.filter(|_| key == "server.log_level") {
            Some(level) => (format!("{key} = \"{level}\""), "--log-level".to_owned()),
            None => (format!("{key} = {value}"), origin.to_string()),
        }
    });
    let lines: Vec<String> = lines
        .map(|(setting, origin)| format!("{setting:<56} # {origin}"))
        .collect();
    lines.join("\n")
}
