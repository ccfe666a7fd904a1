//! `Publish`, from a request to stored metadata (spec 002 section 4; contract of the API,
//! section 5.1).

mod batch;
mod failure;
mod limits;

pub(crate) use failure::{PublishFailure, Refusal};
pub(crate) use limits::{PublishLimits, RetentionPeriods};

use std::sync::Arc;

use tokio::time::{Instant, timeout, timeout_at};
use xmtp_protocol::identity::AssociationChanges;
use xmtp_protocol::{Content, SequenceId, Topic, ValidationError, Validator};
use xmtp_store::publish::{Duplicates, History, PublishConnection, PublishLocks};
use xmtp_store::{EnvelopeKey, Metadata, NewEnvelope, Primary, StoreError};
use xmtp_streams::Streams;
use xmtp_telemetry::{observed, operation};

use batch::{Batch, ENVELOPES, Entry, Published};
use failure::Verdict;

use crate::chains::MAX_CHAIN_WAIT;
use crate::request::PublishRequest;
use crate::telemetry::families::PUBLISH_ENVELOPES;

/// What validation left for the transaction to decide.
struct Survivor<'a> {
    entry: &'a Entry,
    verdict: Option<Verdict>,
    /// What an identity update changes in the projection of identifiers.
    associations: AssociationChanges,
    /// Head of the history that was validated; of identity updates only.
    validated_head: Option<SequenceId>,
}

/// Carries out publishes.
pub(crate) struct Publisher {
    primary: Primary,
    /// Told of what is committed.
    streams: Streams,
    validator: Arc<dyn Validator>,
    limits: PublishLimits,
    retention: RetentionPeriods,
}

impl Publisher {
    pub(crate) fn new(
        primary: Primary,
        streams: Streams,
        validator: Arc<dyn Validator>,
        limits: PublishLimits,
        retention: RetentionPeriods,
    ) -> Self {
        Self {
            primary,
            streams,
            validator,
            limits,
            retention,
        }
    }

