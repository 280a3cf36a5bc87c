//! What an absence of the book has cost so far, and when it began.
//!
//! Invariants: it begins with the first call that got no verdict and ends when every shard that gave none has answered;
//! each is logged once, the end with counts; of absences that follow each other closely only the first is. A shard that was away is asked again every second, so a gateway that is sent
//! no calls because it is not ready gets ready again by itself. A call pays one load for it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use tollbook_engine::{EngineError, Shard};
use tollbook_policy::WhenAway;
use tollbook_telemetry::log::Every;

use crate::live::WARN_EVERY;

/// What is known of the book's absence.
#[derive(Debug)]
pub(crate) struct Absence {
    away: AtomicBool,
    told: Mutex<Told>,
    lines: Every,
}

impl Default for Absence {
    fn default() -> Self {
        Self { away: AtomicBool::new(false), told: Mutex::default(), lines: Every::new(WARN_EVERY) }
    }
}

/// Shards that gave no verdict, and reservations that got none.
#[derive(Debug, Default)]
struct Told {
    shards: BTreeSet<Shard>,
    since: Option<Instant>,
    counts: Counts,
    /// Its beginning was logged, and its end will be.
    logged: bool,
}

/// Reservations without a verdict, by what was done instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub refused: u64,
    /// Admitted by the local book.
    pub local: u64,
    /// Admitted without any book.
    pub open: u64,
}

/// An absence under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AwayReport {
    /// Seconds since it began.
    pub seconds: u64,
    /// Shards known to be away.
    pub shards: Vec<Shard>,
    pub counts: Counts,
}

impl Absence {
    pub(crate) fn is_away(&self) -> bool {
        self.away.load(Ordering::Relaxed)
    }

    /// The shards to ask.
    pub(crate) fn shards_away(&self) -> Vec<Shard> {
        self.lock().shards.iter().copied().collect()
    }

    pub(crate) fn report(&self) -> Option<AwayReport> {
        let told = self.lock();
        let seconds = told.since?.elapsed().as_secs();
        Some(AwayReport { seconds, shards: told.shards.iter().copied().collect(), counts: told.counts })
    }

    /// A reservation got no verdict of its shard; `error` is `None` where it was not asked.
    pub(crate) fn unanswered(&self, shard: Shard, instead: WhenAway, error: Option<&EngineError>) {
        let mut told = self.lock();
        let news = told.shards.is_empty();
        told.shards.insert(shard);
        let count = match instead {
            WhenAway::Closed => &mut told.counts.refused,
            WhenAway::Local => &mut told.counts.local,
            WhenAway::Open => &mut told.counts.open,
        };
        *count = count.saturating_add(1);
        let mut passed = None;
        if news {
            let now = Instant::now();
            told.since = Some(now);
            passed = self.lines.pass(now.into_std());
            told.logged = passed.is_some();
            self.away.store(true, Ordering::Relaxed);
        }
        drop(told);
        if let Some(suppressed) = passed {
            let error = error.map_or_else(|| "it is not asked".to_owned(), ToString::to_string);
            tracing::error!(
                error,
                shard = shard.0,
                suppressed,
                "the book is away: until it is back, calls are admitted or refused as `when_away` of their limits says"
            );
        }
    }

    /// A shard gave a verdict, or would. If that ends the absence: what it has cost.
    pub(crate) fn answered(&self, shard: Shard) -> Option<Counts> {
        if !self.is_away() {
            return None;
        }
        let mut told = self.lock();
        if !told.shards.remove(&shard) || !told.shards.is_empty() {
            return None;
        }
        self.away.store(false, Ordering::Relaxed);
        let Told { since, counts, logged, .. } = std::mem::take(&mut *told);
        drop(told);
        if !logged {
            return Some(counts);
        }
        let Counts { refused, local, open } = counts;
        let seconds = since.map_or(0, |since| since.elapsed().as_secs());
        tracing::warn!(
            refused,
            local,
            open,
            seconds,
            "the book is back: what was admitted meanwhile is posted as it ends"
        );
        Some(counts)
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tollbook_engine::ErrorKind;

    use super::*;

    #[test]
    fn an_absence_begins_once_and_ends_with_what_it_cost() {
        let absence = Absence::default();
        let error = EngineError::not_applied(ErrorKind::Away("the disk is full".into()));
        assert_eq!((absence.is_away(), absence.answered(Shard(1))), (false, None));
        assert_eq!(absence.report(), None);
        absence.unanswered(Shard(1), WhenAway::Closed, Some(&error));
        for _ in 0..1_000 {
            absence.unanswered(Shard(1), WhenAway::Local, None);
        }
        absence.unanswered(Shard(2), WhenAway::Open, Some(&error));
        assert_eq!(absence.shards_away(), [Shard(1), Shard(2)]);
        let counts = Counts { refused: 1, local: 1_000, open: 1 };
        assert_eq!(absence.report().unwrap().counts, counts);
        assert_eq!(absence.answered(Shard(3)), None, "it never was away");
        assert_eq!(absence.answered(Shard(1)), None);
        assert!(absence.is_away());
        assert_eq!(absence.answered(Shard(2)), Some(counts));
        assert!(!absence.is_away());
        assert_eq!(absence.answered(Shard(2)), None);
        absence.unanswered(Shard(2), WhenAway::Closed, None);
        assert_eq!(absence.answered(Shard(2)), Some(Counts { refused: 1, ..Counts::default() }), "and again");
    }
}
