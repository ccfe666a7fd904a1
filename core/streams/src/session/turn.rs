//! Catch-up turns: one bounded range read at a time, fair among the topics that owe history
//! (ARC-077, ARC-086 to ARC-088, API-261).

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Instant;
use xmtp_protocol::MAX_DELIVERY_OVERHEAD_BYTES;
use xmtp_store::{CatchUpPage, CatchUpRange, StoreError, StoredEnvelope};
use xmtp_telemetry::{observed, operation};

use super::Session;
use crate::feed::Feed;
use crate::frame::{FRAME_OVERHEAD, Frame};
use crate::metrics::{self, Phase};
use crate::settings::{TURN_ROWS, TURN_TOPICS};
use crate::{End, Shared};

/// The stream's one turn. Its topics are in no queue meanwhile.
pub(super) enum Turn {
    Idle,
    Reading {
        feeds: Vec<Feed>,
        page: BoxFuture<'static, Result<CatchUpPage, StoreError>>,
    },
    /// Read, and waiting for room in the output, if it had to, since then.
    Held {
        feeds: Vec<Feed>,
        page: CatchUpPage,
        since: Option<Instant>,
    },
}

impl Turn {
    /// The page being read; never, while none is. Cancel-safe.
    pub(super) async fn read(&mut self) -> Result<CatchUpPage, StoreError> {
        match self {
            Self::Reading { page, .. } => page.await,
            Self::Idle | Self::Held { .. } => std::future::pending().await,
        }
    }

    /// Keeps the page that [`Self::read`] returned.
    pub(super) fn hold(&mut self, page: CatchUpPage) {
        if let Self::Reading { feeds, .. } = std::mem::replace(self, Self::Idle) {
            *self = Self::Held {
                feeds,
                page,
                since: None,
            };
        }
    }

    /// Drops the turn if it holds a topic for which `gone`; returns its other topics in their order.
    pub(super) fn cancel_without(&mut self, gone: impl Fn(&Feed) -> bool) -> Vec<Feed> {
        match self {
            Self::Reading { feeds, .. } | Self::Held { feeds, .. } if feeds.iter().any(&gone) => {
                let mut feeds = std::mem::take(feeds);
                *self = Self::Idle;
                feeds.retain(|feed| !gone(feed));
                feeds
            }
            _ => Vec::new(),
        }
    }
}

impl Session {
    /// Begins a turn if one is due and its frame will fit.
    pub(super) fn start_turn(&mut self) {
        if !matches!(self.turn, Turn::Idle) || self.ready.is_empty() || !self.output.has_room() {
            return;
        }
        let feeds: Vec<Feed> = self
            .ready
            .drain(..self.ready.len().min(self.turn_topics))
            .collect();
        let ranges = feeds
            .iter()
            .filter_map(|feed| {
                let registration = self.topics.get(feed)?;
                Some(CatchUpRange {
                    topic: *feed.topic(),
                    after: registration.floor,
                    through: registration.needed,
                })
            })
            .collect();
        let page = read_page(Arc::clone(&self.shared), ranges).boxed();
        self.turn = Turn::Reading { feeds, page };
    }

    /// Admits the page that is held, as one frame, once there is room for it.
    pub(super) fn admit_held(&mut self) -> Result<(), End> {
        let Turn::Held { since, .. } = &mut self.turn else {
            return Ok(());
        };
        if !self.output.has_room() {
            since.get_or_insert_with(Instant::now);
            return Ok(());
        }
        let Turn::Held { feeds, page, since } = std::mem::replace(&mut self.turn, Turn::Idle)
        else {
            return Ok(());
        };
        if let Some(since) = since {
            metrics::outbound_waited(since.elapsed());
        }
        let mut served = vec![0; feeds.len()];
        let mut owed = Vec::with_capacity(page.rows.len());
        for row in &page.rows {
            let feed = feeds.get(row.range).ok_or(End::Corrupt)?;
            let Some(registration) = self.topics.get_mut(feed) else {
                continue;
            };
            let sequence_id = row.envelope.metadata.sequence_id;
            served[row.range] += 1;
            if sequence_id > registration.floor {
                owed.push(&row.envelope);
                registration.floor = sequence_id;
            }
        }
        let admitted = owed.len();
        if !owed.is_empty() {
            let frame = Frame::Messages(vec![StoredEnvelope::encode(owed.iter().copied())]);
            if frame.wire_len() > self.shared.settings.frame_bytes() {
                return Err(End::OVERSIZED);
            }
            self.output.admit(frame).map_err(|_| End::Backpressure)?;
        }
        metrics::envelopes_sent(Phase::CatchUp, admitted);

        // Where the byte bound fell: topics behind it were not reached, the one at it is partly served.
        let cut_at = if page.cut {
            page.rows.last().map_or(0, |row| row.range)
        } else {
            feeds.len()
        };
        let unreached = feeds.get(cut_at + 1..).unwrap_or_default();
        self.turn_topics = if page.cut {
            cut_at + 1
        } else {
            (self.turn_topics * 2).min(TURN_TOPICS)
        };
        for (position, feed) in feeds.iter().enumerate().take(cut_at + 1) {
            let Some(registration) = self.topics.get(feed) else {
                continue;
            };
            let complete = position != cut_at && served[position] < TURN_ROWS;
            if complete && registration.floor < registration.needed {
                tracing::error!(request_id = %self.request_id, "a visible head has no stored row");
                return Err(End::Database("history read failed"));
            }
            let needed = registration.needed;
            self.settle(feed.clone(), needed);
        }
        for feed in unreached.iter().rev() {
            self.ready.push_front(feed.clone());
        }
        Ok(())
    }
}

async fn read_page(
    shared: Arc<Shared>,
    ranges: Vec<CatchUpRange>,
) -> Result<CatchUpPage, StoreError> {
    let max_bytes = shared.settings.frame_bytes().saturating_sub(FRAME_OVERHEAD);
    let reads = shared.reads.clone();
    let read = async move {
        let max_bytes = i64::try_from(max_bytes).unwrap_or(i64::MAX);
        let overhead = i32::try_from(MAX_DELIVERY_OVERHEAD_BYTES).unwrap_or(i32::MAX);
        reads
            .catch_up(&ranges, TURN_ROWS, max_bytes, overhead)
            .await
    };
    observed(operation!("stream.fetch"), shared.read(read)).await
}
