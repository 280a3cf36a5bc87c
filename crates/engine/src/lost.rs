//! Shards that were found lost: calls tell, a job makes them whole, calls that wait go on.
//!
//! Invariant: a shard stays listed from the moment it was found lost until it was made whole.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::{EngineError, ErrorKind, Shard};

/// The list, shared by those who find and those who mend.
#[derive(Debug, Default)]
pub struct LostShards {
    /// With each, whether somebody has waited for it in vain.
    shards: Mutex<BTreeMap<Shard, bool>>,
    found: Notify,
    whole: Notify,
}

impl LostShards {
    /// A verb was answered with an error: notes the shard if that says it is lost; whether it does.
    pub fn met(&self, shard: Shard, error: &EngineError) -> bool {
        let lost = matches!(error.kind, ErrorKind::Lost(_));
        if lost {
            self.found(shard);
        }
        lost
    }

    /// A shard is lost.
    pub fn found(&self, shard: Shard) {
        if let Entry::Vacant(place) = self.lock().entry(shard) {
            place.insert(false);
            self.found.notify_one();
        }
    }

    /// A shard is whole again.
    pub fn whole(&self, shard: Shard) {
        if self.lock().remove(&shard).is_some() {
            self.whole.notify_waiters();
        }
    }

    /// All of them.
    pub fn list(&self) -> Vec<Shard> {
        self.lock().keys().copied().collect()
    }

    /// Returns when another one was found since the last time.
    pub async fn next(&self) {
        self.found.notified().await;
    }

    /// Waits until a shard is whole, at most so long; whether it is.
    pub async fn wait(&self, shard: Shard, at_most: Duration) -> bool {
        let waiting = async {
            loop {
                let mut changed = std::pin::pin!(self.whole.notified());
                // Listens before it looks: what changes in between is not missed.
                changed.as_mut().enable();
                if !self.lock().contains_key(&shard) {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(at_most, waiting).await.is_ok()
    }

    /// The same, but not at all once somebody has waited so in vain: what is not whole soon may be lost for hours.
    pub async fn wait_in_hope(&self, shard: Shard, at_most: Duration) -> bool {
        if self.lock().get(&shard) == Some(&true) {
            return false;
        }
        let is_whole = self.wait(shard, at_most).await;
        if !is_whole && let Some(in_vain) = self.lock().get_mut(&shard) {
            *in_vain = true;
        }
        is_whole
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Shard, bool>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Loss;

    #[tokio::test(start_paused = true)]
    async fn a_lost_shard_is_listed_until_it_is_whole_and_those_who_wait_go_on() {
        let lost = std::sync::Arc::new(LostShards::default());
        let error = |kind| EngineError::not_applied(kind);
        assert!(!lost.met(Shard(1), &error(ErrorKind::Deadline)));
        assert!(lost.met(Shard(1), &error(ErrorKind::Lost(Loss::Tail))));
        assert!(lost.met(Shard(2), &error(ErrorKind::Lost(Loss::All))));
        lost.next().await;
        assert_eq!(lost.list(), [Shard(1), Shard(2)]);
        assert!(!lost.wait(Shard(1), Duration::from_millis(250)).await);
        assert!(lost.wait(Shard(3), Duration::ZERO).await, "it never was lost");
        let waiting = tokio::spawn({
            let lost = std::sync::Arc::clone(&lost);
            async move { lost.wait(Shard(1), Duration::from_secs(60)).await }
        });
        tokio::task::yield_now().await;
        lost.whole(Shard(2));
        lost.whole(Shard(1));
        assert!(waiting.await.unwrap());
        assert!(lost.list().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_in_hope_once_that_was_in_vain_until_it_was_whole() {
        let lost = LostShards::default();
        let waited = async || {
            let began = tokio::time::Instant::now();
            assert!(!lost.wait_in_hope(Shard(1), Duration::from_secs(1)).await);
            began.elapsed()
        };
        for _ in 0..2 {
            lost.found(Shard(1));
            lost.found(Shard(2));
            assert_eq!(waited().await, Duration::from_secs(1));
            lost.found(Shard(1));
            assert_eq!(waited().await, Duration::ZERO);
            lost.whole(Shard(2));
            assert_eq!(waited().await, Duration::ZERO);
            lost.whole(Shard(1));
            assert!(lost.wait_in_hope(Shard(1), Duration::ZERO).await);
        }
    }
}
