//! What the targets draw from one seed, over the suite's generator.

use tollbook_engine_suite::random::Random as Generator;

/// The same seed gives the same draws on every machine.
#[derive(Debug, Clone)]
pub struct Random(Generator);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(Generator::new(seed))
    }

    pub fn number(&mut self) -> u64 {
        self.0.draw()
    }

    /// A number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
        self.number().checked_rem(bound).and_then(|number| usize::try_from(number).ok()).unwrap_or(0)
    }

    pub fn byte(&mut self) -> u8 {
        self.number().to_le_bytes()[0]
    }

    /// One of them; none of none.
    pub fn of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.below(all.len()))
    }
}
