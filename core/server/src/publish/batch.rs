//! The inputs of one publish: parsed, collapsed, and the refusals that parsing alone can give
//! (step 6 of the contract's order of checks).

use std::collections::{HashMap, HashSet};

use prost::length_delimiter_len;
use tokio::task::coop::consume_budget;
use xmtp_protocol::identity::AssociationChanges;
use xmtp_protocol::proto::xmtp::backend::v1::ClientEnvelope;
use xmtp_protocol::{Content, ParsedEnvelope, Topic, TopicKind, canonical_len};
use xmtp_store::publish::Duplicates;
use xmtp_store::{EnvelopeKey, Metadata, NewEnvelope, StoreError};

use crate::request::PublishRequest;

use super::failure::{PublishFailure, Refusal, Verdict};
use super::limits::{PublishLimits, RetentionPeriods};

/// Number of the field `PublishRequest.envelopes`.
pub(super) const ENVELOPES: u32 = 1;

/// Bytes of that field's key.
const ENVELOPES_KEY_LEN: usize = 1;

/// Numbers of the fields `ClientEnvelope.identity_update` and, in it, `actions`: the one list of an envelope.
const ACTIONS: [u32; 2] = [4, 1];
/// Least bytes of an action in canonical form: its key and its length.
const ACTION_LEN: usize = 2;

/// The inputs of a request.
pub(super) struct Batch {
    /// Distinct envelopes, in the order of their first appearance.
    pub(super) entries: Vec<Entry>,
    /// For each input its entry; of no use, and not kept up, once an input is refused.
    positions: Vec<usize>,
    /// The first input that parsing refuses.
    pub(super) refused: Option<(u32, Refusal)>,
}

/// What a request has named so far.
#[derive(Default)]
struct Seen {
    /// Position of each distinct envelope among the entries.
    entries: HashMap<EnvelopeKey, usize>,
    topics: HashSet<Topic>,
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

    pub(super) fn to_new(
        &self,
        retention: RetentionPeriods,
        associations: AssociationChanges,
    ) -> NewEnvelope {
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
            associations,
        }
    }
}

/// What a publish achieved.
pub(super) struct Published {
    /// One for each input, in its order.
    pub(super) metadata: Vec<Metadata>,
    /// New rows.
    pub(super) stored: u64,
}

impl Batch {
    /// Parses every input, one at a time. Only a bound on the whole request fails at once: it beats every
    /// refusal of a single input, as an input that cannot even be decoded beats every other failure.
    pub(super) async fn parse(
        request: &PublishRequest,
        limits: &PublishLimits,
    ) -> Result<Self, PublishFailure> {
        let mut batch = Self {
            entries: Vec::new(),
            positions: Vec::new(),
            refused: None,
        };
        let mut seen = Seen::default();
        let mut encoded_len = 0;
        for (index, envelope) in (0u32..).zip(request.items::<ClientEnvelope>(ENVELOPES)) {
            // A request can hold millions, and this thread has other requests to serve.
            consume_budget().await;
            let envelope = envelope?;
            // An empty action takes hundreds of bytes once it is decoded.
            let actions_len = ACTION_LEN * envelope.count(&ACTIONS)?;
            if actions_len > limits.max_envelope_bytes {
                encoded_len += actions_len;
                batch.refuse(index, Refusal::EnvelopeTooLarge);
                continue;
            }
            let envelope = envelope.decode()?;
            let length = canonical_len(&envelope);
            // Encoding again can make a request longer than it was on the wire.
            encoded_len += ENVELOPES_KEY_LEN + length_delimiter_len(length) + length;
            if encoded_len > limits.max_request_bytes
                || seen.topics.len() > limits.max_publish_topics
            {
                continue;
            }
            if length > limits.max_envelope_bytes {
                batch.refuse(index, Refusal::EnvelopeTooLarge);
            } else if let Err(refusal) = batch.add(index, envelope, &mut seen, limits) {
                batch.refuse(index, refusal);
            }
        }
        let whole = if encoded_len > limits.max_request_bytes {
            Refusal::RequestTooLarge
        } else if seen.topics.len() > limits.max_publish_topics {
            Refusal::TooManyTopics
        } else {
            return Ok(batch);
        };
        Err(PublishFailure::Refused {
            index: None,
            refusal: whole,
        })
    }

    fn add(
        &mut self,
        index: u32,
        envelope: ClientEnvelope,
        seen: &mut Seen,
        limits: &PublishLimits,
    ) -> Result<(), Refusal> {
        let parsed = ParsedEnvelope::parse(envelope).map_err(|_| Refusal::Malformed)?;
        let entry = Entry { parsed, index };
        let key = entry.key();
        if let Some(&copied) = seen.entries.get(&key) {
            self.positions.push(copied);
            return Ok(());
        }
        if !seen.topics.insert(key.topic) && key.topic.kind() == TopicKind::IdentityUpdate {
            return Err(Refusal::SecondUpdate);
        }
        if let Content::IdentityUpdate {
            contract_wallet_signatures,
            ..
        } = entry.parsed.content
            && contract_wallet_signatures > limits.max_scw_signatures
        {
            return Err(Refusal::TooManySignatures);
        }
        seen.entries.insert(key, self.entries.len());
        self.positions.push(self.entries.len());
        self.entries.push(entry);
        Ok(())
    }

    /// Keeps the first refusal; later inputs are still looked at, since a bound on the whole request beats
    /// it.
    fn refuse(&mut self, index: u32, refusal: Refusal) {
        self.refused.get_or_insert((index, refusal));
    }

    /// Whether there was no input.
    pub(super) const fn is_empty(&self) -> bool {
        self.positions.is_empty() && self.refused.is_none()
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
                    .map(|entry| known.get(&self.entries[*entry].key()).copied())
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
