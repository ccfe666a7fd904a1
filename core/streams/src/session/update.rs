//! Whether a change of interests is acceptable, before anything of it takes effect (STR-002).

use std::collections::HashSet;

use bytes::Bytes;
use xmtp_protocol::{SequenceId, Topic};

use crate::settings::Limits;
use crate::{End, Interest, Update};

/// A change that may take effect.
#[derive(Debug)]
pub(crate) struct CheckedUpdate {
    pub(crate) id: u64,
    /// In the order sent, each topic once.
    pub(crate) adds: Vec<(Topic, SequenceId)>,
    /// Each topic once, none of them in `adds`.
    pub(crate) removes: Vec<Topic>,
}

/// Checks an update against the stream's last id and registrations, in the contract's order.
pub(crate) fn check(
    update: &Update,
    last_id: u64,
    registered: usize,
    is_registered: impl Fn(&Topic) -> bool,
    limits: &Limits,
) -> Result<CheckedUpdate, End> {
    if update.id <= last_id
        || update.adds.len() > limits.max_update_adds
        || update.removes.len() > limits.max_update_removes
    {
        return Err(End::Invalid("invalid update id or item count"));
    }
    let mut named = HashSet::with_capacity(update.adds.len() + update.removes.len());
    let mut adds = Vec::with_capacity(update.adds.len());
    for interest in &update.adds {
        let (topic, after) = position(interest)?;
        if !named.insert(topic) {
            return Err(End::Invalid("duplicate update topic"));
        }
        adds.push((topic, after));
    }
    let mut removed = HashSet::with_capacity(update.removes.len());
    for topic in &update.removes {
        let topic = parse(topic.as_ref())?;
        if named.contains(&topic) {
            return Err(End::Invalid("overlapping update topic"));
        }
        if !removed.insert(topic) {
            return Err(End::Invalid("duplicate update topic"));
        }
    }
    let leaving = removed.iter().filter(|topic| is_registered(topic)).count();
    let joining = adds
        .iter()
        .filter(|(topic, _)| !is_registered(topic))
        .count();
    if registered - leaving + joining > limits.max_stream_topics {
        return Err(End::Invalid("stream topic limit exceeded"));
    }
    Ok(CheckedUpdate {
        id: update.id,
        adds,
        removes: removed.into_iter().collect(),
    })
}

/// Checks the topics of a static stream (API-260).
pub(crate) fn check_static(
    topics: &[Interest],
    limits: &Limits,
) -> Result<Vec<(Topic, SequenceId)>, End> {
    if topics.is_empty() || topics.len() > limits.max_static_topics {
        return Err(End::Invalid("invalid static topic count"));
    }
    let mut named = HashSet::with_capacity(topics.len());
    topics
        .iter()
        .map(|interest| {
            let (topic, after) = position(interest)?;
            if named.insert(topic) {
                Ok((topic, after))
            } else {
                Err(End::Invalid("duplicate static topic"))
            }
        })
        .collect()
}

fn position(interest: &Interest) -> Result<(Topic, SequenceId), End> {
    let topic = parse(interest.topic.as_ref())?;
    let after = SequenceId::try_from(interest.after).map_err(|_| End::Invalid("invalid cursor"))?;
    Ok((topic, after))
}

fn parse(topic: Option<&Bytes>) -> Result<Topic, End> {
    let topic = topic.ok_or(End::Invalid("topic is absent"))?;
    Topic::parse(topic).map_err(|_| End::Invalid("invalid topic"))
}
