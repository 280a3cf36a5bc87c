//! Drain: ended calls from the engine's journal to the store, then trim.
//!
//! Invariants: a record is trimmed only after the store has answered that it has it; a crash between the two repeats
//! the batch, which the store recognises. Batches are bounded; records of all shards share one, because a commit
//! costs the same for one entry as for a thousand.
//! When the store is away: the engine keeps its records, and refuses to end calls only when its own bound is reached.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tollbook_engine::{Cursor, Engine, JournalRecord, Shard, Source};
use tollbook_store::{Appended, BATCH_MAX, Entry, Journal, StoreError, StoreErrorKind};
use tollbook_telemetry::Metrics;
use tollbook_telemetry::labels::{Job, StoreTrouble};
use tollbook_telemetry::log::Every;

use crate::JobError;
use crate::pace::{Pace, pause};
use crate::record::entry;

/// Pause between passes when the journal is empty: long enough that a commit is shared by many calls.
pub const DRAIN_EVERY: Duration = Duration::from_millis(500);
/// Records read or built before other tasks of the worker get their turn.
const STRETCH: usize = 64;
/// Most batches of one call of `once`.
const BATCHES_MAX: usize = 256;
/// How long the last drain may take when the process stops.
const LAST_DRAIN: Duration = Duration::from_secs(10);
/// One warning about unbooked or damaged entries in this time.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// Moves entries from the engine to the store.
pub struct Drain {
    engine: Arc<dyn Engine>,
    journal: Arc<dyn Journal>,
    metrics: Arc<Metrics>,
    /// Which shard comes first; moves on with each batch, so that a busy one that fills it does not come first again
    /// before all others did.
    first: AtomicUsize,
    warn: Every,
}

/// What one call of `once` did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Drained {
    pub inserted: u64,
    /// The store had them already: a crash or an unknown answer came between append and trim.
    pub repeated: u64,
    pub unbooked: u64,
    pub damaged: u64,
    /// There is more than one call takes.
    pub more: bool,
}

/// One shard's part of a batch.
struct Part {
    shard: Shard,
    records: Vec<JournalRecord>,
}

impl Part {
    fn last(&self) -> Option<Cursor> {
        self.records.last().map(|r| r.cursor)
    }
}

impl Drain {
    pub fn new(engine: Arc<dyn Engine>, journal: Arc<dyn Journal>, metrics: Arc<Metrics>) -> Self {
        Self { engine, journal, metrics, first: AtomicUsize::new(0), warn: Every::new(WARN_EVERY) }
    }

    /// Moves everything that waits now.
    pub async fn once(&self) -> Result<Drained, JobError> {
        let mut done = Drained::default();
        for _ in 0..BATCHES_MAX {
            let (parts, more) = self.gather().await?;
            if parts.is_empty() {
                return Ok(done);
            }
            self.batch(&parts, &mut done).await?;
            if !more {
                return Ok(done);
            }
        }
        done.more = true;
        Ok(done)
    }

    /// Moves everything that waits in one shard.
    pub async fn shard(&self, shard: Shard) -> Result<Drained, JobError> {
        let mut done = Drained::default();
        loop {
            let records = self.waiting(shard, BATCH_MAX).await?;
            if records.is_empty() {
                return Ok(done);
            }
            self.batch(&[Part { shard, records }], &mut done).await?;
        }
    }

    /// Repeats `once` until told to stop, then drains once more.
    pub async fn run(&self, mut stop: watch::Receiver<bool>) {
        let mut pace = Pace::new(Job::Drain, DRAIN_EVERY);
        loop {
            let result = self.once().await;
            let more = matches!(result, Ok(Drained { more: true, .. }));
            let wait = pace.after(result.as_ref().map(|_| ()), &self.metrics);
            let wait = if more { Duration::ZERO } else { wait };
            if pause(wait, &mut stop).await {
                break;
            }
        }
        match tokio::time::timeout(LAST_DRAIN, self.once()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::error!(%error, "the last drain failed; the engine keeps what is left"),
            Err(_) => tracing::error!("the last drain took too long; the engine keeps what is left"),
        }
    }

    /// One batch's records, and whether more wait.
    async fn gather(&self) -> Result<(Vec<Part>, bool), JobError> {
        let mut shards = self.engine.shards();
        let first = self.first.fetch_add(1, Ordering::Relaxed);
        let turn = first.checked_rem(shards.len()).unwrap_or(0);
        shards.rotate_left(turn);
        let (mut parts, mut room) = (Vec::new(), BATCH_MAX);
        for shard in shards {
            let records = self.waiting(shard, room).await?;
            room -= records.len().min(room);
            if !records.is_empty() {
                parts.push(Part { shard, records });
            }
        }
        Ok((parts, room == 0))
    }

