//! Metric families of streams, with their label vocabularies (operations contract, section 4.2).

use metrics::{counter, gauge};

use xmtp_store::ErrorKind;

use crate::End;
use crate::frame::{ClientFrame, Frame};

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
    counter!("xmtp_stream_frames_sent_total", "frame" => label).increment(1);
}

pub(crate) fn frame_received(frame: &ClientFrame) {
    let label = match frame {
        ClientFrame::Update(_) | ClientFrame::OversizedUpdate => "update",
        ClientFrame::Ping(_) => "ping",
        ClientFrame::Pong(_) => "pong",
        ClientFrame::Unset => return,
    };
    counter!("xmtp_stream_frames_received_total", "frame" => label).increment(1);
}

pub(crate) fn envelopes_sent(phase: Phase, rows: usize) {
    let label = match phase {
        Phase::CatchUp => "catch_up",
        Phase::Live => "live",
    };
    counter!("xmtp_stream_envelopes_sent_total", "phase" => label).increment(rows as u64);
}

pub(crate) fn read_failed(kind: ErrorKind) {
    counter!("xmtp_db_errors_total", "kind" => kind.label()).increment(1);
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
    counter!("xmtp_stream_updates_total", "outcome" => label).increment(1);
}

pub(crate) fn session_opened(kind: &'static str) {
    gauge!("xmtp_stream_sessions", "kind" => kind).increment(1);
}

pub(crate) fn session_ended(kind: &'static str, end: End) {
    gauge!("xmtp_stream_sessions", "kind" => kind).decrement(1);
    counter!("xmtp_stream_ended_total", "reason" => end.reason()).increment(1);
}

pub(crate) fn topics_registered(added: usize) {
    gauge!("xmtp_stream_topics_registered").increment(count(added));
}

pub(crate) fn topics_released(removed: usize) {
    gauge!("xmtp_stream_topics_registered").decrement(count(removed));
}

pub(crate) fn tailer_polled(ok: bool) {
    let label = if ok { "ok" } else { "error" };
    counter!("xmtp_tailer_polls_total", "result" => label).increment(1);
}

pub(crate) fn tailer_rows(from_gap: usize, forward: usize) {
    counter!("xmtp_tailer_rows_total", "source" => "gap").increment(from_gap as u64);
    counter!("xmtp_tailer_rows_total", "source" => "forward").increment(forward as u64);
}

pub(crate) fn tailer_gap_ranges(ranges: usize) {
    gauge!("xmtp_tailer_gap_ranges").set(count(ranges));
}

pub(crate) fn tailer_started() {
    counter!("xmtp_tailer_restarts_total").increment(1);
}

pub(crate) fn tailer_ready(ready: bool) {
    gauge!("xmtp_tailer_ready").set(f64::from(u8::from(ready)));
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
    counter!("xmtp_boundary_advances_total", "result" => label).increment(1);
}

#[expect(
    clippy::cast_precision_loss,
    reason = "gauges are floats, and these counts stay far below 2^53"
)]
fn count(items: usize) -> f64 {
    items as f64
}
