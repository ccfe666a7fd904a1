//! What a publish is held to, and how long its rows are kept.

use std::time::Duration;

use xmtp_protocol::TopicKind;

/// Bounds of a publish (API-131).
#[derive(Clone, Copy, Debug)]
pub(crate) struct PublishLimits {
    /// Bytes of a request, encoded again.
    pub(crate) max_request_bytes: usize,
    /// Bytes of an envelope, encoded again.
    pub(crate) max_envelope_bytes: usize,
    /// Distinct topics of a request.
    pub(crate) max_publish_topics: usize,
    /// Contract-wallet signatures of one identity update.
    pub(crate) max_scw_signatures: usize,
    /// Stored updates of one inbox; new ones beyond it are refused.
    pub(crate) max_identity_entries: usize,
    /// From the first lock to the commit.
    pub(crate) max_duration: Duration,
}

/// How long rows are kept, by kind, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetentionPeriods {
    /// Application messages of groups.
    pub(crate) group_message_seconds: i64,
    /// Welcomes.
    pub(crate) welcome_seconds: i64,
    /// Key packages.
    pub(crate) key_package_seconds: i64,
}

impl RetentionPeriods {
    /// `None` for what is never deleted, whatever is configured (API-212, OPS-001).
    pub(super) const fn of(self, kind: TopicKind, is_commit_or_proposal: bool) -> Option<i64> {
        match kind {
            TopicKind::GroupMessage if is_commit_or_proposal => None,
            TopicKind::GroupMessage => Some(self.group_message_seconds),
            TopicKind::Welcome => Some(self.welcome_seconds),
            TopicKind::KeyPackage => Some(self.key_package_seconds),
            TopicKind::IdentityUpdate | TopicKind::CommitLogEntry => None,
        }
    }
}
