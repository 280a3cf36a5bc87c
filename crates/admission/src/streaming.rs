//! How a model streams, whoever asks it: its pace, and what its provider makes of the text.
//!
//! Invariant: the ratio of what is reported to what is counted stays within bounds, so that no odd usage object makes
//! plans vanish or explode. It serves plans alone; nobody is charged by it.

use tollbook_ledger::stream::Pace;

/// Thousandths: what is reported is at least a quarter and at most eight times what is counted. Reasoning that is not
/// shown makes it large.
const RATIOS: (u64, u64) = (250, 8_000);
/// Below so much text a ratio says little.
const COUNTED_MIN: u64 = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Streaming {
    pub(crate) pace: Pace,
    /// Reported ÷ counted, thousandths, a mean of weight a tenth; 0: no sample.
    ratio: u64,
}

impl Streaming {
    pub(crate) fn learn(&mut self, reported: u64, counted: u64) {
        if counted < COUNTED_MIN {
            return;
        }
        let sample = (reported.saturating_mul(1_000) / counted).clamp(RATIOS.0, RATIOS.1);
        self.ratio = if self.ratio == 0 { sample } else { (self.ratio * 9 + sample) / 10 };
    }

    pub(crate) fn reported_for(&self, counted: u64) -> u64 {
        if self.ratio == 0 { counted } else { counted.saturating_mul(self.ratio) / 1_000 }
    }
}

#[cfg(test)]
mod tests {
    use super::Streaming;

    #[test]
    fn text_is_taken_for_what_its_provider_makes_of_it() {
        let mut streaming = Streaming::default();
        assert_eq!(streaming.reported_for(90), 90);
        streaming.learn(200, 100);
        assert_eq!(streaming.reported_for(90), 180);
        streaming.learn(100, 100);
        assert_eq!(streaming.reported_for(100), 190);
        streaming.learn(9_999, 3);
        assert_eq!(streaming.reported_for(100), 190, "too little text says nothing");
        for _ in 0..200 {
            streaming.learn(u64::MAX, 20);
        }
        assert!(streaming.reported_for(100) <= 800);
        for _ in 0..200 {
            streaming.learn(0, u64::MAX);
        }
        assert!(streaming.reported_for(100) >= 25);
        assert!(streaming.reported_for(u64::MAX) > 0);
    }
}
