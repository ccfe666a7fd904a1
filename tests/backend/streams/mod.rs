//! Streams as their clients see them: the scenarios of the streams contract, each named by its number there.

mod client;
mod connections;
mod delivery;
mod endings;
mod hostile;
mod kills;
mod liveness;
mod obstacles;
mod oracle;
mod random;
pub(crate) mod reader;
mod recovery;
mod schedules;
mod static_reader;
mod statics;
mod updates;

pub(crate) use obstacles::LockedTable;
#[cfg(feature = "replica")]
pub(crate) use obstacles::{HeldBarrier, HeldId, abort_allocation, boundary};
#[cfg(feature = "replica")]
pub(crate) use reader::Reader;
#[cfg(feature = "replica")]
pub(crate) use recovery::reopened;
use xmtp_protocol::proto::xmtp::backend::v1::ClientEnvelope;
use xmtp_protocol::{Topic, TopicKind};
use xmtp_test_support::payloads;

/// The topic of the group whose id is `group` repeated.
pub(crate) fn group(group: u8) -> Topic {
    payloads::topic(TopicKind::GroupMessage, group)
}

/// Distinct messages of one group.
pub(crate) fn messages(group: u8, numbers: impl IntoIterator<Item = u64>) -> Vec<ClientEnvelope> {
    numbers
        .into_iter()
        .map(|number| payloads::group_message(group, format!("message {number}")))
        .collect()
}

/// Distinct messages of 900 KB: a delivery frame of 2 MiB holds two of them.
fn large_messages(group: u8, numbers: impl IntoIterator<Item = u8>) -> Vec<ClientEnvelope> {
    numbers
        .into_iter()
        .map(|number| payloads::group_message(group, vec![number; 900_000]))
        .collect()
}
