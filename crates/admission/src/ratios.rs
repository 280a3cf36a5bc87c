//! What counting has learned, per key × model: a bounded table that forgets.
//!
//! Invariants: at most [`RATIOS_MAX`] states; one that nobody taught for [`IDLE`] seconds has seen nothing, whether it
//! was taken out yet or not; a full table takes out what is idle, and else the oldest of a few, never all of it.
//! Lives in this gateway alone: another start begins with the built-in ratios.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tollbook_ledger::EstimatorId;
use tollbook_pricing::{Kinds, Learned};
use tollbook_wire::Usage;

/// States kept at once, about 500 bytes each.
pub const RATIOS_MAX: usize = 65_536;
/// Seconds without a lesson after which a state is forgotten: 7 days.
pub const IDLE: u64 = 7 * 86_400;
/// Seconds between two looks for idle states.
const SWEEP_EVERY: u64 = 3_600;
/// States of a full table that are looked at for the oldest.
const OLDEST_OF: usize = 16;

/// The state of one key × model, shared by all that binds it.
#[derive(Debug, Default)]
pub(crate) struct Ratio {
    learned: Mutex<Learned>,
    /// UTC second of the last lesson; of the making, before one.
    taught: AtomicU64,
}

impl Ratio {
    /// What was learned, as of `now` (UTC seconds).
    pub(crate) fn learned(&self, now: u64) -> Learned {
        if self.is_idle(now) { Learned::default() } else { *self.lock() }
    }

    pub(crate) fn learn(&self, built_in: &Kinds, usage: &Usage, now: u64) {
        let mut learned = self.lock();
        if self.is_idle(now) {
            *learned = Learned::default();
        }
        learned.learn(built_in, usage);
        self.taught.fetch_max(now, Ordering::Relaxed);
    }

    fn is_idle(&self, now: u64) -> bool {
        now.saturating_sub(self.taught.load(Ordering::Relaxed)) > IDLE
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Learned> {
        self.learned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(crate) struct Ratios {
    most: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    all: HashMap<EstimatorId, Arc<Ratio>>,
    swept: u64,
}

impl Default for Ratios {
    fn default() -> Self {
        Self::of(RATIOS_MAX)
    }
}

impl Ratios {
    fn of(most: usize) -> Self {
        Self { most, inner: Mutex::default() }
    }

    /// The state of a key × model, made if there is none.
    pub(crate) fn get(&self, id: EstimatorId, now: u64) -> Arc<Ratio> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ratio) = inner.all.get(&id) {
            return Arc::clone(ratio);
        }
        if inner.all.len() >= self.most || now.saturating_sub(inner.swept) > SWEEP_EVERY {
            inner.swept = now;
            inner.all.retain(|_, ratio| !ratio.is_idle(now));
        }
        while inner.all.len() >= self.most {
            let some = inner.all.iter().take(OLDEST_OF);
            let oldest = some.min_by_key(|(_, ratio)| ratio.taught.load(Ordering::Relaxed));
            let Some(id) = oldest.map(|(id, _)| *id) else { break };
            inner.all.remove(&id);
        }
        let ratio = Arc::new(Ratio { taught: AtomicU64::new(now), ..Ratio::default() });
        inner.all.insert(id, Arc::clone(&ratio));
        ratio
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).all.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn lesson(ratio: &Ratio, now: u64) {
        let usage = Usage {
            input: 2_000,
            input_reported: true,
            output_reported: true,
            complete: true,
            ..Usage::default()
        };
        ratio.learn(&Kinds { ascii: 1_500, ..Kinds::default() }, &usage, now);
    }

    #[test]
    fn a_state_dies_after_seven_idle_days() {
        let ratios = Ratios::default();
        let ratio = ratios.get(EstimatorId(1), NOW);
        lesson(&ratio, NOW);
        assert_eq!(ratio.learned(NOW + IDLE).samples(), 1, "to the last second");
        assert_eq!(ratio.learned(NOW + IDLE + 1), Learned::default());
        lesson(&ratio, NOW + IDLE + 1);
        assert_eq!(ratio.learned(NOW + IDLE + 1).samples(), 1, "nothing old comes back");
        assert!(Arc::ptr_eq(&ratio, &ratios.get(EstimatorId(1), NOW)));
    }

    #[test]
    fn idle_states_are_taken_out() {
        let ratios = Ratios::default();
        for id in 0..100 {
            ratios.get(EstimatorId(id), NOW);
        }
        ratios.get(EstimatorId(1_000), NOW + IDLE + 2);
        assert_eq!(ratios.len(), 1);
    }

    #[test]
    fn the_table_is_full_at_its_bound_and_loses_one_at_a_time() {
        let ratios = Ratios::of(64);
        for id in 0..64 {
            ratios.get(EstimatorId(id), NOW);
        }
        assert_eq!(ratios.len(), 64);
        ratios.get(EstimatorId(64), NOW);
        assert_eq!(ratios.len(), 64);
        assert_eq!(Ratios::default().most, RATIOS_MAX);
    }

    #[test]
    fn a_clock_that_steps_back_loses_nothing() {
        let ratio = Ratios::default().get(EstimatorId(1), NOW);
        lesson(&ratio, NOW);
        lesson(&ratio, NOW - 10);
        assert_eq!(ratio.learned(NOW - 10).samples(), 2);
    }
}
