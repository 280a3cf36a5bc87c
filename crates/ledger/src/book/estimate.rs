//! What calls of one key and model have used, and what the next one will probably use.
//!
//! Invariants: state is integers, changes only by usage that the provider reported (and, for [`EstimatorKind::Forecast`], by a
//! stream that outgrew its estimate), and has a fixed bound: a mean, the last 100 outputs, or eleven minutes. `m` is a
//! mean × 1000, below 2^53 × 1000. An id keeps the kind it began with; another kind under the same id begins anew.

use std::collections::VecDeque;

use super::slab::Slab;
use super::table::{Table, tag};
use crate::command::{EstimatorId, EstimatorKind};
use crate::event::{EstimateRow, Learner};
use crate::units::{AMOUNT_MAX, Micros, SECOND};

/// Outputs that `P95` remembers.
const SAMPLES: usize = 100;
/// Below so many samples `P95` is 1.5 × their mean.
const YOUNG: usize = 5;
/// Full minutes that `RecentMean` looks back.
const MINUTES: usize = 10;

/// All estimators of a shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Estimates {
    slots: Slab<Estimate>,
    index: Table,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Estimate {
    id: EstimatorId,
    kind: EstimatorKind,
    n: u64,
    m: u64,
    samples: VecDeque<u64>,
    used: Micros,
}

impl Estimates {
    /// What the call's own estimator expects, or its prior while that is young; `None` if both are.
    #[inline]
    pub(crate) fn guess(&self, learner: Learner, steady: Micros) -> Option<u64> {
        let of = |id| self.get(id).filter(|row| row.kind == learner.kind);
        let own = of(learner.own).filter(|row| row.n > 0).and_then(|row| row.guess(steady));
        own.or_else(|| of(learner.prior)?.guess(steady))
    }

    /// Learn one true output.
    pub(crate) fn learn(&mut self, learner: Learner, output: u64, steady: Micros) {
        let output = output.min(AMOUNT_MAX);
        self.each(learner, steady, |row| row.learn(output, steady));
    }

    /// Move the mean of a forecast by an output that is still growing; it is no sample yet.
    pub(crate) fn outgrown(&mut self, learner: Learner, output: u64, steady: Micros) {
        if learner.kind == EstimatorKind::Forecast {
            let output = output.min(AMOUNT_MAX);
            self.each(learner, steady, |row| row.m = row.blended(output, row.n));
        }
    }

    pub(crate) fn load(&mut self, row: &EstimateRow<'_>) {
        let most = match row.kind {
            EstimatorKind::Ema | EstimatorKind::Forecast => 0,
            EstimatorKind::P95 => SAMPLES,
            EstimatorKind::RecentMean => 3 * (MINUTES + 1),
        };
        let samples = row.samples.iter().take(most).copied().collect();
        self.put(Estimate { id: row.id, kind: row.kind, n: row.n, m: row.m, samples, used: row.used });
    }

