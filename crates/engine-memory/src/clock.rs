//! Engine time.
//!
//! The wall clock is read once, at start; from then on time is that plus the monotonic clock, so it never jumps while
//! the process lives (L12). A start before the log's last time is a step back, which the book's rings and its steady
//! clock absorb.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tollbook_ledger::Micros;

/// Where engine time comes from; tests and the simulation bring their own.
pub trait Clock: Send + Sync + 'static {
    /// Microseconds since the Unix epoch, UTC.
    fn now(&self) -> Micros;
}

/// The real clock.
#[derive(Debug)]
pub struct SystemClock {
    wall: Micros,
    since: Instant,
}

impl SystemClock {
    /// Reads the wall clock.
    #[allow(
        clippy::disallowed_methods,
        reason = "engine time begins with the wall clock, read once at start (L12)"
    )]
    pub fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { wall: Micros::try_from(wall.as_micros()).unwrap_or(Micros::MAX), since: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Micros {
        let since = Micros::try_from(self.since.elapsed().as_micros()).unwrap_or(Micros::MAX);
        self.wall.saturating_add(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_of_this_age_and_never_goes_back() {
        let clock = SystemClock::start();
        let first = clock.now();
        assert!(first > 1_700_000_000_000_000);
        assert!((0..1000).all(|_| clock.now() >= first));
    }
}
