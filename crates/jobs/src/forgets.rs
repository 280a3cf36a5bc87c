//! Forgets that the fleet's cache has to take: which ids changed, and at which revision.
//!
//! Invariants: what was handed over waits until the cache has taken it, whatever happens to who handed it over; of each id
//! the newest revision alone. At most [`FORGETS_MAX`] ids wait: of more, everything below the newest revision is forgotten.
//! While the cache is away: gateways that follow the changes bring what they know with each question, so nobody who
//! knows of a change is served what is older.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};
use tokio::time::Duration;
use tollbook_store::{ConfigCache, StoreError};
use tollbook_telemetry::Metrics;
use tollbook_telemetry::labels::Job;

use crate::JobError;
use crate::pace::{Pace, pause};

/// Ids that may wait.
pub const FORGETS_MAX: usize = 10_000;
/// How often it is seen whether something waits; what could not be delivered is tried sooner, then at this pace.
pub const FORGETS_EVERY: Duration = Duration::from_secs(10);
/// Ids delivered by one question.
const BATCH: usize = 256;

/// Delivers forgets to the cache.
pub struct Forgets {
    cache: Arc<dyn ConfigCache>,
    metrics: Arc<Metrics>,
    waiting: Mutex<Waiting>,
    /// Something could not be delivered.
    woken: Notify,
}

#[derive(Default)]
struct Waiting {
    ids: BTreeMap<String, u64>,
    /// Everything below this revision, of whatever id; 0 for nothing.
    below: u64,
}

impl Waiting {
    fn add(&mut self, ids: &[(String, u64)]) {
        for (id, revision) in ids {
            match self.ids.get_mut(id) {
                Some(known) => *known = (*known).max(*revision),
                None => drop(self.ids.insert(id.clone(), *revision)),
            }
            if self.ids.len() > FORGETS_MAX {
                let newest = std::mem::take(&mut self.ids).into_values().max().unwrap_or_default();
                self.below = self.below.max(newest);
            }
        }
    }

    fn some(&self) -> Vec<(String, u64)> {
        self.ids.iter().take(BATCH).map(|(id, revision)| (id.clone(), *revision)).collect()
    }

    fn is_delivered(&mut self, ids: &[(String, u64)]) {
        for (id, revision) in ids {
            if self.ids.get(id).is_some_and(|waits| waits <= revision) {
                self.ids.remove(id);
            }
        }
    }

    fn count(&self) -> usize {
        if self.below > 0 { FORGETS_MAX + 1 } else { self.ids.len() }
    }
}

impl Forgets {
    pub fn new(cache: Arc<dyn ConfigCache>, metrics: Arc<Metrics>) -> Self {
        let (waiting, woken) = (Mutex::default(), Notify::new());
        Self { cache, metrics, waiting, woken }
    }

    /// Nothing of these ids that was read before these revisions is to count any more. False: the cache did not take it
    /// all yet; `run` goes on with it.
    pub async fn forget(&self, ids: &[(String, u64)]) -> bool {
        self.change(|waiting| waiting.add(ids));
        let is_delivered = self.once().await.is_ok();
        if !is_delivered {
            self.woken.notify_one();
        }
        is_delivered
    }

    /// Delivers what waits, oldest names first; how many ids it was.
    pub async fn once(&self) -> Result<u64, JobError> {
        let mut delivered = 0;
        let below = self.waiting().below;
        if below > 0 {
            self.cache.forget_below(below).await?;
            self.change(|waiting| waiting.below = if waiting.below == below { 0 } else { waiting.below });
        }
        // What is handed over meanwhile is delivered too, or by who hands it over: at most as many rounds as ids can wait.
        for _ in 0..=FORGETS_MAX / BATCH {
            let some = self.waiting().some();
            if some.is_empty() {
                break;
            }
            self.deliver(&some).await?;
            delivered += some.len() as u64;
        }
        Ok(delivered)
    }

    async fn deliver(&self, ids: &[(String, u64)]) -> Result<(), StoreError> {
        self.cache.forget(ids).await?;
        self.change(|waiting| waiting.is_delivered(ids));
        Ok(())
    }

    /// Repeats `once` until told to stop.
    pub async fn run(&self, mut stop: watch::Receiver<bool>) {
        let mut pace = Pace::new(Job::Forgets, FORGETS_EVERY);
        loop {
            let result = self.once().await;
            let mut wait = pace.after(result.as_ref().map(|_| ()), &self.metrics);
            if result.is_ok() && self.waiting().count() > 0 {
                wait = Duration::ZERO;
            }
            let is_over = tokio::select! {
                is_over = pause(wait, &mut stop) => is_over,
                // A failure has its pause, whoever knocks meanwhile.
                () = self.woken.notified(), if result.is_ok() => false,
            };
            if is_over {
                return;
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Waiting)) {
        let mut waiting = self.waiting();
        change(&mut waiting);
        self.metrics.objects_forgets_waiting.set((), waiting.count() as u64);
    }
}

impl std::fmt::Debug for Forgets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forgets").field("waiting", &self.waiting().count()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{FORGETS_MAX, Waiting};

    #[test]
    fn of_each_id_the_newest_waits() {
        let mut waiting = Waiting::default();
        let of = |revision| [("a".to_owned(), revision)];
        waiting.add(&of(3));
        waiting.add(&of(5));
        waiting.add(&of(4));
        waiting.is_delivered(&of(4));
        assert_eq!(waiting.some(), of(5));
        waiting.is_delivered(&of(5));
        assert_eq!(waiting.count(), 0);
    }

    #[test]
    fn beyond_the_bound_all_below_the_newest_waits() {
        let id = |number: usize| (number.to_string(), number as u64 + 1);
        let mut waiting = Waiting::default();
        waiting.add(&(0..FORGETS_MAX).map(id).collect::<Vec<_>>());
        assert_eq!((waiting.count(), waiting.below), (FORGETS_MAX, 0));
        waiting.add(&[id(5)]);
        assert_eq!((waiting.count(), waiting.below), (FORGETS_MAX, 0));
        waiting.add(&[("one more".to_owned(), 2)]);
        assert_eq!((waiting.ids.len(), waiting.below), (0, FORGETS_MAX as u64));
        waiting.add(&[("later".to_owned(), 20_000)]);
        assert_eq!((waiting.some(), waiting.count()), (vec![("later".to_owned(), 20_000)], FORGETS_MAX + 1));
    }
}
