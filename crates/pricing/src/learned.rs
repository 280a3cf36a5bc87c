//! What settled usage taught about one key × model: how far the built-in estimate is off, and how much is cached.
//!
//! A value of two decayed sums, kept by the caller; only usage that a provider reported as final is learned from.
//! Large calls weigh more than small ones, and a prior of a thousand llm_tokens keeps a few tiny calls with their fixed
//! hidden prompt from inflating the estimate of a large one. The ratio is bounded on both sides.

use tollbook_wire::Usage;

/// Bounds of the correction, in thousandths.
pub const RATIO_MIN: u64 = 250;
pub const RATIO_MAX: u64 = 4_000;
/// What is left of old samples when a new one comes, in thousandths.
const KEEP: u64 = 700;
/// llm_tokens at a ratio of one that every state contains.
const PRIOR: u64 = 1_000;

/// The state of one key × model. The default has seen nothing and corrects nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Learned {
    estimated: u64,
    reported: u64,
    cached: u64,
}

impl Learned {
    /// The correction of a built-in estimate, in thousandths.
    pub fn ratio(&self) -> u64 {
        let reported = self.reported.saturating_add(PRIOR);
        let estimated = self.estimated.saturating_add(PRIOR);
        ratio(reported, estimated).clamp(RATIO_MIN, RATIO_MAX)
    }

    /// The share of input that is read from a cache, in thousandths.
    pub fn cached_share(&self) -> u64 {
        if self.reported == 0 { 0 } else { ratio(self.cached, self.reported).min(1_000) }
    }

    /// Applies the correction, rounded up.
    pub fn correct(&self, estimate: u64) -> u64 {
        let corrected = (u128::from(estimate) * u128::from(self.ratio())).div_ceil(1_000);
        u64::try_from(corrected).unwrap_or(u64::MAX)
    }

    /// Learns from a call: its built-in estimate before correction, and what the provider counted.
    pub fn learn(&mut self, estimate: u64, usage: &Usage) {
        if !usage.complete || !usage.input_reported || usage.split_estimated || usage.input == 0 {
            return;
        }
        // one call moves the sums by no more than the bounds allow
        let reported = usage.input;
        let estimate = estimate.clamp(reported / 4, reported.saturating_mul(4)).max(1);
        self.estimated = decayed(self.estimated).saturating_add(estimate);
        self.reported = decayed(self.reported).saturating_add(reported);
        self.cached = decayed(self.cached).saturating_add(usage.cached.min(reported));
    }
}

fn decayed(sum: u64) -> u64 {
    u64::try_from(u128::from(sum) * u128::from(KEEP) / 1_000).unwrap_or(u64::MAX)
}

fn ratio(part: u64, whole: u64) -> u64 {
    let thousandths = u128::from(part) * 1_000 / u128::from(whole.max(1));
    u64::try_from(thousandths).unwrap_or(u64::MAX)
}
