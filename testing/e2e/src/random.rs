//! Random numbers from a seed, so that a run can be repeated.

/// A small generator; the same seed gives the same numbers on every machine.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// `SplitMix64`.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to but not including `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number().checked_rem(end).unwrap_or(0)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let end = u64::try_from(of.len()).unwrap_or(u64::MAX);
        of.get(usize::try_from(self.below(end)).unwrap_or(0))
    }
}

/// The seed of a test: `TOLLBOOK_E2E_SEED`, else the given one.
pub fn seed(otherwise: u64) -> u64 {
    std::env::var("TOLLBOOK_E2E_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_numbers_within_bounds() {
        let (mut a, mut b) = (Random::new(7), Random::new(7));
        for _ in 0..100 {
            let number = a.below(10);
            assert!(number < 10);
            assert_eq!(number, b.below(10));
        }
        assert_eq!(a.below(0), 0);
        assert_eq!(Random::new(1).pick::<u8>(&[]), None);
        assert_eq!(Random::new(1).pick(&[3]), Some(&3));
    }
}
