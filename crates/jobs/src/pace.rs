//! When a job runs again: at its own interval, sooner when there is more, later when something is away.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tollbook_telemetry::Metrics;
use tollbook_telemetry::labels::{Job, Run};

use crate::JobError;

/// First pause after a failure; it doubles up to the longest.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// One log line per failing job and error text in this time. With the longest pause it stays below a minute.
const LOG_EVERY: Duration = Duration::from_secs(30);
/// Most lines of one job in this time, should every error have a text of its own.
const LOG_TEXTS_MAX: usize = 8;

/// A job's pace and how it tells of failures.
#[derive(Debug)]
pub(crate) struct Pace {
    job: Job,
    interval: Duration,
    backoff: Duration,
    log: EveryText,
}

impl Pace {
    pub(crate) fn new(job: Job, interval: Duration) -> Self {
        Self { job, interval, backoff: BACKOFF_FIRST, log: EveryText::default() }
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
                let text = error.to_string();
                if let Some(suppressed) = self.log.pass(&text, Instant::now()) {
                    tracing::error!(
                        job = self.job.word(),
                        error = text,
                        suppressed,
                        "a job failed and will be repeated"
                    );
                }
                let pause = self.backoff;
                self.backoff = self.backoff.saturating_mul(2).min(BACKOFF_MAX);
                pause
            }
        }
    }
}

/// Lets one line per text through in a while and counts the others: what went wrong first must not hide what goes
/// wrong since.
#[derive(Debug, Default)]
struct EveryText {
    told: BTreeMap<String, Instant>,
    suppressed: u64,
}

impl EveryText {
    /// `Some(suppressed)` if a line may be written now; `suppressed` were not since the last one, of any text.
    fn pass(&mut self, text: &str, now: Instant) -> Option<u64> {
        self.told.retain(|_, at| now.saturating_duration_since(*at) < LOG_EVERY);
        if self.told.contains_key(text) || self.told.len() >= LOG_TEXTS_MAX {
            self.suppressed = self.suppressed.saturating_add(1);
            return None;
        }
        self.told.insert(text.to_owned(), now);
        Some(std::mem::take(&mut self.suppressed))
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{BACKOFF_MAX, EveryText, LOG_EVERY, LOG_TEXTS_MAX};

    #[test]
    fn a_second_error_is_told_while_the_first_is_held_back() {
        let (mut log, start) = (EveryText::default(), Instant::now());
        assert_eq!(log.pass("full", start), Some(0));
        assert_eq!(log.pass("full", start), None);
        assert_eq!(log.pass("stuck", start + Duration::from_secs(1)), Some(1));
        assert_eq!(log.pass("stuck", start + LOG_EVERY), None);
        assert_eq!(log.pass("full", start + LOG_EVERY), Some(1));
    }

    #[test]
    fn an_error_that_stays_is_told_at_least_once_a_minute() {
        let (mut log, start) = (EveryText::default(), Instant::now());
        let mut told = start;
        for tries in 0..60 {
            let now = start + BACKOFF_MAX * tries;
            if log.pass("full", now).is_some() {
                assert!(now.duration_since(told) <= Duration::from_secs(60));
                told = now;
            }
        }
        assert!(start + BACKOFF_MAX * 60 - told <= Duration::from_secs(60));
    }

    #[test]
    fn errors_that_all_differ_do_not_flood_the_log() {
        let (mut log, start) = (EveryText::default(), Instant::now());
        let lines = |log: &mut EveryText, at| {
            (0..100).filter(|i| log.pass(&format!("error {i}"), at).is_some()).count()
        };
        assert_eq!(lines(&mut log, start), LOG_TEXTS_MAX);
        assert_eq!(lines(&mut log, start + LOG_EVERY), LOG_TEXTS_MAX);
    }
}
