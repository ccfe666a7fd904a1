//! What was seen, as a table.

use std::collections::BTreeMap;
use std::fmt;

use xmtp_protocol::TopicKind;

use super::refusal::Expected;

/// One row for each kind that the recording has, and below them what was refused.
#[derive(Default)]
pub(crate) struct Report {
    rows: BTreeMap<TopicKind, Row>,
    refused: BTreeMap<(TopicKind, Expected), usize>,
}

#[derive(Default)]
struct Row {
    /// Published, and streamed exactly once.
    published: usize,
    /// Streamed after the history, therefore stored by this run.
    live: usize,
    queried: usize,
    /// Smallest and largest sequence id.
    ids: Option<(u64, u64)>,
}

impl Report {
    /// Counts an envelope that was published, streamed and, where it is not hidden, queried.
    pub(super) fn add(&mut self, kind: TopicKind, position: u64, live: bool, queried: bool) {
        let row = self.rows.entry(kind).or_default();
        row.published += 1;
        row.live += usize::from(live);
        row.queried += usize::from(queried);
        let (first, last) = row.ids.unwrap_or((position, position));
        row.ids = Some((first.min(position), last.max(position)));
    }

    /// Counts an envelope that was refused for a good reason.
    pub(super) fn refuse(&mut self, kind: TopicKind, expected: Expected) {
        self.rows.entry(kind).or_default();
        *self.refused.entry((kind, expected)).or_default() += 1;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<16}  {:>9}  {:>8}  {:>4}  {:>7}  {:>8}  {:>8}",
            "kind", "published", "streamed", "live", "queried", "first id", "last id"
        )?;
        for (kind, row) in &self.rows {
            let ids = row
                .ids
                .map(|(first, last)| [first, last].map(|id| id.to_string()));
            let [first, last] = ids.unwrap_or_else(|| ["-", "-"].map(str::to_owned));
            write!(
                f,
                "\n{:<16}  {:>9}  {:>8}  {:>4}  {:>7}  {:>8}  {:>8}",
                name(*kind),
                row.published,
                row.published,
                row.live,
                row.queried,
                first,
                last,
            )?;
        }
        for ((kind, expected), count) in &self.refused {
            write!(f, "\n{}, {count} refused: {expected}", name(*kind))?;
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
