//! A client that outlives its streams: it keeps every row, and goes on from its own positions.

use std::time::Duration;

use prost::Message;
use tokio::time::{Instant, timeout_at};
use tonic::Status;
use xmtp_protocol::Topic;
use xmtp_test_support::Random;

use super::oracle::topic_of;
use super::reader::{Frame, Reader};
use crate::harness::sequence_id;
use crate::judge::{Row, Rows, Verdict, judge};

/// Buckets that never run dry.
pub(super) const UNLIMITED: &str = "limits.max_update_frames_per_second = 1000000
    limits.max_update_burst = 1000000
    limits.max_ping_frames_per_second = 1000000
    limits.max_ping_burst = 1000000";

/// The nonce of the last probe.
const LAST: u64 = u64::MAX;

/// What one client keeps over all its streams.
pub(super) struct Client {
    topics: Vec<Topic>,
    rows: Rows,
    /// How many streams it has left, or been left by.
    pub(super) resumptions: usize,
}

impl Client {
    /// One that is interested in `topics`, from their beginning.
    pub(super) fn new(topics: &[Topic]) -> Self {
        Self {
            topics: topics.to_vec(),
            rows: Rows::new(),
            resumptions: 0,
        }
    }

    /// What it was delivered of a topic.
    pub(super) fn rows(&self, topic: &Topic) -> &[Row] {
        self.rows.get(topic).map_or(&[], |rows| rows)
    }

    /// All that it was delivered.
    pub(super) fn deliveries(&self) -> usize {
        self.rows.values().map(Vec::len).sum()
    }

    pub(super) fn position(&self, topic: &Topic) -> u64 {
        self.rows(topic).last().map_or(0, |(id, _)| *id)
    }

    /// Takes what a stream says.
    pub(super) fn take(&mut self, frame: Frame, reader: &mut Reader) {
        match frame {
            Frame::Rows(rows) => {
                for row in rows {
                    let envelope = row.envelope.as_ref().expect("a row has its envelope");
                    self.rows
                        .entry(topic_of(&row))
                        .or_default()
                        .push((sequence_id(&row), envelope.encode_to_vec()));
                }
            }
            Frame::Ping(nonce) => reader.pong(nonce),
            Frame::Applied(_) | Frame::Pong(_) => {}
        }
    }

    /// Adds and removes some topics. One that is being removed is left alone: added again now, it would
    /// repeat what is on its way.
    pub(super) fn change(&self, reader: &mut Reader, random: &mut Random) {
        let some: Vec<Topic> = self
            .topics
            .iter()
            .copied()
            .filter(|topic| random.one_in(3) && !reader.is_leaving(topic))
            .collect();
        let (removes, adds): (Vec<Topic>, Vec<Topic>) = some
            .into_iter()
            .partition(|topic| reader.is_registered(topic) && !random.one_in(3));
        reader.update(&self.positions(&adds), &removes);
    }

    /// Reads for moments, changing topics between them, as long as it is `going`.
    pub(super) async fn follow(
        &mut self,
        reader: &mut Reader,
        random: &mut Random,
        going: impl Fn() -> bool,
    ) -> Result<(), Status> {
        for _ in 0..=random.below(8) {
            if random.one_in(2) {
                self.change(reader, random);
            }
            let until = Instant::now() + Duration::from_millis(random.below(12));
            while let Ok(frame) = timeout_at(until, reader.try_next()).await {
                let frame = frame?.expect("the server ends no stream");
                self.take(frame, reader);
            }
            if !going() {
                break;
            }
        }
        Ok(())
    }

    /// Reads all of its topics to the end of what is stored, and whatever comes after that.
    pub(super) async fn finish(
        &mut self,
        reader: &mut Reader,
        stored: &Rows,
    ) -> Result<(), Status> {
        while reader.is_waiting() {
            let frame = reader.try_next().await?;
            self.take(frame.expect("the server ends no stream"), reader);
        }
        reader.update(&self.positions(&self.topics), &[]);
        let head = |topic: &Topic| stored[topic].last().map_or(0, |(id, _)| *id);
        while self.topics.iter().any(|it| self.position(it) < head(it)) {
            let frame = reader.try_next().await?;
            self.take(frame.expect("the server ends no stream"), reader);
        }
        reader.ping(LAST);
        loop {
            let frame = reader.try_next().await?;
            let frame = frame.expect("the server ends no stream");
            if frame == Frame::Pong(LAST) {
                return Ok(());
            }
            self.take(frame, reader);
        }
    }

    /// Judges all that it was delivered.
    pub(super) fn verdict(&self, stored: &Rows) -> Verdict {
        let mut verdict = Verdict::default();
        for topic in &self.topics {
            verdict += judge(self.rows(topic), &stored[topic]);
        }
        verdict
    }

    fn positions(&self, topics: &[Topic]) -> Vec<(Topic, u64)> {
        topics.iter().map(|it| (*it, self.position(it))).collect()
    }
}
