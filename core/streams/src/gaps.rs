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
    use super::*;
    use proptest::prelude::*;

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

    /// What a transaction that allocated an id does next.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Allocate,
        Commit(prop::sample::Index),
        Abort(prop::sample::Index),
        Boundary,
        Poll(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => Just(Step::Allocate),
            3 => any::<prop::sample::Index>().prop_map(Step::Commit),
            1 => any::<prop::sample::Index>().prop_map(Step::Abort),
            1 => Just(Step::Boundary),
            2 => (1usize..6).prop_map(Step::Poll),
        ];
        prop::collection::vec(step, 0..80)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Whatever the schedule, every committed row is read exactly once, and nothing is left over.
        #[test]
        fn arc_112_every_committed_row_is_read_exactly_once(steps in steps()) {
            let (mut next, mut closed) = (1i64, 0i64);
            let (mut open, mut visible) = (Vec::new(), std::collections::BTreeSet::new());
            let mut gaps = Gaps::above(0);
            let mut read = Vec::new();
            let mut poll = |gaps: &mut Gaps, visible: &std::collections::BTreeSet<i64>, closed, page: usize| {
                let wanted: Vec<i64> = visible.iter().copied()
                    .filter(|id| *id > gaps.forward() || gaps.ranges().any(|gap| gap.contains(id)))
                    .collect();
                let cut = wanted.len() > page;
                let shown = &wanted[..wanted.len().min(page)];
                gaps.observe(shown.iter().copied(), cut, closed);
                read.extend_from_slice(shown);
                cut
            };
            for step in steps {
                match step {
                    Step::Allocate => { open.push(next); next += 1; }
                    Step::Commit(index) if !open.is_empty() => { visible.insert(open.swap_remove(index.index(open.len()))); }
                    Step::Abort(index) if !open.is_empty() => { open.swap_remove(index.index(open.len())); }
                    // The barrier is granted only when nobody holds an unsettled id.
                    Step::Boundary if open.is_empty() => closed = next - 1,
                    Step::Poll(page) => { poll(&mut gaps, &visible, closed, page); }
                    _ => {}
                }
            }
            visible.extend(open);
            closed = next - 1;
            while poll(&mut gaps, &visible, closed, 3) {}
            prop_assert_eq!(gaps.len(), 0);
            read.sort_unstable();
            prop_assert_eq!(read, visible.into_iter().collect::<Vec<_>>());
        }
    }
}
