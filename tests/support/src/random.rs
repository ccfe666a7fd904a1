//! Chance that can be repeated.

/// Numbers that are the same in every run of one seed (`SplitMix64`).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Begins at `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number from 0 to `bound` - 1; `bound` is not 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// One of the positions of a list of `length`, which is not 0.
    ///
    /// # Panics
    /// Never: a position fits the type of the length.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("a position fits the type of the length")
    }

    /// Whether a chance of one in `times` comes true.
    pub const fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}
