//! Numbers that look random, and come again by their seed.

/// Marsaglia's xorshift.
pub(crate) struct Rng(u64);

impl Rng {
    /// Begins at a seed.
    pub(crate) fn new(seed: u64) -> Self {
        // Nothing comes of 0; and neighbours are to begin far apart.
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number, below this one.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % n
    }

    /// Whether that happens which happens once in so many times.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of them.
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let at = self.below(from.len() as u64);
        &from[usize::try_from(at).expect("a place in memory")]
    }
}
