//! Catch-up turns: one bounded range read at a time, fair among the topics that owe history
//! (ARC-077, ARC-086 to ARC-088, API-261).

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Instant;
use xmtp_protocol::{MAX_DELIVERY_OVERHEAD_BYTES, Topic};
use xmtp_store::{CatchUpPage, CatchUpRange, StoreError};
use xmtp_telemetry::{observed, operation};

use super::Session;
use crate::frame::{FRAME_OVERHEAD, Frame};
use crate::metrics::{self, Phase};
use crate::settings::{TURN_ROWS, TURN_TOPICS};
use crate::{End, Shared};

/// The stream's one turn. Its topics are in no queue meanwhile.
pub(super) enum Turn {
    Idle,
    Reading {
        topics: Vec<Topic>,
        page: BoxFuture<'static, Result<CatchUpPage, StoreError>>,
    },
    /// Read, and waiting for room in the output, if it had to, since then.
    Held {
        topics: Vec<Topic>,
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
        if let Self::Reading { topics, .. } = std::mem::replace(self, Self::Idle) {
            *self = Self::Held {
                topics,
                page,
                since: None,
            };
        }
    }

    /// Drops the turn if it holds a topic for which `gone`; returns its other topics in their order.
    pub(super) fn cancel_without(&mut self, gone: impl Fn(&Topic) -> bool) -> Vec<Topic> {
        match self {
            Self::Reading { topics, .. } | Self::Held { topics, .. }
                if topics.iter().any(&gone) =>
            {
                let mut topics = std::mem::take(topics);
                *self = Self::Idle;
                topics.retain(|topic| !gone(topic));
                topics
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
        let topics: Vec<Topic> = self
            .ready
            .drain(..self.ready.len().min(self.turn_topics))
            .collect();
        let ranges = topics
            .iter()
            .filter_map(|topic| {
                let registration = self.topics.get(topic)?;
                Some(CatchUpRange {
                    topic: *topic,
                    after: registration.floor,
                    through: registration.needed,
                })
            })
            .collect();
        let page = read_page(Arc::clone(&self.shared), ranges).boxed();
        self.turn = Turn::Reading { topics, page };
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
        let Turn::Held {
            topics,
            page,
            since,
        } = std::mem::replace(&mut self.turn, Turn::Idle)
        else {
            return Ok(());
        };
        if let Some(since) = since {
            metrics::outbound_waited(since.elapsed());
        }
        let mut served = vec![0; topics.len()];
        let mut rows: Vec<Bytes> = Vec::with_capacity(page.rows.len());
        for row in &page.rows {
            let topic = topics.get(row.range).ok_or(End::Corrupt)?;
            let Some(registration) = self.topics.get_mut(topic) else {
                continue;
            };
            let sequence_id = row.envelope.metadata.sequence_id;
            served[row.range] += 1;
            if sequence_id > registration.floor {
                rows.push(row.envelope.encode());
                registration.floor = sequence_id;
            }
        }
        let admitted = rows.len();
        if !rows.is_empty() {
            let frame = Frame::Messages(rows);
            if frame.wire_len() > self.shared.settings.frame_bytes() {
                return Err(End::Capacity("stored envelope exceeds delivery capacity"));
            }
            self.output.admit(frame).map_err(|_| End::Backpressure)?;
        }
        metrics::envelopes_sent(Phase::CatchUp, admitted);

        // Where the byte bound fell: topics behind it were not reached, the one at it is partly served.
        let cut_at = if page.cut {
            page.rows.last().map_or(0, |row| row.range)
        } else {
            topics.len()
        };
        let unreached = topics.get(cut_at + 1..).unwrap_or_default();
        self.turn_topics = if page.cut {
            cut_at + 1
        } else {
            (self.turn_topics * 2).min(TURN_TOPICS)
        };
        for (position, topic) in topics.iter().enumerate().take(cut_at + 1) {
            let Some(registration) = self.topics.get(topic) else {
                continue;
            };
            let complete = position != cut_at && served[position] < TURN_ROWS;
            if complete && registration.floor < registration.needed {
                tracing::error!("a visible head has no stored row");
                return Err(End::Database("history read failed"));
            }
            self.settle(*topic);
        }
        for topic in unreached.iter().rev() {
            self.ready.push_front(*topic);
        }
        Ok(())
    }
}

async fn read_page(
    shared: Arc<Shared>,
    ranges: Vec<CatchUpRange>,
) -> Result<CatchUpPage, StoreError> {
    let fetch = async move {
        let permit = shared.fetch_permit().await;
        let max_bytes = shared.settings.frame_bytes().saturating_sub(FRAME_OVERHEAD);
        let page = shared
            .reads
            .catch_up(
                &ranges,
                TURN_ROWS,
                as_bigint(max_bytes),
                as_bigint(MAX_DELIVERY_OVERHEAD_BYTES),
            )
            .await;
        drop(permit);
        page
    };
    observed(operation!("stream.fetch"), fetch).await
}

fn as_bigint(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