    /// What waits in a shard, at most `max` records. Calls of this worker get their turn in between.
    async fn waiting(&self, shard: Shard, max: usize) -> Result<Vec<JournalRecord>, JobError> {
        let mut records: Vec<JournalRecord> = Vec::new();
        loop {
            let wanted = max.saturating_sub(records.len()).min(STRETCH);
            let after = records.last().map_or(Cursor(0), |record| record.cursor);
            if wanted == 0 {
                return Ok(records);
            }
            let more = self.engine.journal_read(shard, after, wanted).await?.value;
            let last = more.len() < wanted;
            records.extend(more);
            if last {
                return Ok(records);
            }
            tokio::task::yield_now().await;
        }
    }

    async fn batch(&self, parts: &[Part], done: &mut Drained) -> Result<(), JobError> {
        let mut entries = Vec::new();
        for (at, record) in parts.iter().flat_map(|part| &part.records).enumerate() {
            entries.extend(self.entry(record, &entries).await?);
            if at % STRETCH == STRETCH - 1 {
                tokio::task::yield_now().await;
            }
        }
        match self.append(&entries, done).await {
            Err(JobError::Store(StoreError { kind: StoreErrorKind::Refused(_), .. }))
                if entries.len() > 1 =>
            {
                return self.one_by_one(parts, done).await;
            }
            other => other?,
        }
        for part in parts {
            if let Some(last) = part.last() {
                self.engine.journal_trim(part.shard, last).await?;
            }
        }
        Ok(())
    }

    /// After a refusal: everything up to the entry that the store refuses, shard by shard. That one stays in the engine
    /// and is reported at every pass; it is for people to look at.
    async fn one_by_one(&self, parts: &[Part], done: &mut Drained) -> Result<(), JobError> {
        let mut first_error = None;
        for part in parts {
            for record in &part.records {
                let entry = self.entry(record, &[]).await?;
                match self.append(entry.as_slice(), done).await {
                    Ok(()) => {}
                    Err(error @ JobError::Store(StoreError { kind: StoreErrorKind::Refused(_), .. })) => {
                        tracing::error!(reservation = %record.id, shard = part.shard.0, "the store refuses an entry");
                        first_error.get_or_insert(error);
                        break;
                    }
                    Err(other) => return Err(other),
                }
                self.engine.journal_trim(part.shard, record.cursor).await?;
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// The entry of a record; a correction needs what was written before it, in the store or earlier in this batch.
    async fn entry(&self, record: &JournalRecord, batch: &[Entry]) -> Result<Option<Entry>, JobError> {
        if record.source != Source::Late {
            return Ok(entry(record, &[]));
        }
        let mut earlier = self.journal.by_reservation(record.id).await.inspect_err(|e| self.trouble(e))?;
        for before in batch.iter().filter(|e| e.reservation == record.id) {
            if earlier.iter().all(|e| e.key() != before.key()) {
                earlier.push(before.clone());
            }
        }
        Ok(entry(record, &earlier))
    }

    async fn append(&self, entries: &[Entry], done: &mut Drained) -> Result<(), JobError> {
        let Appended { inserted, repeated } =
            self.journal.append(entries).await.inspect_err(|e| self.trouble(e))?;
        let count = |which: fn(&Entry) -> bool| entries.iter().filter(|e| which(e)).fold(0_u64, |n, _| n + 1);
        // A repeated batch was counted when it was new, unless the process died in between.
        let (unbooked, damaged) = match inserted {
            0 => (0, 0),
            _ => (count(Entry::is_unbooked), count(|e| e.body.flags.damaged)),
        };
        done.inserted += inserted;
        done.repeated += repeated;
        done.unbooked += unbooked;
        done.damaged += damaged;
        self.metrics.journal_drained.add((), inserted);
        self.metrics.journal_repeated.add((), repeated);
        self.metrics.journal_unbooked.add((), unbooked);
        self.metrics.journal_damaged.add((), damaged);
        if unbooked + damaged > 0 && self.warn.pass(tokio::time::Instant::now().into_std()).is_some() {
            let named = entries.iter().find(|e| e.is_unbooked() || e.body.flags.damaged);
            let reservation = named.map(|e| e.reservation.to_string()).unwrap_or_default();
            tracing::warn!(
                unbooked,
                damaged,
                reservation,
                "entries that changed no account or cannot be read"
            );
        }
        Ok(())
    }

    fn trouble(&self, error: &StoreError) {
        let trouble = match error.kind {
            StoreErrorKind::Refused(_) | StoreErrorKind::Taken { .. } => StoreTrouble::Refused,
            StoreErrorKind::Away(_) => StoreTrouble::Away,
            StoreErrorKind::Busy => StoreTrouble::Busy,
            StoreErrorKind::Damaged(_) => StoreTrouble::Damaged,
        };
        self.metrics.journal_store_errors.inc((trouble,));
    }
}

impl std::fmt::Debug for Drain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Drain").finish_non_exhaustive()
    }
}
