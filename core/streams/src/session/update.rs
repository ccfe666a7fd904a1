//! Whether a change of interests is acceptable, before anything of it takes effect (STR-002).

use std::collections::HashSet;

use bytes::Bytes;
use xmtp_protocol::{SequenceId, Topic};

use super::steps::Steps;
use crate::settings::Limits;
use crate::{End, Interest, Update};

/// A change that may take effect.
#[derive(Debug)]
pub(crate) struct CheckedUpdate {
    pub(crate) id: u64,
    /// Those of the adds that are not registered yet, in the order sent.
    pub(crate) new: Vec<(Topic, SequenceId)>,
    /// Each topic once, none of them among the adds.
    pub(crate) removes: Vec<Topic>,
}

/// Checks an update against the stream's last id and registrations, in the contract's order. Each topic is a step:
/// 100,000 take their time.
pub(crate) async fn check(
    update: &Update,
    last_id: u64,
    registered: usize,
    is_registered: impl Fn(&Topic) -> bool,
    limits: &Limits,
    steps: &mut Steps<'_>,
) -> Result<CheckedUpdate, End> {
    if update.id <= last_id
        || update.adds.len() > limits.max_update_adds
        || update.removes.len() > limits.max_update_removes
    {
        return Err(End::UPDATE_REFUSED);
    }
    let mut named = HashSet::with_capacity(update.adds.len());
    let mut new = Vec::with_capacity(update.adds.len());
    for interest in &update.adds {
        steps.step().await?;
        let (topic, after) = position(interest)?;
        if !named.insert(topic) {
            return Err(End::Invalid("duplicate update topic"));
        }
        if !is_registered(&topic) {
            new.push((topic, after));
        }
    }
    let mut removed = HashSet::with_capacity(update.removes.len());
    let mut leaving = 0;
    for topic in &update.removes {
        steps.step().await?;
        let topic = parse(topic.as_ref())?;
        if named.contains(&topic) {
            return Err(End::Invalid("overlapping update topic"));
        }
        if !removed.insert(topic) {
            return Err(End::Invalid("duplicate update topic"));
        }
        leaving += usize::from(is_registered(&topic));
    }
    if registered - leaving + new.len() > limits.max_stream_topics {
        return Err(End::Invalid("stream topic limit exceeded"));
    }
    Ok(CheckedUpdate {
        id: update.id,
        new,
        removes: removed.into_iter().collect(),
    })
}

/// Checks the topics of a static stream (API-260).
pub(crate) fn check_static(
    topics: &[Interest],
    limits: &Limits,
) -> Result<Vec<(Topic, SequenceId)>, End> {
    if topics.is_empty() || topics.len() > limits.max_static_topics {
        return Err(End::STATIC_REFUSED);
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

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use futures::FutureExt;
    use xmtp_protocol::TopicKind;

    use super::*;
    use crate::pace::Pace;
    use crate::port::Mailbox;
    use crate::{Rate, output};

    const RATE: Rate = Rate {
        per_second: NonZeroU32::MIN,
        burst: NonZeroU32::MIN,
    };
    const LIMITS: Limits = Limits {
        max_request_bytes: 1000,
        max_response_bytes: 1000,
        max_update_adds: 3,
        max_update_removes: 2,
        max_stream_topics: 4,
        max_static_topics: 2,
        updates: RATE,
        pings: RATE,
    };

    fn topic(byte: u8) -> Topic {
        Topic::new(TopicKind::GroupMessage, &[byte; 16]).unwrap()
    }

    fn bytes(byte: u8) -> Bytes {
        Bytes::copy_from_slice(topic(byte).as_bytes())
    }

    fn update(id: u64, adds: &[u8], removes: &[u8]) -> Update {
        let interest = |byte: &u8| Interest {
            topic: Some(bytes(*byte)),
            after: 0,
        };
        Update {
            id,
            adds: adds.iter().map(interest).collect(),
            removes: removes.iter().map(|byte| Some(bytes(*byte))).collect(),
            encoded_len: 0,
        }
    }

    /// Checks on a stream whose last id is 5 and whose topics are `registered`.
    fn refusal(update: &Update, registered: &[u8]) -> Option<&'static str> {
        let is_registered = |wanted: &Topic| registered.iter().any(|byte| topic(*byte) == *wanted);
        let (pace, mailbox) = (Pace::new(), Mailbox::new(1));
        let (output, _stream) = output::channel(1000);
        let mut steps = Steps {
            pace: &pace,
            taken: &mut 0,
            output: &output,
            mailbox: &mailbox,
        };
        let registered = registered.len();
        let checked = check(update, 5, registered, is_registered, &LIMITS, &mut steps);
        match checked.now_or_never().expect("nothing is waited for") {
            Ok(_) => None,
            Err(End::Invalid(text)) => Some(text),
            Err(end) => panic!("{end:?}"),
        }
    }

    #[test]
    fn api_251_ids_rise_and_may_skip() {
        for (id, accepted) in [
            (0, false),
            (4, false),
            (5, false),
            (6, true),
            (u64::MAX, true),
        ] {
            assert_eq!(
                refusal(&update(id, &[], &[]), &[]).is_none(),
                accepted,
                "{id}"
            );
        }
    }

    #[test]
    fn str_002_checks_come_in_the_contracts_order() {
        let mut bad = update(6, &[1, 1], &[1]);
        bad.adds[0].topic = None;
        bad.adds[1].after = 1 << 63;
        bad.removes.push(Some(Bytes::new()));
        assert_eq!(refusal(&bad, &[]), Some("topic is absent"));
        bad.adds[0].topic = Some(Bytes::new());
        assert_eq!(refusal(&bad, &[]), Some("invalid topic"));
        bad.adds[0].topic = Some(bytes(1));
        assert_eq!(refusal(&bad, &[]), Some("invalid cursor"));
        bad.adds[1].after = 0;
        assert_eq!(refusal(&bad, &[]), Some("duplicate update topic"));
        bad.adds[1].topic = Some(bytes(2));
        assert_eq!(refusal(&bad, &[]), Some("overlapping update topic"));
        bad.removes[0] = Some(bytes(3));
        assert_eq!(refusal(&bad, &[]), Some("invalid topic"));
        bad.removes[1] = Some(bytes(3));
        assert_eq!(refusal(&bad, &[]), Some("duplicate update topic"));
        bad.removes[1] = Some(bytes(4));
        assert_eq!(
            refusal(&bad, &[5, 6, 7]),
            Some("stream topic limit exceeded")
        );
        assert_eq!(refusal(&bad, &[3, 4, 5, 6]), None);
    }

    #[test]
    fn st_14_counts_are_taken_as_sent() {
        let refused = Some("invalid update id or item count");
        assert_eq!(refusal(&update(6, &[1, 2, 3], &[4, 5]), &[]), None);
        assert_eq!(refusal(&update(6, &[1, 2, 3, 3], &[]), &[1, 2, 3]), refused);
        assert_eq!(refusal(&update(6, &[], &[4, 5, 6]), &[]), refused);
    }

    #[test]
    fn api_260_a_static_request_has_a_bound_of_its_own() {
        let asked = |topics: &[u8]| update(6, topics, &[]).adds;
        let refused = |topics: &[u8]| check_static(&asked(topics), &LIMITS).err();
        assert_eq!(refused(&[1, 2]), None);
        for topics in [&[][..], &[1, 2, 3], &[1, 1]] {
            assert!(matches!(refused(topics), Some(End::Invalid(_))));
        }
    }
}
