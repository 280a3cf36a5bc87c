//! Drift: compares held with the sum of live holds, in bounded batches, once a minute (L10). It tells; it never repairs.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tollbook_engine::ledger::AccountId;
use tollbook_engine::{Engine, EngineError, ErrorKind, Shard};
use tollbook_telemetry::Metrics;
use tollbook_telemetry::labels::{Alarm, Job};

use crate::JobError;
use crate::pace::{Pace, pause};

/// Pause between checks of everything.
pub const DRIFT_EVERY: Duration = Duration::from_mins(1);
/// Reservations or accounts looked at by one verb, so that no other verb waits long.
const BATCH: usize = 256;
/// Most steps of one shard's check: more than a shard has accounts for.
const STEPS_MAX: usize = 100_000;
/// Differences that get a log line in one check.
const LINES_MAX: u64 = 8;

/// Looks for drift.
pub struct Drift {
    engine: Arc<dyn Engine>,
    metrics: Arc<Metrics>,
}

/// What one check found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DriftFound {
    pub differences: u64,
    /// Accounts that could not be compared.
    pub unconfirmed: u64,
}

impl Drift {
    pub fn new(engine: Arc<dyn Engine>, metrics: Arc<Metrics>) -> Self {
        Self { engine, metrics }
    }

    /// Checks every account once. A shard that cannot be checked keeps no other from being checked.
    pub async fn once(&self) -> Result<DriftFound, JobError> {
        let (mut found, mut failed) = (DriftFound::default(), None);
        for shard in self.engine.shards() {
            if let Err(error) = self.shard(shard, &mut found).await {
                failed.get_or_insert(error);
            }
        }
        self.metrics.engine_drift.set((), found.differences);
        self.metrics.engine_drift_unconfirmed.set((), found.unconfirmed);
        self.metrics.engine_alarms.add((Alarm::Drift,), found.differences);
        if found.unconfirmed > 0 {
            tracing::warn!(
                accounts = found.unconfirmed,
                "too much is live of some accounts, or changes too fast, to be compared"
            );
        }
        failed.map_or(Ok(found), |error| Err(error.into()))
    }

    async fn shard(&self, shard: Shard, found: &mut DriftFound) -> Result<(), EngineError> {
        let mut at = 0;
        for _ in 0..STEPS_MAX {
            let batch = match self.engine.drift(shard, at, BATCH).await {
                Ok(batch) => batch.value,
                // What is lost is made whole elsewhere.
                Err(EngineError { kind: ErrorKind::Lost(_), .. }) => return Ok(()),
                Err(error) => return Err(error),
            };
            found.unconfirmed += batch.unconfirmed;
            for difference in batch.differences {
                found.differences += 1;
                if found.differences <= LINES_MAX {
                    tell(shard, difference);
                }
            }
            // Cursors have no order; one that stands still would never end.
            match batch.next.filter(|next| *next != at) {
                Some(next) => at = next,
                None => return Ok(()),
            }
            tokio::task::yield_now().await;
        }
        Err(EngineError::not_applied(ErrorKind::Away("the check does not come to an end".to_owned())))
    }

    /// Repeats `once` until told to stop.
    pub async fn run(&self, mut stop: watch::Receiver<bool>) {
        let mut pace = Pace::new(Job::Drift, DRIFT_EVERY);
        while !pause(DRIFT_EVERY, &mut stop).await {
            // Nothing is written, so nothing is left half done.
            let result = tokio::select! {
                result = self.once() => result,
                _ = stop.wait_for(|stop| *stop) => break,
            };
            pace.after(result.as_ref().map(|_| ()), &self.metrics);
        }
    }
}

fn tell(shard: Shard, (account, period, held, sum, version): (AccountId, u64, i64, i64, u64)) {
    let account = format!("{:016x}.{:016x}", account.subject.0, account.name);
    let shard = shard.0;
    tracing::error!(shard, account, period, held, sum, version, "held is not the sum of its holds");
}

impl std::fmt::Debug for Drift {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Drift").finish_non_exhaustive()
    }
}
