//! Checks across keys. Each names one key, with a fixed reason.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::Sections;
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

/// A failed check within the document.
pub(super) struct Failed {
    pub(super) error: CheckError,
    /// The other keys that it looked at.
    others: &'static [&'static str],
}

impl Failed {
    /// Every key that the check looked at. It says nothing where one of them was refused.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.error.key.as_ref()).chain(self.others.iter().copied())
    }
}

/// Everything that can be judged from the document alone (ARC-100, CONF-008, OPS-021).
pub(super) fn check(sections: &Sections) -> Vec<Failed> {
    let mut failed = Vec::new();
    let mut require = |holds: bool, key: &'static str, others, reason| {
        if !holds {
            let error = CheckError::new(key, reason);
            failed.push(Failed { error, others });
        }
    };
    if let (Some(publishing), Some(database)) = (&sections.publishing, &sections.database) {
        require(
            publishing.max_publish_duration_ms.get() > database.max_statement_timeout_ms.get(),
            "publishing.max_publish_duration_ms",
            &["database.max_statement_timeout_ms"],
            "must be above database.max_statement_timeout_ms",
        );
    }
    if let Some(streams) = &sections.streams {
        require(
            streams.max_pong_wait_ms.get() > streams.keepalive_interval_ms.get(),
            "streams.max_pong_wait_ms",
            &["streams.keepalive_interval_ms"],
            "must be above streams.keepalive_interval_ms",
        );
    }
    if let Some(limits) = &sections.limits {
        require(
            limits.max_query_limit.get() >= limits.default_query_limit.get(),
            "limits.max_query_limit",
            &["limits.default_query_limit"],
            "must be at least limits.default_query_limit",
        );
        require(
            limits.max_update_adds <= limits.max_stream_topics,
            "limits.max_update_adds",
            &["limits.max_stream_topics"],
            "must be at most limits.max_stream_topics",
        );
        require(
            envelope_fits(limits),
            "limits.max_envelope_bytes",
            &["limits.max_request_bytes", "limits.max_response_bytes"],
            "must, with its framing, fit limits.max_request_bytes and limits.max_response_bytes",
        );
    }
    if let Some(telemetry) = &sections.telemetry {
        require(
            ResourceAttributes::RESERVED
                .iter()
                .all(|name| !telemetry.resource_attributes.contains_key(*name)),
            "telemetry.resource_attributes",
            &[],
            "must not have service.name, service.version or xmtp.backend.identifier",
        );
    }
    if let (Some(server), Some(telemetry)) = (&sections.server, &sections.telemetry) {
        let other = telemetry.metrics_listen.0;
        require(
            other.is_none_or(|other| !collide(server.listen.0, other)),
            "telemetry.metrics_listen",
            &["server.listen"],
            "must not be the address of server.listen",
        );
    }
    let now = Instant::now();
    for (key, timer) in timers(sections) {
        require(
            now.checked_add(timer).is_some(),
            key,
            &[],
            "is beyond the monotonic clock",
        );
    }
    let components = check_components(&sections.application_components);
    failed.extend(
        components
            .into_iter()
            .map(|error| Failed { error, others: &[] }),
    );
    failed
}

/// Whether no machine can listen on both: the same port, and addresses of one family of which one contains the other.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let (ip, other_ip) = (one.ip(), other.ip());
    one.port() != 0
        && one.port() == other.port()
        && ip.is_ipv4() == other_ip.is_ipv4()
        && (ip == other_ip || ip.is_unspecified() || other_ip.is_unspecified())
}

/// The seven timers whose deadlines the host's monotonic clock must be able to hold (ARC-100).
fn timers(sections: &Sections) -> Vec<(&'static str, Duration)> {
    let mut timers = Vec::new();
    if let Some(server) = &sections.server {
        let drain = server.max_drain_duration_ms.milliseconds();
        timers.push(("server.max_drain_duration_ms", drain));
    }
    if let Some(database) = &sections.database {
        let statement = database.max_statement_timeout_ms.milliseconds();
        timers.push(("database.max_statement_timeout_ms", statement));
    }
    if let Some(publishing) = &sections.publishing {
        let publish = publishing.max_publish_duration_ms.milliseconds();
        timers.push(("publishing.max_publish_duration_ms", publish));
        let barrier = publishing.max_barrier_wait_ms.milliseconds();
        timers.push(("publishing.max_barrier_wait_ms", barrier));
    }
    if let Some(streams) = &sections.streams {
        let poll = streams.poll_interval_ms.milliseconds();
        timers.push(("streams.poll_interval_ms", poll));
        let keepalive = streams.keepalive_interval_ms.milliseconds();
        timers.push(("streams.keepalive_interval_ms", keepalive));
        let pong = streams.max_pong_wait_ms.milliseconds();
        timers.push(("streams.max_pong_wait_ms", pong));
    }
    timers
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
fn check_components(components: &[Option<ApplicationComponent>]) -> Vec<CheckError> {
    let mut errors = Vec::new();
    let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
    let components = components.iter().enumerate();
    for (index, component) in components.filter_map(|(at, it)| Some(at).zip(it.as_ref())) {
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