    /// Stores the envelopes of `request`, all or none, and returns the metadata of each in its order.
    pub(crate) async fn publish(
        &self,
        request: PublishRequest,
    ) -> Result<Vec<Metadata>, PublishFailure> {
        let result = self.store(&request).await;
        let count = |outcome: &'static str, positions| {
            PUBLISH_ENVELOPES.count(&[outcome], positions);
        };
        match result {
            Ok(Published { metadata, stored }) => {
                count("stored", stored);
                count("duplicate", metadata.len() as u64 - stored);
                Ok(metadata)
            }
            // Nothing was decoded, so there are no positions.
            Err(failure @ PublishFailure::Undecodable(_)) => Err(failure),
            Err(failure) => {
                let inputs = request.count(&[ENVELOPES]).unwrap_or(0);
                count("rejected", inputs as u64);
                Err(failure)
            }
        }
    }

    async fn store(&self, request: &PublishRequest) -> Result<Published, PublishFailure> {
        let parse = Batch::parse(request, &self.limits);
        let batch = observed(operation!("publish.parse_publish"), parse).await?;
        if batch.is_empty() {
            return Ok(Published {
                metadata: Vec::new(),
                stored: 0,
            });
        }
        // What parsing refuses stays refused; only validation could put a lower index, or a moved history,
        // before it.
        if batch.refused.is_some() && !batch.entries.iter().any(Entry::needs_validation) {
            return batch.conclude(None, &Duplicates::new());
        }
        let keys: Vec<EnvelopeKey> = batch.entries.iter().map(Entry::key).collect();
        let mut first = self.primary.publish().await?;
        let known = first.find_duplicates(&keys).await?;
        let mut connection = Some(first);
        let new: Vec<&Entry> = batch
            .entries
            .iter()
            .filter(|entry| !known.contains_key(&entry.key()))
            .collect();
        if new.is_empty() {
            if let Some(connection) = connection {
                connection.release();
            }
            return batch.conclude(None, &known);
        }
        // Validation may read history and wait for a chain: no connection waits with it.
        if new.iter().any(|entry| entry.needs_validation())
            && let Some(connection) = connection.take()
        {
            connection.release();
        }
        let validate = self.validate(new);
        let survivors = observed(operation!("publish.validate_publish"), validate).await?;
        let connection = match connection {
            Some(connection) => connection,
            None => self.primary.publish().await?,
        };
        timeout(
            self.limits.max_duration,
            self.commit(&batch, known, &survivors, connection),
        )
        .await
        .map_err(|_| PublishFailure::TimedOut)?
    }

    /// Judges what is new, with no lock and no transaction held.
    async fn validate<'a>(&self, new: Vec<&'a Entry>) -> Result<Vec<Survivor<'a>>, PublishFailure> {
        let deadline = Instant::now() + MAX_CHAIN_WAIT;
        let mut survivors = Vec::with_capacity(new.len());
        for entry in new {
            let mut survivor = Survivor {
                entry,
                verdict: None,
                associations: AssociationChanges::default(),
                validated_head: None,
            };
            match &entry.parsed.content {
                Content::IdentityUpdate { .. } => {
                    let history = self.primary.history(&entry.parsed.topic).await?;
                    survivor.validated_head = Some(history.head);
                    match self.judge_update(entry, &history, deadline).await? {
                        Ok(associations) => survivor.associations = associations,
                        Err(verdict) => survivor.verdict = Some(verdict),
                    }
                }
                Content::KeyPackage { tls } => {
                    survivor.verdict = judged(self.validator.key_package(tls))?.err();
                }
                Content::GroupMessage | Content::Welcome | Content::CommitLogEntry => {}
            }
            survivors.push(survivor);
        }
        Ok(survivors)
    }

    /// Judges an identity update against the log of its inbox. What waits for a chain past the deadline gets no verdict.
    async fn judge_update(
        &self,
        entry: &Entry,
        history: &History,
        deadline: Instant,
    ) -> Result<Result<AssociationChanges, Verdict>, PublishFailure> {
        if history.payloads.len() >= self.limits.max_identity_entries {
            return Ok(Err(Verdict::Refused(Refusal::HistoryFull)));
        }
        let update = entry
            .parsed
            .identity_update()
            .ok_or(StoreError::invariant("an encoded envelope does not decode"))?;
        let result = self.validator.identity_update(&history.payloads, &update);
        match timeout_at(deadline, result).await {
            Ok(result) => judged(result),
            Err(_) => Ok(Err(Verdict::Unavailable)),
        }
    }

    /// The transaction. Dropped at any point, it leaves nothing behind (ARC-051).
    async fn commit(
        &self,
        batch: &Batch,
        mut known: Duplicates,
        survivors: &[Survivor<'_>],
        connection: PublishConnection,
    ) -> Result<Published, PublishFailure> {
        let locks = PublishLocks::new(
            survivors
                .iter()
                .map(|survivor| &survivor.entry.parsed.topic),
        );
        let begin = connection.begin(&locks);
        let mut transaction = observed(operation!("publish.locks"), begin).await?;
        let keys: Vec<EnvelopeKey> = survivors
            .iter()
            .map(|survivor| survivor.entry.key())
            .collect();
        known.extend(transaction.find_duplicates(&keys).await?);
        let remaining: Vec<&Survivor<'_>> = survivors
            .iter()
            .filter(|survivor| !known.contains_key(&survivor.entry.key()))
            .collect();

        let (topics, heads): (Vec<Topic>, Vec<SequenceId>) = remaining
            .iter()
            .filter_map(|survivor| Some((survivor.entry.parsed.topic, survivor.validated_head?)))
            .unzip();
        if !topics.is_empty() && transaction.heads(&topics).await? != heads {
            transaction.rollback().await;
            return Err(PublishFailure::HistoryMoved);
        }
        let refused = remaining
            .iter()
            .filter_map(|survivor| Some((survivor.entry.index, survivor.verdict?)))
            .min_by_key(|(index, _)| *index);
        if refused.is_some() || batch.refused.is_some() || remaining.is_empty() {
            transaction.rollback().await;
            return batch.conclude(refused, &known);
        }
        let envelopes: Vec<NewEnvelope> = remaining
            .iter()
            .map(|survivor| {
                let associations = survivor.associations.clone();
                survivor.entry.to_new(self.retention, associations)
            })
            .collect();
        let envelopes: Vec<&NewEnvelope> = envelopes.iter().collect();
        let commit = transaction.commit(&envelopes);
        let stored = observed(operation!("db.commit_publish"), commit).await?;
        self.streams
            .committed(stored.iter().map(|metadata| &metadata.topic));
        let mut published = {
            known.extend(stored.iter().map(|metadata| (metadata.key(), *metadata)));
            batch.conclude(None, &known)?
        };
        published.stored = stored.len() as u64;
        Ok(published)
    }
}

/// What validation found, or else the verdict that it leaves for the transaction to decide.
fn judged<T>(result: Result<T, ValidationError>) -> Result<Result<T, Verdict>, PublishFailure> {
    let verdict = match result {
        Ok(found) => return Ok(Ok(found)),
        Err(ValidationError::KeyPackage(_)) => Verdict::Refused(Refusal::KeyPackage),
        Err(ValidationError::IdentityUpdate(_)) => Verdict::Refused(Refusal::IdentityUpdate),
        Err(ValidationError::Signature(_)) => Verdict::Refused(Refusal::Signature),
        Err(ValidationError::Unavailable(_)) => Verdict::Unavailable,
        Err(ValidationError::StoredHistory) => {
            return Err(StoreError::invariant("a stored identity update does not decode").into());
        }
    };
    Ok(Err(verdict))
}
