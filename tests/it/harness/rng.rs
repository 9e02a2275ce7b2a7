//! Pseudorandom numbers that a seed repeats.

/// Marsaglia's xorshift generator.
pub(crate) struct Rng(u64);

impl Rng {
    /// Creates a generator from a seed.
    pub(crate) fn new(seed: u64) -> Self {
        // State 0 yields only zeros. The multiplication keeps neighbouring seeds apart.
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns the next number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % n
    }

    /// Returns true once in `n` times on average.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Picks one element.
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let at = self.below(from.len() as u64);
        &from[usize::try_from(at).expect("a place in memory")]
    }
}
