//! The inputs of one publish: parsed, collapsed, and the refusals that parsing alone can give
//! (step 6 of the contract's order of checks).

use std::collections::{HashMap, HashSet};

use prost::Message;
use xmtp_protocol::proto::xmtp::backend::v1::PublishRequest;
use xmtp_protocol::{
    Content, ParsedEnvelope, Topic, TopicKind, canonical_len, contract_wallet_signatures,
};
use xmtp_store::publish::Duplicates;
use xmtp_store::{EnvelopeKey, NewEnvelope, StoreError};

use super::{PublishFailure, PublishLimits, Published, Refusal, RetentionPeriods, Verdict};

/// The inputs of a request.
pub(super) struct Batch {
    /// Distinct envelopes, in the order of their first appearance.
    pub(super) entries: Vec<Entry>,
    /// For each input its entry; `None` for one that gives none.
    positions: Vec<Option<usize>>,
    /// The first input that parsing refuses.
    pub(super) refused: Option<(u32, Refusal)>,
}

/// One distinct envelope.
pub(super) struct Entry {
    pub(super) parsed: ParsedEnvelope,
    /// Position of its first appearance.
    pub(super) index: u32,
}

impl Entry {
    pub(super) const fn key(&self) -> EnvelopeKey {
        EnvelopeKey {
            topic: self.parsed.topic,
            message_hash: self.parsed.hash,
        }
    }

    /// Whether judging it takes more than parsing.
    pub(super) const fn needs_validation(&self) -> bool {
        matches!(
            self.parsed.content,
            Content::IdentityUpdate { .. } | Content::KeyPackage { .. }
        )
    }

    pub(super) fn to_new(&self, retention: RetentionPeriods) -> NewEnvelope {
        let ParsedEnvelope {
            topic,
            is_commit_or_proposal,
            ..
        } = self.parsed;
        NewEnvelope {
            key: self.key(),
            payload: self.parsed.payload.clone(),
            is_commit_or_proposal,
            push_eligible: self.parsed.push_eligible,
            sender_hmac: self.parsed.sender_hmac,
            retention_seconds: retention.of(topic.kind(), is_commit_or_proposal),
        }
    }
}

impl Batch {
    /// Parses every input. Only a bound on the whole request fails at once: it beats every refusal of
    /// a single input.
    pub(super) fn parse(
        request: PublishRequest,
        limits: &PublishLimits,
    ) -> Result<Self, PublishFailure> {
        let whole = |refusal| PublishFailure::Refused {
            index: None,
            refusal,
        };
        // Encoding again can make a request longer than it was on the wire.
        if request.encoded_len() > limits.max_request_bytes {
            return Err(whole(Refusal::RequestTooLarge));
        }
        let mut batch = Self {
            entries: Vec::new(),
            positions: Vec::with_capacity(request.envelopes.len()),
            refused: None,
        };
        let mut seen: HashMap<EnvelopeKey, usize> = HashMap::new();
        let mut topics: HashSet<Topic> = HashSet::new();
        for (index, envelope) in (0u32..).zip(request.envelopes) {
            if canonical_len(&envelope) > limits.max_envelope_bytes {
                batch.refuse(index, Refusal::EnvelopeTooLarge);
                continue;
            }
            let Ok(parsed) = ParsedEnvelope::parse(envelope) else {
                batch.refuse(index, Refusal::Malformed);
                continue;
            };
            let entry = Entry { parsed, index };
            let key = entry.key();
            if let Some(&copied) = seen.get(&key) {
                batch.positions.push(Some(copied));
                continue;
            }
            if !topics.insert(key.topic) && key.topic.kind() == TopicKind::IdentityUpdate {
                batch.refuse(index, Refusal::SecondUpdate);
                continue;
            }
            if topics.len() > limits.max_publish_topics {
                return Err(whole(Refusal::TooManyTopics));
            }
            if let Content::IdentityUpdate { update, .. } = &entry.parsed.content
                && contract_wallet_signatures(update) > limits.max_scw_signatures
            {
                batch.refuse(index, Refusal::TooManySignatures);
                continue;
            }
            seen.insert(key, batch.entries.len());
            batch.positions.push(Some(batch.entries.len()));
            batch.entries.push(entry);
        }
        Ok(batch)
    }

    /// Keeps a refusal; later inputs are still looked at, since a bound on the whole request beats it.
    fn refuse(&mut self, index: u32, refusal: Refusal) {
        self.refused.get_or_insert((index, refusal));
        self.positions.push(None);
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// The answer: the refusal at the lowest index, of parsing or of `verdict`, or the metadata of
    /// every input from `known`.
    pub(super) fn conclude(
        &self,
        verdict: Option<(u32, Verdict)>,
        known: &Duplicates,
    ) -> Result<Published, PublishFailure> {
        let parsing = self
            .refused
            .map(|(index, refusal)| (index, Verdict::Refused(refusal)));
        let first = [parsing, verdict]
            .into_iter()
            .flatten()
            .min_by_key(|(index, _)| *index);
        match first {
            Some((index, Verdict::Refused(refusal))) => Err(PublishFailure::Refused {
                index: Some(index),
                refusal,
            }),
            Some((_, Verdict::Unavailable)) => Err(PublishFailure::VerifierUnavailable),
            None => {
                let metadata = self
                    .positions
                    .iter()
                    .map(|entry| known.get(&self.entries[(*entry)?].key()).copied())
                    .collect::<Option<_>>()
                    .ok_or(StoreError::invariant(
                        "an envelope was neither stored nor found",
                    ))?;
                Ok(Published {
                    metadata,
                    stored: 0,
                })
            }
        }
    }
}
