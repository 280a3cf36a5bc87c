//! Drift: compares held with the sum of live holds, in bounded batches, once a minute (L10). It tells; it never repairs.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tollbook_engine::{Engine, EngineError, ErrorKind};
use tollbook_telemetry::Metrics;
use tollbook_telemetry::labels::{Alarm, Job};

use crate::JobError;
use crate::pace::{Pace, pause};

/// Pause between checks of everything.
pub const DRIFT_EVERY: Duration = Duration::from_mins(1);
/// Reservations or accounts looked at by one verb, so that no other verb waits long.
const BATCH: usize = 256;
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
}

impl Drift {
    pub fn new(engine: Arc<dyn Engine>, metrics: Arc<Metrics>) -> Self {
        Self { engine, metrics }
    }

    /// Checks every account once.
    pub async fn once(&self) -> Result<DriftFound, JobError> {
        let mut found = DriftFound::default();
        for shard in self.engine.shards() {
            let mut cursor = Some(0);
            while let Some(at) = cursor {
                let batch = match self.engine.drift(shard, at, BATCH).await {
                    Ok(batch) => batch.value,
                    // What is lost is made whole elsewhere.
                    Err(EngineError { kind: ErrorKind::Lost(_), .. }) => break,
                    Err(error) => return Err(error.into()),
                };
                for (account, period, held, sum, version) in batch.differences {
                    found.differences += 1;
                    if found.differences <= LINES_MAX {
                        let account = format!("{:016x}.{:016x}", account.subject.0, account.name);
                        let shard = shard.0;
                        tracing::error!(
                            shard,
                            account,
                            period,
                            held,
                            sum,
                            version,
                            "held is not the sum of its holds"
                        );
                    }
                }
                // A cursor that stands still would never end.
                cursor = batch.next.filter(|next| *next > at);
                tokio::task::yield_now().await;
            }
        }
        self.metrics.engine_drift.set((), found.differences);
        self.metrics.engine_alarms.add((Alarm::Drift,), found.differences);
        Ok(found)
    }

    /// Repeats `once` until told to stop.
    pub async fn run(&self, mut stop: watch::Receiver<bool>) {
        let mut pace = Pace::new(Job::Drift, DRIFT_EVERY);
        while !pause(DRIFT_EVERY, &mut stop).await {
            let result = self.once().await;
            pace.after(result.as_ref().map(|_| ()), &self.metrics);
        }
    }
}

impl std::fmt::Debug for Drift {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Drift").finish_non_exhaustive()
    }
}
