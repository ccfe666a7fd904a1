//! Compares what clients were told with what the tables hold.

use std::collections::{HashMap, HashSet};
use std::ops::AddAssign;

use sqlx::{PgConnection, Row as _};
use xmtp_protocol::Topic;

/// A sequence id, and the envelope's bytes.
pub(crate) type Row = (u64, Vec<u8>);

/// Rows of topics, in the order in which they came.
pub(crate) type Rows = HashMap<Topic, Vec<Row>>;

/// Reads the rows of `topics` in the tables themselves, ascending.
pub(crate) async fn stored(connection: &mut PgConnection, topics: &[Topic]) -> Rows {
    let mut stored: Rows = topics.iter().map(|topic| (*topic, Vec::new())).collect();
    let keys: Vec<Vec<u8>> = topics.iter().map(|it| it.as_bytes().to_vec()).collect();
    for row in sqlx::query(
        "SELECT topic, sequence_id, payload FROM envelopes WHERE topic = ANY($1)
         ORDER BY sequence_id",
    )
    .bind(keys)
    .fetch_all(connection)
    .await
    .expect("rows can be read")
    {
        let topic = Topic::parse(row.get::<&[u8], _>(0)).expect("a stored topic is legal");
        let id = row.get::<i64, _>(1).cast_unsigned();
        stored.entry(topic).or_default().push((id, row.get(2)));
    }
    stored
}

/// How many rows were not as they should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Stored, and not delivered.
    pub(crate) lost: usize,
    /// Delivered before.
    pub(crate) duplicated: usize,
    /// Delivered after a later row of their topic.
    pub(crate) reordered: usize,
    /// Delivered, and not stored.
    pub(crate) invented: usize,
}

impl AddAssign for Verdict {
    fn add_assign(&mut self, other: Self) {
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.invented += other.invented;
    }
}

/// Judges all that one client was delivered of one topic.
pub(crate) fn judge(delivered: &[Row], stored: &[Row]) -> Verdict {
    let distinct: HashSet<&Row> = delivered.iter().collect();
    let known: HashSet<&Row> = stored.iter().collect();
    Verdict {
        lost: known.difference(&distinct).count(),
        duplicated: delivered.len() - distinct.len(),
        reordered: delivered
            .windows(2)
            .filter(|pair| pair[1].0 < pair[0].0)
            .count(),
        invented: distinct.difference(&known).count(),
    }
}

/// How many of the acknowledged rows are not stored once, under the id that was said.
pub(crate) fn broken(acknowledged: &[(Topic, Row)], stored: &Rows) -> usize {
    let mut ids: HashMap<(&Topic, &[u8]), Vec<u64>> = HashMap::new();
    for (topic, rows) in stored {
        for (id, envelope) in rows {
            ids.entry((topic, envelope)).or_default().push(*id);
        }
    }
    acknowledged
        .iter()
        .filter(|(topic, (id, envelope))| {
            ids.get(&(topic, &envelope[..])).map(Vec::as_slice) != Some(&[*id])
        })
        .count()
}

mod tests {
    use xmtp_protocol::TopicKind;
    use xmtp_test_support::payloads::topic;

    use super::*;

    fn rows(ids: &[u64]) -> Vec<Row> {
        ids.iter().map(|id| (*id, vec![0])).collect()
    }

    fn verdict(delivered: &[u64]) -> [usize; 4] {
        let verdict = judge(&rows(delivered), &rows(&[2, 5, 7]));
        [
            verdict.lost,
            verdict.duplicated,
            verdict.reordered,
            verdict.invented,
        ]
    }

    #[test]
    fn every_fault_is_counted() {
        assert_eq!(verdict(&[2, 5, 7]), [0, 0, 0, 0]);
        assert_eq!(verdict(&[2, 7]), [1, 0, 0, 0]);
        assert_eq!(verdict(&[2, 5, 5, 7]), [0, 1, 0, 0]);
        assert_eq!(verdict(&[5, 2, 7]), [0, 0, 1, 0]);
        assert_eq!(verdict(&[2, 5, 7, 8]), [0, 0, 0, 1]);
        let other = judge(&[(2, vec![1])], &rows(&[2]));
        assert_eq!((other.lost, other.invented), (1, 1));
    }

    #[test]
    fn a_broken_promise_is_counted() {
        let topic = topic(TopicKind::GroupMessage, 1);
        let broken = |stored: &[u64]| {
            let stored = Rows::from([(topic, rows(stored))]);
            broken(&[(topic, (2, vec![0]))], &stored)
        };
        assert_eq!(broken(&[2]), 0);
        assert_eq!(broken(&[]), 1);
        assert_eq!(broken(&[3]), 1);
        assert_eq!(broken(&[2, 3]), 1);
    }
}
