//! Metric families of streams, with their label vocabularies (operations contract, section 4.2).

use std::time::Duration;

use tokio::time::Instant;
use xmtp_telemetry::{Family, Label};

use crate::End;
use crate::frame::{ClientFrame, Frame};

/// What this crate records.
pub const FAMILIES: [&Family; 15] = [
    &SESSIONS,
    &TOPICS_REGISTERED,
    &FRAMES_SENT,
    &FRAMES_RECEIVED,
    &ENVELOPES_SENT,
    &UPDATES,
    &ENDED,
    &OUTBOUND_WAIT,
    &FETCH_WAIT,
    &TAILER_POLLS,
    &TAILER_ROWS,
    &TAILER_GAP_RANGES,
    &TAILER_RESTARTS,
    &TAILER_READY,
    &BOUNDARY_ADVANCES,
];

/// The operation spans of this crate.
pub const OPERATIONS: [&str; 4] = [
    "tailer.bootstrap",
    "tailer.poll",
    "stream.fetch",
    "stream.update",
];

static SESSIONS: Family = Family::gauge("xmtp_stream_sessions", "Registered stream sessions.")
    .labelled(&[Label::Words {
        name: "kind",
        values: &["bidi", "static"],
    }]);

static TOPICS_REGISTERED: Family = Family::gauge(
    "xmtp_stream_topics_registered",
    "Registered topic interests across all sessions.",
);

static FRAMES_SENT: Family = Family::counter(
    "xmtp_stream_frames_sent_total",
    "Frames admitted to a session's outbound queue.",
)
.labelled(&[Label::Words {
    name: "frame",
    values: &[
        "started",
        "applied",
        "messages",
        "keepalive",
        "ping",
        "pong",
        "update",
    ],
}]);

static FRAMES_RECEIVED: Family = Family::counter(
    "xmtp_stream_frames_received_total",
    "Frames received from a client on a bidirectional stream.",
)
.labelled(&[Label::Words {
    name: "frame",
    values: &["update", "ping", "pong"],
}]);

static ENVELOPES_SENT: Family = Family::counter(
    "xmtp_stream_envelopes_sent_total",
    "Envelopes admitted to a session's outbound queue by delivery phase. Admission is not receipt.",
)
.labelled(&[Label::Words {
    name: "phase",
    values: &["catch_up", "live"],
}]);

static UPDATES: Family = Family::counter(
    "xmtp_stream_updates_total",
    "Stream interest updates by result.",
)
.labelled(&[Label::Words {
    name: "outcome",
    values: &["applied", "invalid", "rate_limited"],
}]);

static ENDED: Family = Family::counter(
    "xmtp_stream_ended_total",
    "Registered sessions that ended, by cause.",
)
.labelled(&[Label::Words {
    name: "reason",
    values: &[
        "client",
        "backpressure",
        "capacity",
        "keepalive",
        "tailer",
        "database",
        "shutdown",
        "invalid",
        "rate_limited",
    ],
}]);

static OUTBOUND_WAIT: Family = Family::histogram(
    "xmtp_stream_outbound_wait_seconds",
    "Time a session waited for outbound capacity. Recorded only when it waited.",
);

static FETCH_WAIT: Family = Family::histogram(
    "xmtp_stream_fetch_wait_seconds",
    "Time a session waited for a fetch permit, including a wait ended by cancellation.",
);

static TAILER_POLLS: Family = Family::counter(
    "xmtp_tailer_polls_total",
    "Polls of the read database by result.",
)
.labelled(&[Label::Words {
    name: "result",
    values: &["ok", "error"],
}]);

static TAILER_ROWS: Family = Family::counter(
    "xmtp_tailer_rows_total",
    "Rows read by the forward scan and by gap probes. Not unique delivered rows.",
)
.labelled(&[Label::Words {
    name: "source",
    values: &["forward", "gap"],
}]);

static TAILER_GAP_RANGES: Family = Family::gauge(
    "xmtp_tailer_gap_ranges",
    "Unresolved sequence id ranges. A count of ranges, not of missing ids.",
);

static TAILER_RESTARTS: Family = Family::counter(
    "xmtp_tailer_restarts_total",
    "Stream recovery generations started, including the one at startup.",
);

static TAILER_READY: Family =
    Family::gauge("xmtp_tailer_ready", "1 exactly while streams are admitted.");

