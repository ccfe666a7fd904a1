//! Recorded envelopes: one JSON object a line, as in `tests/data/recorded-envelopes.jsonl`.

use std::collections::HashMap;
use std::str::FromStr;

use hex::FromHex;
use prost::Message;
use serde::Deserialize;
use xmtp_protocol::proto::xmtp::backend::v1::{ClientEnvelope, EnvelopeMeta, ServerEnvelope};
use xmtp_protocol::{MessageHash, Topic};

use super::error::{DemoError, Fault, LineFault, Step};
use super::{Key, key};

/// Distinct envelopes, and what a server has to say of them.
pub(super) struct Recording {
    pub(super) envelopes: Vec<Recorded>,
    index: HashMap<Key, usize>,
}

/// One envelope.
pub(super) struct Recorded {
    /// Where it is in the file, from 1.
    pub(super) line: usize,
    pub(super) topic: Topic,
    hash: MessageHash,
    is_commit_or_proposal: bool,
    pub(super) envelope: ClientEnvelope,
}

/// A line; bytes are in hex.
#[derive(Deserialize)]
struct Line {
    topic: String,
    hash: String,
    is_commit_or_proposal: bool,
    envelope: String,
}

impl FromStr for Recording {
    type Err = DemoError;

    fn from_str(text: &str) -> Result<Self, DemoError> {
        let mut recording = Self {
            envelopes: Vec::new(),
            index: HashMap::new(),
        };
        for (line, text) in (1..).zip(text.lines()) {
            let fault = |fault| DemoError::Recording { line, fault };
            let recorded = Recorded::parse(line, text).map_err(fault)?;
            let place = recording.envelopes.len();
            if recording.index.insert(recorded.key(), place).is_some() {
                return Err(fault(LineFault::Repeated));
            }
            recording.envelopes.push(recorded);
        }
        Ok(recording)
    }
}

impl Recording {
    /// Its topics, each once.
    pub(super) fn topics(&self) -> Vec<Topic> {
        let mut topics: Vec<Topic> = self.envelopes.iter().map(|it| it.topic).collect();
        topics.sort_unstable();
        topics.dedup();
        topics
    }

    /// The place of an envelope in the recording; `None` for one of somebody else.
    pub(super) fn find(&self, key: &Key) -> Option<usize> {
        self.index.get(key).copied()
    }
}

impl Recorded {
    fn parse(line: usize, text: &str) -> Result<Self, LineFault> {
        let parsed: Line = serde_json::from_str(text).map_err(|_| LineFault::Json)?;
        let bytes = |text: &str| Vec::from_hex(text).map_err(|_| LineFault::Hex);
        let hash: [u8; MessageHash::LEN] = bytes(&parsed.hash)?
            .try_into()
            .map_err(|_| LineFault::Hash)?;
        Ok(Self {
            line,
            topic: Topic::parse(&bytes(&parsed.topic)?)?,
            hash: hash.into(),
            is_commit_or_proposal: parsed.is_commit_or_proposal,
            envelope: ClientEnvelope::decode(&bytes(&parsed.envelope)?[..])
                .map_err(|_| LineFault::Envelope)?,
        })
    }

    const fn key(&self) -> Key {
        (self.topic, self.hash)
    }

    /// Compares a receipt with the recording (API-211, API-212).
    pub(super) fn check_receipt(&self, receipt: &EnvelopeMeta) -> Result<(), Fault> {
        let (topic, hash) = key(receipt).ok_or(Fault::Hash)?;
        if topic != self.topic {
            return Err(Fault::Topic);
        }
        if hash != self.hash {
            return Err(Fault::Hash);
        }
        if receipt.is_commit_or_proposal != self.is_commit_or_proposal {
            return Err(Fault::Flag);
        }
        Ok(())
    }

    /// Compares a delivery with the receipt and with what was sent.
    pub(super) fn check_delivery(
        &self,
        receipt: &EnvelopeMeta,
        delivery: &ServerEnvelope,
        step: Step,
    ) -> Result<(), Fault> {
        if delivery.meta.as_ref() != Some(receipt) {
            return Err(Fault::Metadata(step));
        }
        if delivery.envelope.as_ref() != Some(&self.envelope) {
            return Err(Fault::Payload(step));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use xmtp_protocol::TopicError;

    use super::*;

    fn fault_of(text: &str) -> (usize, LineFault) {
        match text.parse::<Recording>() {
            Err(DemoError::Recording { line, fault }) => (line, fault),
            Err(other) => panic!("another error: {other}"),
            Ok(_) => panic!("the recording is taken"),
        }
    }

    #[test]
    fn a_faulty_line_is_named() {
        let good = super::super::RECORDED.lines().next().expect("a line");
        let with = |key: &str, prefix: &str| {
            let mut line: serde_json::Value = serde_json::from_str(good).expect("JSON");
            let value = line[key].as_str().expect("a text");
            line[key] = format!("{prefix}{value}").into();
            format!("{good}\n{line}\n")
        };
        assert_eq!(fault_of("{}"), (1, LineFault::Json));
        for (text, fault) in [
            (with("source", ""), LineFault::Repeated),
            (with("topic", "zz"), LineFault::Hex),
            (
                with("topic", "05"),
                LineFault::Topic(TopicError::UnknownKind),
            ),
            (with("hash", "00"), LineFault::Hash),
            (with("envelope", "ff"), LineFault::Envelope),
        ] {
            assert_eq!(fault_of(&text), (2, fault));
        }
    }
}
