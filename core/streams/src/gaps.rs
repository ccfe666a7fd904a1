//! The gap machine: which sequence ids were passed over and may still appear (ARC-037, ARC-038).
//!
//! Pure state; the tailer feeds it what each snapshot showed.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Forward position and unresolved ranges below it, as ranges and not as single ids (ARC-042).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gaps {
    /// Every id up to here is either seen, in a gap, or closed.
    forward: i64,
    /// First to last id of each gap; disjoint, never adjacent, all below `forward`.
    ranges: BTreeMap<i64, i64>,
}

impl Gaps {
    /// Starts above a closed boundary: nothing below it can appear any more (ARC-041).
    pub(crate) const fn above(closed: i64) -> Self {
        Self {
            forward: closed,
            ranges: BTreeMap::new(),
        }
    }

    /// Where the forward scan goes on, exclusively.
    pub(crate) const fn forward(&self) -> i64 {
        self.forward
    }

    /// Number of unresolved ranges.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The unresolved ranges, ascending.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = RangeInclusive<i64>> {
        self.ranges.iter().map(|(first, last)| *first..=*last)
    }

    /// Takes the ids of one snapshot, ascending: visible rows of the gaps and above the forward
    /// position. `cut` says that a bound left rows behind the last id; `closed` is the boundary of the
    /// same snapshot.
    pub(crate) fn observe(&mut self, ids: impl IntoIterator<Item = i64>, cut: bool, closed: i64) {
        let mut last = None;
        for id in ids {
            debug_assert!(
                last.is_none_or(|last| last < id),
                "a snapshot is read in order"
            );
            self.see(id);
            last = Some(id);
        }
        // What a cut page did not show may be visible: only what lies at or below its last row is known.
        let known = if cut {
            last.map_or(0, |last| closed.min(last))
        } else {
            closed
        };
        self.close(known);
        debug_assert!(
            self.holds(),
            "gaps are disjoint, not adjacent, and below the forward position"
        );
    }

    fn see(&mut self, id: i64) {
        if id > self.forward {
            if id > self.forward + 1 {
                self.ranges.insert(self.forward + 1, id - 1);
            }
            self.forward = id;
        } else if let Some((&first, &last)) = self.ranges.range(..=id).next_back()
            && id <= last
        {
            self.ranges.remove(&first);
            if first < id {
                self.ranges.insert(first, id - 1);
            }
            if id < last {
                self.ranges.insert(id + 1, last);
            }
        }
    }

    /// Retires what lies at or below `closed` and was not seen: it will never be stored.
    fn close(&mut self, closed: i64) {
        let above = self.ranges.split_off(&(closed.saturating_add(1)));
        let below = std::mem::replace(&mut self.ranges, above);
        if let Some((_, &last)) = below.last_key_value()
            && last > closed
        {
            self.ranges.insert(closed + 1, last);
        }
        self.forward = self.forward.max(closed);
    }

    /// The invariant of the type.
    fn holds(&self) -> bool {
        let mut end = i64::MIN;
        self.ranges.iter().all(|(&first, &last)| {
            let apart = end == i64::MIN || first > end + 1;
            end = last;
            apart && first <= last && last < self.forward
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use xmtp_test_support::Random;

    use super::*;

    fn ranges(gaps: &Gaps) -> Vec<(i64, i64)> {
        gaps.ranges().map(RangeInclusive::into_inner).collect()
    }

    #[test]
    fn arc_037_a_passed_over_id_is_probed_until_it_appears() {
        let mut gaps = Gaps::above(0);
        gaps.observe([1, 2, 6], false, 0);
        assert_eq!((gaps.forward(), ranges(&gaps)), (6, vec![(3, 5)]));
        gaps.observe([4], false, 0);
        assert_eq!(ranges(&gaps), [(3, 3), (5, 5)]);
        gaps.observe([3, 5, 7], false, 0);
        assert_eq!((gaps.forward(), ranges(&gaps)), (7, vec![]));
    }

    #[test]
    fn arc_038_only_the_boundary_retires_a_gap() {
        let mut gaps = Gaps::above(0);
        gaps.observe([2, 9], false, 0);
        for _ in 0..1000 {
            gaps.observe([], false, 0);
        }
        assert_eq!(ranges(&gaps), [(1, 1), (3, 8)]);
        gaps.observe([], false, 5);
        assert_eq!(ranges(&gaps), [(6, 8)]);
        gaps.observe([], false, 8);
        assert_eq!(ranges(&gaps), []);
    }

    #[test]
    fn arc_040_a_boundary_above_the_last_row_moves_the_forward_position_past_aborted_ids() {
        let mut gaps = Gaps::above(3);
        gaps.observe([4], false, 9);
        assert_eq!((gaps.forward(), ranges(&gaps)), (9, vec![]));
    }

    #[test]
    fn arc_037_a_cut_page_retires_nothing_above_its_last_row() {
        let mut gaps = Gaps::above(0);
        gaps.observe([5, 9], false, 0);
        // 2 and 7 are visible too, and everything is closed, but the page ends after 2.
        gaps.observe([2], true, 20);
        assert_eq!((gaps.forward(), ranges(&gaps)), (9, vec![(3, 4), (6, 8)]));
        gaps.observe([7], false, 20);
        assert_eq!((gaps.forward(), ranges(&gaps)), (20, vec![]));
    }

    /// How many random schedules are run.
    const SCHEDULES: u64 = 100_000;
    /// Most steps of one.
    const STEPS: u64 = 200;
    /// Topics of one: few, so that they meet.
    const TOPICS: usize = 4;

    /// An open transaction. It holds the locks of its topics from its begin to its end, and the barrier
    /// from its first id on.
    struct Publish {
        topics: Vec<usize>,
        ids: Vec<usize>,
    }

    /// What the primary committed.
    enum Commit {
        Rows(Vec<usize>),
        Boundary(i64),
    }

    /// One snapshot of the read database, on its way to the tailer.
    struct Snapshot {
        ids: Vec<usize>,
        cut: bool,
        closed: i64,
    }

    #[derive(Clone, Copy, PartialEq)]
    enum Fate {
        Open,
        Committed,
        Aborted,
    }

    /// One allocated id.
    struct Id {
        topic: usize,
        fate: Fate,
        /// The read database shows it.
        visible: bool,
        /// The tailer has handed it on, or it is history to this generation of the tailer.
        read: bool,
    }

    /// Publishers, the primary, the database that is read, and a tailer.
    struct Model {
        random: Random,
        /// The read database is a replica: it shows the primary's commits in their order, later.
        replica: bool,
        /// Every id; the first is no id.
        ids: Vec<Id>,
        open: Vec<Publish>,
        /// Commits that the read database does not show yet.
        behind: VecDeque<Commit>,
        /// The boundary as the read database shows it.
        closed: i64,
        snapshot: Option<Snapshot>,
        gaps: Gaps,
        /// Last id of each topic that was handed on.
        positions: [usize; TOPICS],
    }

    impl Model {
        fn new(seed: u64) -> Self {
            let mut random = Random::new(seed);
            let none = Id {
                topic: 0,
                fate: Fate::Aborted,
                visible: false,
                read: false,
            };
            Self {
                replica: random.one_in(2),
                random,
                ids: vec![none],
                open: Vec::new(),
                behind: VecDeque::new(),
                closed: 0,
                snapshot: None,
                gaps: Gaps::above(0),
                positions: [0; TOPICS],
            }
        }

        fn run(mut self) {
            for _ in 0..self.random.below(STEPS) {
                self.step();
            }
            while !self.open.is_empty() {
                let commits = self.random.one_in(2);
                self.end(commits);
            }
            self.advance_boundary();
            self.replay(usize::MAX);
            self.observe();
            let mut cut = true;
            while cut {
                cut = self.poll();
                self.observe();
            }
            assert_eq!(self.gaps, Gaps::above(signed(self.ids.len() - 1)));
            let lost = |id: &&Id| id.fate == Fate::Committed && !id.read;
            assert_eq!(self.ids.iter().filter(lost).count(), 0, "rows are lost");
        }

        fn step(&mut self) {
            match self.random.below(64) {
                0..10 => self.begin(),
                10..28 => self.allocate(),
                28..38 => self.end(true),
                38..42 => self.end(false),
                42..46 => drop(self.advance_boundary()),
                46..51 => {
                    let commits = self.random.index(4);
                    self.replay(commits);
                }
                51..57 => drop(self.poll()),
                // What happens between these two steps is the delay of a poll.
                57..63 => self.observe(),
                _ => self.restart_tailer(),
            }
        }

        /// Locks one or two topics, unless others hold them.
        fn begin(&mut self) {
            let mut topics = vec![self.random.index(TOPICS), self.random.index(TOPICS)];
            topics.dedup();
            let held = |topic| self.open.iter().any(|it| it.topics.contains(topic));
            if !topics.iter().any(held) {
                let ids = Vec::new();
                self.open.push(Publish { topics, ids });
            }
        }

        fn allocate(&mut self) {
            if !self.open.is_empty() {
                let publish = self.random.index(self.open.len());
                let publish = &mut self.open[publish];
                publish.ids.push(self.ids.len());
                self.ids.push(Id {
                    topic: publish.topics[self.random.index(publish.topics.len())],
                    fate: Fate::Open,
                    visible: false,
                    read: false,
                });
            }
        }

        fn end(&mut self, commits: bool) {
            if self.open.is_empty() {
                return;
            }
            let publish = self.random.index(self.open.len());
            let publish = self.open.swap_remove(publish);
            let fate = if commits {
                Fate::Committed
            } else {
                Fate::Aborted
            };
            for id in &publish.ids {
                self.ids[*id].fate = fate;
            }
            if commits {
                self.commit(Commit::Rows(publish.ids));
            }
        }

        /// The barrier is granted when no open transaction has an id.
        fn advance_boundary(&mut self) -> bool {
            let granted = self.open.iter().all(|publish| publish.ids.is_empty());
            if granted {
                self.commit(Commit::Boundary(signed(self.ids.len() - 1)));
            }
            granted
        }

        fn commit(&mut self, commit: Commit) {
            self.behind.push_back(commit);
            if !self.replica {
                self.replay(1);
            }
        }

        fn replay(&mut self, commits: usize) {
            for commit in self.behind.drain(..commits.min(self.behind.len())) {
                match commit {
                    Commit::Rows(ids) => ids.iter().for_each(|id| self.ids[*id].visible = true),
                    Commit::Boundary(closed) => self.closed = closed,
                }
            }
        }

        /// Takes a snapshot, unless one is still on its way: polls do not overlap. Says whether a bound
        /// cut it, as the statement does.
        fn poll(&mut self) -> bool {
            if self.snapshot.is_some() {
                return false;
            }
            let max_rows = 1 + self.random.index(6);
            let wanted = self.awaited();
            let mut ids: Vec<usize> = (1..self.ids.len())
                .filter(|id| self.ids[*id].visible && wanted[*id])
                .take(max_rows)
                .collect();
            let candidates = ids.len();
            // The bound of bytes leaves one row at least.
            if candidates > 1 && self.random.one_in(4) {
                ids.truncate(1 + self.random.index(candidates));
            }
            let cut = candidates == max_rows || candidates > ids.len();
            self.snapshot = Some(Snapshot {
                ids,
                cut,
                closed: self.closed,
            });
            cut
        }

        /// Which ids the gap machine would still take.
        fn awaited(&self) -> Vec<bool> {
            let mut awaited = vec![false; self.ids.len()];
            for (first, last) in ranges(&self.gaps) {
                awaited[unsigned(first)..=unsigned(last)].fill(true);
            }
            if let Some(ahead) = awaited.get_mut(unsigned(self.gaps.forward()) + 1..) {
                ahead.fill(true);
            }
            awaited
        }

        /// The tailer hands on what a snapshot showed.
        fn observe(&mut self) {
            let Some(Snapshot { ids, cut, closed }) = self.snapshot.take() else {
                return;
            };
            for id in &ids {
                let row = &mut self.ids[*id];
                assert!(!row.read, "row {id} is read twice");
                row.read = true;
                let position = &mut self.positions[row.topic];
                assert!(
                    *position < *id,
                    "row {id} after row {position} of its topic"
                );
                *position = *id;
            }
            let ids = ids.into_iter().map(signed);
            self.gaps.observe(ids, cut, closed);
            self.check();
        }

        /// What holds after every poll: nothing that may still come is given up, and nothing that came is
        /// waited for.
        fn check(&self) {
            assert!(self.gaps.holds());
            for (number, (id, awaited)) in self.ids.iter().zip(self.awaited()).enumerate() {
                match id.fate {
                    Fate::Aborted => {}
                    _ if id.read => assert!(!awaited, "row {number} would be read again"),
                    _ => assert!(awaited, "row {number} is given up"),
                }
            }
        }

        /// The tailer is lost with all that it knew, and starts above a new boundary (ARC-041).
        fn restart_tailer(&mut self) {
            if !self.advance_boundary() {
                return;
            }
            self.snapshot = None;
            let established = signed(self.ids.len() - 1);
            while self.closed < established {
                self.replay(1);
            }
            self.gaps = Gaps::above(self.closed);
            self.positions = [0; TOPICS];
            for id in &mut self.ids {
                assert!(
                    id.fate != Fate::Committed || id.visible,
                    "history is incomplete"
                );
                id.read = id.visible;
            }
        }
    }

    fn signed(id: usize) -> i64 {
        id.try_into().expect("schedules are short")
    }

    fn unsigned(id: i64) -> usize {
        id.try_into().expect("ids are positive")
    }

    /// Whatever the schedule: every committed row is read exactly once, in the order of its topic, no
    /// earlier than it can be, and nothing is left over.
    #[test]
    fn arc_112_every_committed_row_is_read_exactly_once_and_in_order() {
        for seed in 0..SCHEDULES {
            let run = std::panic::catch_unwind(|| Model::new(seed).run());
            assert!(run.is_ok(), "in the schedule of seed {seed}");
        }
    }
}
