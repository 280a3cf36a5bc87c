//! How long a peer may keep us waiting: a debt of time that bytes pay back.
//!
//! Waiting adds to the debt; every byte taken pays for `1 / bytes_per_s` seconds of it. Silence alone reaches the patience
//! after exactly that time; a trickle below the pace reaches it later, and a peer at the pace or above never does.

use std::time::Duration;

use tokio::time::Instant;

/// What is asked of a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The largest debt.
    pub(crate) patience: Duration,
    /// 0 asks for no pace: any progress pays the whole debt.
    pub(crate) bytes_per_s: usize,
}

impl Pace {
    /// What so many bytes are worth.
    fn worth(self, bytes: usize) -> Duration {
        let per_s = u128::try_from(self.bytes_per_s).unwrap_or(u128::MAX);
        let bytes = u128::try_from(bytes).unwrap_or(u128::MAX);
        match bytes.saturating_mul(1_000_000).checked_div(per_s) {
            Some(micros) => Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)),
            None => Duration::MAX,
        }
    }
}

/// The debt of one peer in one direction.
#[derive(Debug, Default)]
pub(crate) struct Debt {
    since: Option<Instant>,
    owed: Duration,
}

impl Debt {
    /// The peer is waited for, from now on or already.
    pub(crate) fn wait(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// The peer moved so many bytes and is not waited for any more.
    pub(crate) fn pay(&mut self, now: Instant, bytes: usize, pace: Pace) {
        if self.is_clear() {
            return;
        }
        self.owed = self.owed(now).saturating_sub(pace.worth(bytes));
        self.since = None;
    }

    /// Nothing is owed and nobody is waited for.
    pub(crate) fn is_clear(&self) -> bool {
        self.since.is_none() && self.owed.is_zero()
    }

    pub(crate) fn owed(&self, now: Instant) -> Duration {
        let waited = self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.owed.saturating_add(waited)
    }

    pub(crate) fn is_due(&self, now: Instant, pace: Pace) -> bool {
        self.owed(now) >= pace.patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_is_due_after_the_patience_and_a_trickle_later() {
        let pace = Pace { patience: Duration::from_secs(30), bytes_per_s: 100 };
        let start = Instant::now();
        let at = |s: u64| start + Duration::from_secs(s);
        let mut debt = Debt::default();
        debt.wait(start);
        assert!(!debt.is_due(at(29), pace));
        assert!(debt.is_due(at(30), pace));
        // Half the pace: due after twice the time.
        debt = Debt::default();
        for second in 0..59 {
            debt.wait(at(second));
            debt.pay(at(second + 1), 50, pace);
            assert!(!debt.is_due(at(second + 1), pace), "after {second} s");
        }
        debt.wait(at(59));
        assert!(debt.is_due(at(60), pace));
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_at_the_pace_is_never_due() {
        let start = Instant::now();
        for (bytes_per_s, moved) in [(100, 100), (100, usize::MAX), (0, 1), (usize::MAX, usize::MAX)] {
            let pace = Pace { patience: Duration::from_secs(2), bytes_per_s };
            let mut debt = Debt::default();
            for second in 0..1_000 {
                debt.wait(start + Duration::from_secs(second));
                debt.pay(start + Duration::from_secs(second + 1), moved, pace);
                assert!(!debt.is_due(start + Duration::from_secs(second + 1), pace));
            }
        }
    }
}
