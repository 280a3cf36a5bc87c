//! When a job runs again: at its own interval, sooner when there is more, later when something is away.

use std::time::Duration;

use tokio::sync::watch;
use tollbook_telemetry::Metrics;
use tollbook_telemetry::labels::{Job, Run};
use tollbook_telemetry::log::Every;

use crate::JobError;

/// First pause after a failure; it doubles up to the longest.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// One log line per failing job in this time.
const LOG_EVERY: Duration = Duration::from_secs(30);

/// A job's pace and how it tells of failures.
#[derive(Debug)]
pub(crate) struct Pace {
    job: Job,
    interval: Duration,
    backoff: Duration,
    log: Every,
}

impl Pace {
    pub(crate) fn new(job: Job, interval: Duration) -> Self {
        Self { job, interval, backoff: BACKOFF_FIRST, log: Every::new(LOG_EVERY) }
    }

    /// How long to pause after a run.
    pub(crate) fn after(&mut self, result: Result<(), &JobError>, metrics: &Metrics) -> Duration {
        match result {
            Ok(()) => {
                metrics.jobs_runs.inc((self.job, Run::Ok));
                self.backoff = BACKOFF_FIRST;
                self.interval
            }
            Err(error) => {
                metrics.jobs_runs.inc((self.job, Run::Failed));
                if let Some(suppressed) = self.log.pass(tokio::time::Instant::now().into_std()) {
                    tracing::error!(job = self.job.word(), %error, suppressed, "a job failed and will be repeated");
                }
                let pause = self.backoff;
                self.backoff = self.backoff.saturating_mul(2).min(BACKOFF_MAX);
                pause
            }
        }
    }
}

/// Waits, or returns true at once when told to stop.
pub(crate) async fn pause(pause: Duration, stop: &mut watch::Receiver<bool>) -> bool {
    tokio::select! {
        () = tokio::time::sleep(pause) => false,
        // A sender that is gone cannot tell any more: that is a stop too.
        _ = stop.wait_for(|stop| *stop) => true,
    }
}
