//! Sweep: expires what is due in every shard, at least once a second (L7).
//!
//! A shard in trouble does not keep the others waiting; what it leaves is due at the next sweep.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use tokio::sync::watch;
use tollbook_engine::{Engine, EngineError, ErrorKind, ExpireCall, Shard};
use tollbook_ledger::Expired;
use tollbook_telemetry::Metrics;
use tollbook_telemetry::labels::Job;

use crate::JobError;
use crate::pace::{Pace, pause};

/// Pause between sweeps; with the time a sweep takes it stays below the second that L7 promises.
pub const SWEEP_EVERY: Duration = Duration::from_millis(500);
/// Holds expired by one verb.
const DUE_MAX: usize = 64;
/// Most verbs on one shard in one sweep; more than that is left to the next, so that every shard has its turn.
const ROUNDS_MAX: usize = 64;
/// Shards swept at the same time.
const SHARDS_AT_ONCE: usize = 8;

/// Expires due holds.
pub struct Sweep {
    engine: Arc<dyn Engine>,
    metrics: Arc<Metrics>,
}

/// What one sweep did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Swept {
    pub expired: u64,
    /// Were renewed or had ended before their turn came.
    pub spared: u64,
}

impl Sweep {
    pub fn new(engine: Arc<dyn Engine>, metrics: Arc<Metrics>) -> Self {
        Self { engine, metrics }
    }

    /// One sweep over all shards; the first trouble is told after every shard had its turn.
    pub async fn once(&self) -> Result<Swept, JobError> {
        let mut sweeps = stream::iter(self.engine.shards())
            .map(|shard| self.shard(shard))
            .buffer_unordered(SHARDS_AT_ONCE);
        let (mut all, mut trouble) = (Swept::default(), None);
        while let Some((swept, result)) = sweeps.next().await {
            all.expired += swept.expired;
            all.spared += swept.spared;
            if let Err(error) = result {
                trouble.get_or_insert(error);
            }
        }
        self.metrics.engine_expired.add((), all.expired);
        trouble.map_or(Ok(all), |error| Err(error.into()))
    }

    /// Repeats `once` until told to stop.
    pub async fn run(&self, mut stop: watch::Receiver<bool>) {
        let mut pace = Pace::new(Job::Sweep, SWEEP_EVERY);
        loop {
            let result = self.once().await;
            let wait = pace.after(result.as_ref().map(|_| ()), &self.metrics).min(SWEEP_EVERY);
            if pause(wait, &mut stop).await {
                return;
            }
        }
    }

    async fn shard(&self, shard: Shard) -> (Swept, Result<(), EngineError>) {
        let mut swept = Swept::default();
        for _ in 0..ROUNDS_MAX {
            match self.round(shard).await {
                Ok((done, full)) => {
                    swept.expired += done.expired;
                    swept.spared += done.spared;
                    // A round without an expiry would only see the same holds again.
                    if !full || done.expired == 0 {
                        break;
                    }
                }
                // Nothing is due in a shard that is lost; it is made whole elsewhere.
                Err(EngineError { kind: ErrorKind::Lost(_), .. }) => break,
                Err(error) => return (swept, Err(error)),
            }
        }
        (swept, Ok(()))
    }

    /// Expires one batch; whether there may be more.
    async fn round(&self, shard: Shard) -> Result<(Swept, bool), EngineError> {
        let due = self.engine.due(shard, DUE_MAX).await?.value;
        let full = due.len() >= DUE_MAX;
        if due.is_empty() {
            return Ok((Swept::default(), false));
        }
        let calls: Vec<ExpireCall> =
            due.into_iter().map(|hold| ExpireCall { claim: hold.claim, subjects: hold.subjects }).collect();
        let answers = self.engine.expire(&calls).await?.value;
        let mut swept = Swept::default();
        for answer in answers {
            match answer {
                Expired::Expired { .. } => swept.expired += 1,
                Expired::NotDue | Expired::Ended(_) | Expired::Unknown => swept.spared += 1,
            }
        }
        Ok((swept, full))
    }
}

impl std::fmt::Debug for Sweep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sweep").finish_non_exhaustive()
    }
}