    pub(crate) fn remove(&mut self, id: EstimatorId) {
        if let Some(slot) = self.find(id) {
            self.index.remove(tag(id.0), slot);
            self.slots.remove(slot);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Estimate> {
        self.slots.iter().map(|(_, row)| row)
    }

    /// Id and last sample of what a slot keeps.
    pub(crate) fn slot(&self, slot: u32) -> Option<(EstimatorId, Micros)> {
        self.slots.get(slot).map(|row| (row.id, row.used))
    }

    pub(crate) fn slots(&self) -> u32 {
        self.slots.len()
    }

    fn each(&mut self, learner: Learner, steady: Micros, mut change: impl FnMut(&mut Estimate)) {
        self.change(learner.own, learner.kind, steady, &mut change);
        if learner.prior != learner.own {
            self.change(learner.prior, learner.kind, steady, &mut change);
        }
    }

    fn change(
        &mut self,
        id: EstimatorId,
        kind: EstimatorKind,
        steady: Micros,
        change: &mut impl FnMut(&mut Estimate),
    ) {
        let known = self.find(id).filter(|slot| self.slots.get(*slot).is_some_and(|row| row.kind == kind));
        if let Some(row) = known.and_then(|slot| self.slots.get_mut(slot)) {
            row.used = steady;
            return change(row);
        }
        let mut row = Estimate { id, kind, n: 0, m: 0, samples: VecDeque::new(), used: steady };
        change(&mut row);
        self.put(row);
    }

    fn put(&mut self, row: Estimate) {
        let id = row.id;
        self.remove(id);
        let slot = self.slots.insert(row);
        self.index.insert(tag(id.0), slot);
    }

    #[inline]
    fn get(&self, id: EstimatorId) -> Option<&Estimate> {
        self.slots.get(self.find(id)?)
    }

    #[inline]
    fn find(&self, id: EstimatorId) -> Option<u32> {
        self.index.find(tag(id.0), |slot| self.slots.get(slot).is_some_and(|row| row.id == id))
    }
}

impl Estimate {
    #[inline]
    fn guess(&self, steady: Micros) -> Option<u64> {
        match self.kind {
            EstimatorKind::Ema => (self.n > 0).then_some(2 * self.m / 1000),
            EstimatorKind::Forecast => (self.m > 0 || self.n > 0).then_some(2 * self.m / 1000),
            EstimatorKind::P95 => self.percentile(),
            EstimatorKind::RecentMean => self.recent(minute(steady)),
        }
    }

    fn learn(&mut self, output: u64, steady: Micros) {
        self.n = self.n.saturating_add(1);
        match self.kind {
            EstimatorKind::Ema if self.n == 1 => self.m = output * 1000,
            EstimatorKind::Ema => self.m = tenths(self.m, output * 1000),
            EstimatorKind::Forecast => self.m = self.blended(output, self.n),
            EstimatorKind::P95 => {
                if self.samples.len() >= SAMPLES {
                    self.samples.pop_front();
                }
                self.samples.push_back(output);
            }
            EstimatorKind::RecentMean => self.count(minute(steady), output),
        }
    }

    /// m + (sample − m) × w / 1024 with w = max(51, 1024 / n): the sample mean while young, then a weight of 0.05.
    fn blended(&self, output: u64, n: u64) -> u64 {
        let sample = i128::from(output) * 1000;
        let w = i128::from((1024 / n.max(1)).max(51));
        let m = i128::from(self.m);
        u64::try_from(m + ((sample - m) * w).div_euclid(1024)).unwrap_or(0)
    }

    /// The smallest sample that at least 95 % of them do not exceed.
    fn percentile(&self) -> Option<u64> {
        let count = self.samples.len();
        if count == 0 {
            return None;
        }
        if count < YOUNG {
            let sum: u128 = self.samples.iter().copied().map(u128::from).sum();
            return u64::try_from(sum * 3 / (2 * count as u128)).ok();
        }
        let mut sorted = [0; SAMPLES];
        let sorted = sorted.get_mut(..count.min(SAMPLES))?;
        for (to, from) in sorted.iter_mut().zip(&self.samples) {
            *to = *from;
        }
        let rank = (sorted.len() * 95).div_ceil(100) - 1;
        let (_, found, _) = sorted.select_nth_unstable(rank);
        Some(*found)
    }

    /// Minutes are kept as (minute, outputs, calls), the newest last.
    fn count(&mut self, minute: u64, output: u64) {
        let at = self.samples.len().saturating_sub(3);
        if self.samples.get(at).is_none_or(|newest| *newest < minute) {
            while self.samples.front().is_some_and(|oldest| minute.saturating_sub(*oldest) > MINUTES as u64) {
                self.samples.drain(..3.min(self.samples.len()));
            }
            self.samples.extend([minute, 0, 0]);
        }
        let at = self.samples.len() - 3;
        for (offset, more) in [(1, output), (2, 1)] {
            if let Some(sum) = self.samples.get_mut(at + offset) {
                *sum = sum.saturating_add(more).min(AMOUNT_MAX);
            }
        }
    }

    fn recent(&self, minute: u64) -> Option<u64> {
        let full = minute.saturating_sub(MINUTES as u64)..minute;
        let (mut outputs, mut calls) = (0_u128, 0_u128);
        let mut numbers = self.samples.iter().copied();
        while let (Some(at), Some(output), Some(count)) = (numbers.next(), numbers.next(), numbers.next()) {
            if full.contains(&at) {
                outputs += u128::from(output);
                calls += u128::from(count);
            }
        }
        u64::try_from(outputs.checked_div(calls)?).ok()
    }

    pub(crate) fn row<'a>(&'a self, samples: &'a mut Vec<u64>) -> EstimateRow<'a> {
        samples.clear();
        samples.extend(&self.samples);
        EstimateRow { id: self.id, kind: self.kind, n: self.n, m: self.m, samples, used: self.used }
    }
}

fn minute(steady: Micros) -> u64 {
    steady / (60 * SECOND)
}

/// ⌊0.7 × m + 0.3 × sample⌋, by tenths, so that it stays within 64 bits.
fn tenths(m: u64, sample: u64) -> u64 {
    m / 10 * 7 + sample / 10 * 3 + (m % 10 * 7 + sample % 10 * 3) / 10
}

impl PartialEq for Estimates {
    fn eq(&self, other: &Self) -> bool {
        let rows = |all: &Self| {
            let mut rows: Vec<Estimate> = all.iter().cloned().collect();
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
    use crate::command::{EstimatorId, EstimatorKind};
    use crate::event::Learner;
    use crate::units::{AMOUNT_MAX, SECOND};

    const OWN: EstimatorId = EstimatorId(1);
    const PRIOR: EstimatorId = EstimatorId(2);
    const MINUTE: u64 = 60 * SECOND;

    fn both(kind: EstimatorKind) -> Learner {
        Learner { own: OWN, prior: PRIOR, kind }
    }

    #[test]
    fn ema_is_twice_the_mean_of_weight_three_tenths() {
        let (mut all, ema) = (Estimates::default(), both(EstimatorKind::Ema));
        assert_eq!(all.guess(ema, 0), None);
        all.learn(ema, 100, 0);
        assert_eq!(all.guess(ema, 0), Some(200));
        // 100,000 × 0.7 + 33,000 × 0.3 = 79,900.
        all.learn(ema, 33, 0);
        assert_eq!(all.guess(ema, 0), Some(159));
    }

    #[test]
    fn a_young_key_takes_the_prior() {
        for kind in [EstimatorKind::Ema, EstimatorKind::Forecast] {
            let mut all = Estimates::default();
            all.learn(Learner { own: EstimatorId(9), prior: PRIOR, kind }, 70, 0);
            assert_eq!(all.guess(both(kind), 0), Some(140));
        }
    }

    #[test]
    fn a_forecast_is_twice_the_sample_mean_while_young_then_moves_by_a_twentieth() {
        let (mut all, forecast) = (Estimates::default(), both(EstimatorKind::Forecast));
        for output in [100, 300, 200] {
            all.learn(forecast, output, 0);
        }
        // 100,000; then w = 512: 200,000; then w = 341: 200,000.
        assert_eq!(all.guess(forecast, 0), Some(400));
        for _ in 3..30 {
            all.learn(forecast, 200, 0);
        }
        all.learn(forecast, 1_200, 0);
        // 200,000 + 1,000,000 × 51 / 1024 = 249,804; floor.
        assert_eq!(all.guess(forecast, 0), Some(499));
        all.learn(forecast, 0, 0);
        // 249,804 − ⌈249,804 × 51 / 1024⌉ = 237,362.
        assert_eq!(all.guess(forecast, 0), Some(474));
    }

    #[test]
    fn a_stream_that_outgrows_its_forecast_is_learned_from_at_once_and_is_no_sample() {
        let (mut all, forecast) = (Estimates::default(), both(EstimatorKind::Forecast));
        all.outgrown(forecast, 4_000, 0);
        // The prior has heard of it; the key itself has no sample yet.
        assert_eq!(all.guess(forecast, 0), Some(8_000));
        all.learn(forecast, 100, 0);
        assert_eq!(all.guess(forecast, 0), Some(200));
        for _ in 1..20 {
            all.learn(forecast, 100, 0);
        }
        all.outgrown(forecast, 2_148, 0);
        // 100,000 + 2,048,000 × 51 / 1024 = 202,000.
        assert_eq!(all.guess(forecast, 0), Some(404));
        all.outgrown(both(EstimatorKind::Ema), 9, 0);
        assert_eq!(all.guess(forecast, 0), Some(404), "other kinds do not");
    }

    #[test]
    fn the_95th_percentile_of_the_last_hundred() {
        let (mut all, p95) = (Estimates::default(), both(EstimatorKind::P95));
        assert_eq!(all.guess(p95, 0), None);
        for output in [10, 20, 30, 40] {
            all.learn(p95, output, 0);
        }
        assert_eq!(all.guess(p95, 0), Some(37), "1.5 × the mean of 25 below five samples");
        all.learn(p95, 50, 0);
        assert_eq!(all.guess(p95, 0), Some(50));
        // A hundred newer ones push the first five out.
        for output in (1..=100).rev() {
            all.learn(p95, 1_000 + output, 0);
        }
        assert_eq!(all.guess(p95, 0), Some(1_095));
        all.learn(p95, 1, 0);
        assert_eq!(all.guess(p95, 0), Some(1_094), "1,100 has left, 1 has come");
    }

    #[test]
    fn the_recent_mean_is_of_ten_full_minutes() {
        let (mut all, mean) = (Estimates::default(), both(EstimatorKind::RecentMean));
        all.learn(mean, 100, 0);
        all.learn(mean, 201, 59 * SECOND);
        assert_eq!(all.guess(mean, 59 * SECOND), None, "the minute is not full");
        assert_eq!(all.guess(mean, MINUTE), Some(150));
        all.learn(mean, 500, 5 * MINUTE);
        assert_eq!(all.guess(mean, 6 * MINUTE), Some(267), "Σ output ÷ Σ calls, not a mean of means");
        assert_eq!(all.guess(mean, (10 + 1) * MINUTE), Some(500));
        assert_eq!(all.guess(mean, (10 + 6) * MINUTE), None);
        for minute in 20..60 {
            all.learn(mean, 7, minute * MINUTE);
        }
        let kept: usize = all.iter().map(|row| row.samples.len()).max().unwrap_or(0);
        assert_eq!(kept, 3 * (10 + 1));
    }

    #[test]
    fn another_kind_under_the_same_name_begins_anew() {
        let mut all = Estimates::default();
        all.learn(both(EstimatorKind::Ema), 100, 0);
        assert_eq!(all.guess(both(EstimatorKind::P95), 0), None);
        all.learn(both(EstimatorKind::P95), 50, 0);
        assert_eq!(
            (all.guess(both(EstimatorKind::P95), 0), all.guess(both(EstimatorKind::Ema), 0)),
            (Some(75), None)
        );
    }

    #[test]
    fn the_largest_output_does_not_overflow() {
        for kind in
            [EstimatorKind::Ema, EstimatorKind::Forecast, EstimatorKind::P95, EstimatorKind::RecentMean]
        {
            let mut all = Estimates::default();
            let alone = Learner { own: OWN, prior: OWN, kind };
            for _ in 0..20 {
                all.learn(alone, u64::MAX, 0);
                all.outgrown(alone, u64::MAX, 0);
            }
            let guess = all.guess(alone, MINUTE).unwrap_or(0);
            assert!((1..=2 * AMOUNT_MAX).contains(&guess), "{kind:?}: {guess}");
            assert_eq!(all.iter().count(), 1);
        }
    }
}
