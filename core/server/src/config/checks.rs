//! Checks across keys. Each names one key, with a fixed reason.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::Config;
use super::sections::{
    ApplicationComponent, ENVELOPE_OVERHEAD, Limits, ResourceAttributes, Retention,
    WELL_KNOWN_NAMES,
};

/// A check that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {reason}")]
pub struct CheckError {
    /// Dotted path of the key to change.
    pub key: Cow<'static, str>,
    /// What does not hold. The same text whatever is configured.
    pub reason: &'static str,
}

impl CheckError {
    /// A failed check of `key`.
    pub fn new(key: impl Into<Cow<'static, str>>, reason: &'static str) -> Self {
        Self {
            key: key.into(),
            reason,
        }
    }
}

/// Everything that can be judged from the document alone (ARC-100, CONF-008, OPS-021).
pub(super) fn check(config: &Config) -> Vec<CheckError> {
    let Config {
        database,
        publishing,
        streams,
        limits,
        telemetry,
        ..
    } = config;
    let mut errors = Vec::new();
    let mut require = |holds: bool, key: &'static str, reason| {
        if !holds {
            errors.push(CheckError::new(key, reason));
        }
    };

    require(
        publishing.max_publish_duration_ms.get() > database.max_statement_timeout_ms.get(),
        "publishing.max_publish_duration_ms",
        "must be above database.max_statement_timeout_ms",
    );
    require(
        streams.max_pong_wait_ms.get() > streams.keepalive_interval_ms.get(),
        "streams.max_pong_wait_ms",
        "must be above streams.keepalive_interval_ms",
    );
    require(
        limits.max_query_limit.get() >= limits.default_query_limit.get(),
        "limits.max_query_limit",
        "must be at least limits.default_query_limit",
    );
    require(
        limits.max_update_adds <= limits.max_stream_topics,
        "limits.max_update_adds",
        "must be at most limits.max_stream_topics",
    );
    require(
        envelope_fits(limits),
        "limits.max_envelope_bytes",
        "must, with its framing, fit limits.max_request_bytes and limits.max_response_bytes",
    );
    require(
        ResourceAttributes::RESERVED
            .iter()
            .all(|name| !telemetry.resource_attributes.contains_key(*name)),
        "telemetry.resource_attributes",
        "must not have service.name, service.version or xmtp.backend.identifier",
    );
    let now = Instant::now();
    for (key, timer) in timers(config) {
        require(
            now.checked_add(timer).is_some(),
            key,
            "is beyond the monotonic clock",
        );
    }
    errors.extend(check_components(&config.application_components));
    errors
}

/// The seven timers whose deadlines the host's monotonic clock must be able to hold (ARC-100).
fn timers(config: &Config) -> [(&'static str, Duration); 7] {
    let Config {
        server,
        database,
        publishing,
        streams,
        ..
    } = config;
    [
        (
            "server.max_drain_duration_ms",
            server.max_drain_duration_ms.milliseconds(),
        ),
        (
            "database.max_statement_timeout_ms",
            database.max_statement_timeout_ms.milliseconds(),
        ),
        (
            "publishing.max_publish_duration_ms",
            publishing.max_publish_duration_ms.milliseconds(),
        ),
        (
            "publishing.max_barrier_wait_ms",
            publishing.max_barrier_wait_ms.milliseconds(),
        ),
        (
            "streams.poll_interval_ms",
            streams.poll_interval_ms.milliseconds(),
        ),
        (
            "streams.keepalive_interval_ms",
            streams.keepalive_interval_ms.milliseconds(),
        ),
        (
            "streams.max_pong_wait_ms",
            streams.max_pong_wait_ms.milliseconds(),
        ),
    ]
}

/// Whether the largest envelope fits a request, with a tag and a length beside it, and a response
/// (OPS-021). Its own bound makes it fit a delivery frame, and the sums here fit easily.
fn envelope_fits(limits: &Limits) -> bool {
    let envelope = limits.max_envelope_bytes.get();
    let length_bytes = u64::from(envelope.max(1).ilog2() / 7 + 1);
    envelope + 1 + length_bytes <= limits.max_request_bytes.get()
        && envelope + ENVELOPE_OVERHEAD <= limits.max_response_bytes.get()
}

/// CONF-078: ids and names are unique, and every field is somewhere.
fn check_components(components: &[ApplicationComponent]) -> Vec<CheckError> {
    let mut errors = Vec::new();
    let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
    for (index, component) in components.iter().enumerate() {
        let mut require = |holds: bool, key: &str, reason| {
            if !holds {
                let key = format!("application_components[{index}]{key}");
                errors.push(CheckError::new(key, reason));
            }
        };
        let name = component.name.as_str();
        require(
            ids.insert(component.component_id),
            ".component_id",
            "repeats an earlier id",
        );
        require(names.insert(name), ".name", "repeats an earlier name");
        require(
            !WELL_KNOWN_NAMES.contains(&name),
            ".name",
            "is the name of a well-known component",
        );
        require(
            component.in_groups || component.in_dms,
            "",
            "must be in groups or in direct messages",
        );
    }
    errors
}

/// Whether every retention period, counted from the primary database's clock in nanoseconds since
/// the epoch, still fits a signed 64-bit integer (OPS-020, ARC-102).
///
/// # Errors
///
/// Names the first period that does not.
pub fn retention_fits(now_ns: i64, retention: &Retention) -> Result<(), CheckError> {
    let periods = [
        (
            "retention.group_message_seconds",
            retention.group_message_seconds,
        ),
        ("retention.welcome_seconds", retention.welcome_seconds),
        (
            "retention.key_package_seconds",
            retention.key_package_seconds,
        ),
    ];
    for (key, period) in periods {
        let expiry = i64::try_from(period.seconds().as_nanos())
            .ok()
            .and_then(|period| now_ns.checked_add(period));
        if expiry.is_none() {
            return Err(CheckError::new(
                key,
                "ends beyond the time that the database can store",
            ));
        }
    }
    Ok(())
}
