//! The journal's days: notes where it is each day, makes room for the days to come, and lets old ones go.
//!
//! Invariants: of the gateways that share a journal one does it, as long as it lives; without a number of days to keep
//! nothing goes. What goes is bounded a turn, with pauses, so that entries are written in between.
//! When the store is away: it is told and tried again at the next turn; old rows stay a little longer.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tollbook_ledger::units::SECOND;
use tollbook_store::{GatewayId, JobLeases, JournalDays};
use tollbook_telemetry::Metrics;
use tollbook_telemetry::labels::Job;

use crate::JobError;
use crate::pace::{Pace, pause};

const JOB: &str = "journal_days";
/// How often the days are looked at.
pub const DAYS_EVERY: Duration = Duration::from_mins(10);
/// Another gateway waits so long for one that did it and fell silent.
const LEASE: Duration = Duration::from_mins(15);
/// Parts that go at one turn, and the pause between two.
const PARTS_MAX: u32 = 10_000;
const PART_PAUSE: Duration = Duration::from_millis(50);

/// Looks after the journal's days.
pub struct Days {
    journal: Arc<dyn JournalDays>,
    leases: Arc<dyn JobLeases>,
    gateway: GatewayId,
    /// `None`: for ever.
    keep: Option<u32>,
    metrics: Arc<Metrics>,
}

impl Days {
    pub fn new(
        journal: Arc<dyn JournalDays>,
        leases: Arc<dyn JobLeases>,
        (gateway, keep): (GatewayId, Option<u32>),
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { journal, leases, gateway, keep, metrics }
    }

    /// Looks at them until `stop` turns true.
    pub async fn run(&self, mut stop: watch::Receiver<bool>) {
        let mut pace = Pace::new(Job::Days, DAYS_EVERY);
        loop {
            let result = self.once(&stop).await;
            let wait = pace.after(result.as_ref().map(|_| ()), &self.metrics);
            if pause(wait, &mut stop).await {
                break;
            }
        }
        if let Err(error) = self.leases.job_leave(JOB, self.gateway).await {
            tracing::debug!(%error, "the lease of the journal's days ends by itself");
        }
    }

    /// One turn; how many rows went, as far as the store knows.
    pub async fn once(&self, stop: &watch::Receiver<bool>) -> Result<u64, JobError> {
        let mut entries = 0_u64;
        if self.leases.job_lease(JOB, self.gateway, LEASE).await? {
            if !self.journal.day_begins().await? {
                tracing::warn!(
                    "the journal's table has too many rows that are of no day yet, or too many days; what is written from now \
                     on stands together and goes together"
                );
            }
            if let Some(keep) = self.keep {
                entries = self.let_go(keep, stop).await?;
            }
        }
        let since = self.journal.kept_since().await?;
        self.metrics.journal_kept_since_unix.set((), since / SECOND);
        Ok(entries)
    }

    async fn let_go(&self, keep: u32, stop: &watch::Receiver<bool>) -> Result<u64, JobError> {
        let mut entries = 0_u64;
        for part in 0..PARTS_MAX {
            if *stop.borrow() {
                break;
            }
            if part > 0 {
                tokio::time::sleep(PART_PAUSE).await;
            }
            // Long deletions keep the lease.
            if !self.leases.job_lease(JOB, self.gateway, LEASE).await? {
                break;
            }
            let gone = self.journal.let_go(keep).await?;
            entries = entries.saturating_add(gone.entries);
            self.metrics.journal_rows_gone.add((), gone.entries);
            if !gone.more {
                break;
            }
        }
        if entries > 0 {
            tracing::info!(
                entries,
                keep_days = keep,
                "old days of the journal have gone; totals and sums stay"
            );
        }
        Ok(entries)
    }
}

impl std::fmt::Debug for Days {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Days").field("keep", &self.keep).finish_non_exhaustive()
    }
}