static BOUNDARY_ADVANCES: Family = Family::counter(
    "xmtp_boundary_advances_total",
    "Allocation boundary advance attempts by result.",
)
.labelled(&[Label::Words {
    name: "result",
    values: &["ok", "lock_timeout", "error"],
}]);

/// Rows delivered from range reads or straight from the tailer.
#[derive(Clone, Copy)]
pub(crate) enum Phase {
    CatchUp,
    Live,
}

pub(crate) fn frame_sent(frame: &Frame) {
    let label = match frame {
        Frame::Started | Frame::StartedStatic(_) => "started",
        Frame::Applied { .. } => "applied",
        Frame::Messages(_) => "messages",
        Frame::Ping(_) => "ping",
        Frame::Pong(_) => "pong",
        Frame::Keepalive => "keepalive",
    };
    FRAMES_SENT.count(&[label], 1);
}

pub(crate) fn frame_received(frame: &ClientFrame) {
    let label = match frame {
        ClientFrame::Update(_) => "update",
        ClientFrame::Ping(_) => "ping",
        ClientFrame::Pong(_) => "pong",
        ClientFrame::Unset => return,
    };
    FRAMES_RECEIVED.count(&[label], 1);
}

pub(crate) fn envelopes_sent(phase: Phase, rows: usize) {
    let label = match phase {
        Phase::CatchUp => "catch_up",
        Phase::Live => "live",
    };
    ENVELOPES_SENT.count(&[label], rows as u64);
}

pub(crate) fn outbound_waited(time: Duration) {
    OUTBOUND_WAIT.record(&[], time);
}

/// A wait for a fetch permit, recorded however it ends.
pub(crate) struct FetchWait(Instant);

impl FetchWait {
    pub(crate) fn begin() -> Self {
        Self(Instant::now())
    }
}

impl Drop for FetchWait {
    fn drop(&mut self) {
        FETCH_WAIT.record(&[], self.0.elapsed());
    }
}

/// What became of an update.
#[derive(Clone, Copy)]
pub(crate) enum UpdateOutcome {
    Applied,
    Invalid,
    RateLimited,
}

pub(crate) fn update(outcome: UpdateOutcome) {
    let label = match outcome {
        UpdateOutcome::Applied => "applied",
        UpdateOutcome::Invalid => "invalid",
        UpdateOutcome::RateLimited => "rate_limited",
    };
    UPDATES.count(&[label], 1);
}

pub(crate) fn session_opened(kind: &'static str) {
    SESSIONS.add(&[kind], 1.0);
}

pub(crate) fn session_ended(kind: &'static str, end: End) {
    SESSIONS.add(&[kind], -1.0);
    ENDED.count(&[end.reason()], 1);
}

pub(crate) fn topics_registered(added: usize) {
    TOPICS_REGISTERED.add(&[], count(added));
}

pub(crate) fn topics_released(removed: usize) {
    TOPICS_REGISTERED.add(&[], -count(removed));
}

pub(crate) fn tailer_polled(ok: bool) {
    let label = if ok { "ok" } else { "error" };
    TAILER_POLLS.count(&[label], 1);
}

pub(crate) fn tailer_rows(from_gap: usize, forward: usize) {
    TAILER_ROWS.count(&["gap"], from_gap as u64);
    TAILER_ROWS.count(&["forward"], forward as u64);
}

pub(crate) fn tailer_gap_ranges(ranges: usize) {
    TAILER_GAP_RANGES.set(&[], count(ranges));
}

pub(crate) fn tailer_started() {
    TAILER_RESTARTS.count(&[], 1);
}

pub(crate) fn tailer_ready(ready: bool) {
    TAILER_READY.set(&[], f64::from(u8::from(ready)));
}

/// How an advance of the boundary went.
#[derive(Clone, Copy)]
pub(crate) enum AdvanceResult {
    Ok,
    LockTimeout,
    Error,
}

pub(crate) fn boundary_advance(result: AdvanceResult) {
    let label = match result {
        AdvanceResult::Ok => "ok",
        AdvanceResult::LockTimeout => "lock_timeout",
        AdvanceResult::Error => "error",
    };
    BOUNDARY_ADVANCES.count(&[label], 1);
}

#[expect(
    clippy::cast_precision_loss,
    reason = "gauges are floats, and these counts stay far below 2^53"
)]
fn count(items: usize) -> f64 {
    items as f64
}
