//! What calls of one key and model have used, as an exponential mean.
//!
//! Invariants: `m` is the mean × 1000, below 2^53 × 1000; it changes only by usage that the provider reported.

use super::slab::Slab;
use super::table::{Table, tag};
use crate::command::EstimatorId;
use crate::event::{EstimateRow, Learner};
use crate::units::{AMOUNT_MAX, Micros};

/// All estimators of a shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Estimates {
    slots: Slab<EstimateRow>,
    index: Table,
}

impl Estimates {
    /// Twice the mean of the call's own estimator, or of its prior while that is young; `None` if both are.
    #[inline]
    pub(crate) fn guess(&self, learner: Learner) -> Option<u64> {
        let row = self.get(learner.own).or_else(|| self.get(learner.prior))?;
        Some(2 * row.m / 1000)
    }

    /// Learn one true output.
    pub(crate) fn learn(&mut self, learner: Learner, output: u64, steady: Micros) {
        self.add(learner.own, output, steady);
        if learner.prior != learner.own {
            self.add(learner.prior, output, steady);
        }
    }

    pub(crate) fn load(&mut self, row: EstimateRow) {
        self.remove(row.id);
        let slot = self.slots.insert(row);
        self.index.insert(tag(row.id.0), slot);
    }

    pub(crate) fn remove(&mut self, id: EstimatorId) {
        if let Some(slot) = self.find(id) {
            self.index.remove(tag(id.0), slot);
            self.slots.remove(slot);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &EstimateRow)> {
        self.slots.iter()
    }

    pub(crate) fn slot(&self, slot: u32) -> Option<&EstimateRow> {
        self.slots.get(slot)
    }

    pub(crate) fn slots(&self) -> u32 {
        self.slots.len()
    }

    fn add(&mut self, id: EstimatorId, output: u64, steady: Micros) {
        let sample = output.min(AMOUNT_MAX) * 1000;
        match self.find(id).and_then(|slot| self.slots.get_mut(slot)) {
            None => self.load(EstimateRow { id, n: 1, m: sample, used: steady }),
            Some(row) => {
                row.n = row.n.saturating_add(1);
                row.m = blend(row.m, sample);
                row.used = steady;
            }
        }
    }

    #[inline]
    fn get(&self, id: EstimatorId) -> Option<&EstimateRow> {
        self.slots.get(self.find(id)?)
    }

    #[inline]
    fn find(&self, id: EstimatorId) -> Option<u32> {
        self.index.find(tag(id.0), |slot| self.slots.get(slot).is_some_and(|row| row.id == id))
    }
}

/// ⌊0.7 × m + 0.3 × sample⌋, by tenths, so that it stays within 64 bits.
fn blend(m: u64, sample: u64) -> u64 {
    m / 10 * 7 + sample / 10 * 3 + (m % 10 * 7 + sample % 10 * 3) / 10
}

impl PartialEq for Estimates {
    fn eq(&self, other: &Self) -> bool {
        let rows = |all: &Self| {
            let mut rows: Vec<EstimateRow> = all.iter().map(|(_, row)| *row).collect();
            rows.sort_unstable_by_key(|row| row.id);
            rows
        };
        rows(self) == rows(other)
    }
}

impl Eq for Estimates {}

#[cfg(test)]
mod tests {
    use super::Estimates;
    use crate::command::EstimatorId;
    use crate::event::Learner;
    use crate::units::AMOUNT_MAX;

    const OWN: EstimatorId = EstimatorId(1);
    const PRIOR: EstimatorId = EstimatorId(2);
    const BOTH: Learner = Learner { own: OWN, prior: PRIOR };

    #[test]
    fn ema_is_twice_the_mean_of_weight_three_tenths() {
        let mut all = Estimates::default();
        assert_eq!(all.guess(BOTH), None);
        all.learn(BOTH, 100, 0);
        assert_eq!(all.guess(BOTH), Some(200));
        // 100,000 × 0.7 + 33,000 × 0.3 = 79,900.
        all.learn(BOTH, 33, 0);
        assert_eq!(all.guess(BOTH), Some(159));
    }

    #[test]
    fn a_young_key_takes_the_prior() {
        let mut all = Estimates::default();
        all.learn(Learner { own: EstimatorId(9), prior: PRIOR }, 70, 0);
        assert_eq!(all.guess(BOTH), Some(140));
    }

    #[test]
    fn the_largest_output_does_not_overflow() {
        let mut all = Estimates::default();
        all.learn(Learner { own: OWN, prior: OWN }, u64::MAX, 0);
        all.learn(Learner { own: OWN, prior: OWN }, u64::MAX, 0);
        assert_eq!(all.guess(BOTH), Some(2 * AMOUNT_MAX));
        assert_eq!(all.iter().count(), 1);
    }
}
