//! What was seen, as a table.

use std::collections::BTreeMap;
use std::fmt;

use xmtp_protocol::TopicKind;

/// One row for each kind that the recording has.
#[derive(Default)]
pub(crate) struct Report(BTreeMap<TopicKind, Row>);

#[derive(Default)]
struct Row {
    /// Published, and streamed exactly once.
    published: usize,
    /// Streamed after the history, therefore stored by this run.
    live: usize,
    queried: usize,
    first: u64,
    last: u64,
}

impl Report {
    /// Counts an envelope that was published, streamed and, where it is not hidden, queried.
    pub(super) fn add(&mut self, kind: TopicKind, position: u64, live: bool, queried: bool) {
        let row = self.0.entry(kind).or_insert(Row {
            first: position,
            ..Row::default()
        });
        row.published += 1;
        row.live += usize::from(live);
        row.queried += usize::from(queried);
        row.first = row.first.min(position);
        row.last = row.last.max(position);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<16}  {:>9}  {:>8}  {:>4}  {:>7}  {:>8}  {:>8}",
            "kind", "published", "streamed", "live", "queried", "first id", "last id"
        )?;
        for (kind, row) in &self.0 {
            write!(
                f,
                "\n{:<16}  {:>9}  {:>8}  {:>4}  {:>7}  {:>8}  {:>8}",
                name(*kind),
                row.published,
                row.published,
                row.live,
                row.queried,
                row.first,
                row.last,
            )?;
        }
        Ok(())
    }
}

const fn name(kind: TopicKind) -> &'static str {
    match kind {
        TopicKind::GroupMessage => "group message",
        TopicKind::Welcome => "welcome",
        TopicKind::IdentityUpdate => "identity update",
        TopicKind::KeyPackage => "key package",
        TopicKind::CommitLogEntry => "commit log entry",
    }
}
