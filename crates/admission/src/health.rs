//! Whether the engine takes calls: what the last reserve of each shard met.
//!
//! Invariants: a change is logged once, with what it cost; a shard that was away is asked again every `ASK_EVERY`, so a
//! gateway that is sent no calls because it is not ready gets ready again by itself. A call pays one load for it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tollbook_engine::{EngineError, Shard};

/// How often a shard that takes no calls is asked whether it does again.
pub(crate) const ASK_EVERY: Duration = Duration::from_secs(1);

/// What is known of the engine.
#[derive(Debug, Default)]
pub(crate) struct Health {
    away: AtomicBool,
    absence: Mutex<Absence>,
}

/// Shards that take no calls.
#[derive(Debug, Default)]
struct Absence {
    shards: BTreeSet<Shard>,
    since: Option<Instant>,
    refused: u64,
}

impl Health {
    pub(crate) fn is_away(&self) -> bool {
        self.away.load(Ordering::Relaxed)
    }

    /// The shards to ask.
    pub(crate) fn shards_away(&self) -> Vec<Shard> {
        self.lock().shards.iter().copied().collect()
    }

    /// A call was refused because its shard gave no verdict. True if that is news.
    pub(crate) fn failed(&self, shard: Shard, error: &EngineError) -> bool {
        let mut absence = self.lock();
        let news = absence.shards.is_empty();
        absence.shards.insert(shard);
        absence.refused = absence.refused.saturating_add(1);
        if news {
            absence.since = Some(Instant::now());
            self.away.store(true, Ordering::Relaxed);
        }
        drop(absence);
        if news {
            tracing::error!(%error, shard = shard.0, "the engine is away: calls are refused until it is back");
        }
        news
    }

    /// A shard gave a verdict, or would. If that is news: the calls refused meanwhile.
    pub(crate) fn answered(&self, shard: Shard) -> Option<u64> {
        if !self.is_away() {
            return None;
        }
        let mut absence = self.lock();
        if !absence.shards.remove(&shard) || !absence.shards.is_empty() {
            return None;
        }
        self.away.store(false, Ordering::Relaxed);
        let Absence { since, refused, .. } = std::mem::take(&mut *absence);
        drop(absence);
        let seconds = since.map_or(0, |since| since.elapsed().as_secs());
        tracing::warn!(refused, seconds, "the engine is back: calls are taken again");
        Some(refused)
    }

    fn lock(&self) -> MutexGuard<'_, Absence> {
        self.absence.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tollbook_engine::ErrorKind;

    use super::*;

    #[test]
    fn a_change_is_news_once_and_counts_what_it_cost() {
        let health = Health::default();
        let error = EngineError::not_applied(ErrorKind::Away("the disk is full".into()));
        assert_eq!((health.is_away(), health.answered(Shard(1))), (false, None));
        assert!(health.failed(Shard(1), &error));
        for _ in 0..1_000 {
            assert!(!health.failed(Shard(1), &error));
        }
        assert!(!health.failed(Shard(2), &error));
        assert_eq!(health.shards_away(), [Shard(1), Shard(2)]);
        assert_eq!(health.answered(Shard(3)), None, "it never was away");
        assert_eq!(health.answered(Shard(1)), None);
        assert!(health.is_away());
        assert_eq!(health.answered(Shard(2)), Some(1_002));
        assert!(!health.is_away());
        assert_eq!(health.answered(Shard(2)), None);
        assert!(health.failed(Shard(2), &error), "and again");
        assert_eq!(health.answered(Shard(2)), Some(1));
    }
}
