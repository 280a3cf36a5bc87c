//! Engine time as last told, carried on by a monotonic clock.
//!
//! The engine owns time (L12). Every reply tells its `now`; between replies this adds what has passed since. Used for
//! period starts, key expiry and ages, never for a decision the engine makes.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use tollbook_ledger::Micros;

/// The engine's clock as seen from here.
#[derive(Debug)]
pub(crate) struct EngineTime {
    started: Instant,
    /// Engine time at `started`, by the last reply.
    origin: AtomicU64,
}

impl EngineTime {
    /// Starts from the engine's `now` at this moment.
    pub(crate) fn new(now: Micros) -> Self {
        Self { started: Instant::now(), origin: AtomicU64::new(now) }
    }

    /// Engine time now.
    pub(crate) fn now(&self) -> Micros {
        self.origin.load(Ordering::Relaxed).saturating_add(self.elapsed())
    }

    /// A reply told the engine's time.
    pub(crate) fn told(&self, now: Micros) {
        let origin = now.saturating_sub(self.elapsed());
        // Small differences are transit; writing them would bounce a cache line on every call.
        if self.origin.load(Ordering::Relaxed).abs_diff(origin) > 100_000 {
            self.origin.store(origin, Ordering::Relaxed);
        }
    }

    fn elapsed(&self) -> Micros {
        Micros::try_from(self.started.elapsed().as_micros()).unwrap_or(Micros::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l12_time_is_what_the_engine_last_told() {
        let time = EngineTime::new(1_000_000_000);
        assert!(time.now() >= 1_000_000_000);
        time.told(5_000_000_000);
        assert!((5_000_000_000..5_001_000_000).contains(&time.now()));
        time.told(2_000_000_000);
        assert!((2_000_000_000..2_001_000_000).contains(&time.now()));
    }
}
