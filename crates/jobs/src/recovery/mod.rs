//! Recovery: a shard whose store has lost something is made whole again, from the journal and from what gateways know.
//!
//! One gateway, the holder of the shard's lease in SQL, begins a new epoch, writes the journal's sums if everything is lost,
//! and opens the shard when every gateway that lived has restored its calls, or after [`OPENED_AFTER`].
//! Invariants: an epoch is in SQL before it is in the store; a shard is open in the store before it is in SQL; sums belong to
//! one epoch, and whoever goes on for another that died before they stood begins anew. Each step may be repeated, and a step
//! of a gateway that was overtaken changes nothing. Nothing begins in a book that gateways of another journal keep.
//! When SQL is away: nothing begins, a lost shard takes no call, and what is under way goes on where it was.

mod lead;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::sync::watch;
use tokio::time::Instant;
use tollbook_engine::{EngineError, ErrorKind, LostShards, Recovery, Shard, ShardState};
use tollbook_ledger::{AccountId, Measure};
use tollbook_store::{BEAT_EVERY, EpochCause, Fleet, GatewayId, Restored, ShardEpoch, Stage};
use tollbook_telemetry::Metrics;
use tollbook_telemetry::labels::{Job, Lost};

use crate::pace::{Pace, pause};
use crate::{Drain, JobError};

/// How often SQL is asked whether an epoch has moved.
pub const WATCH_EVERY: Duration = Duration::from_millis(250);
/// How often the store is asked whether it has lost what was open.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// A shard is opened this long after its gateways could begin to restore, whoever is missing.
pub const OPENED_AFTER: Duration = Duration::from_secs(10);
/// Shards looked after at the same time.
const AT_ONCE: usize = 16;

/// Vouchers on their way back into the book.
pub type RestoreAnswer<'a> = Pin<Box<dyn Future<Output = Result<Restored, JobError>> + Send + 'a>>;

/// What this gateway itself knows of its calls.
pub trait Part: Send + Sync + 'static {
    /// The epoch for which this gateway has restored its calls of a shard; 0: none.
    fn restored(&self, shard: Shard) -> u64;
    /// Restores them for a newer one.
    fn restore(&self, epoch: ShardEpoch) -> RestoreAnswer<'_>;
    /// Forgets what the journal has.
    fn forget(&self) -> Pin<Box<dyn Future<Output = Result<(), JobError>> + Send + '_>>;
    /// So many gateways live, this one included.
    fn lives(&self, gateways: u32);
}

/// What the accounts of quotas count, and where a period that starts at a second ends, by all limits that are or were;
/// with `true`, also by those that were made a moment ago.
pub type QuotaPeriods = Arc<dyn Fn(bool) -> QuotaAnswer + Send + Sync>;
/// An answer that may have to be looked up in the store.
pub type QuotaAnswer = Pin<Box<dyn Future<Output = Result<QuotaPeriod, JobError>> + Send>>;
/// By account and start of the period.
pub type QuotaPeriod = Box<dyn Fn(AccountId, u64) -> Option<(Measure, u64)> + Send + Sync>;

/// Makes lost shards whole.
pub struct Recover {
    gateway: GatewayId,
    book: Arc<dyn Recovery>,
    fleet: Arc<dyn Fleet>,
    drain: Arc<Drain>,
    part: Arc<dyn Part>,
    quotas: QuotaPeriods,
    lost: Arc<LostShards>,
    metrics: Arc<Metrics>,
    looked: Mutex<Option<Instant>>,
    /// What this gateway has restored and not yet told SQL, by shard and epoch.
    untold: Mutex<BTreeMap<(u8, u64), Restored>>,
    /// What this gateway wrote as the leader, to be told when the shard opens.
    written: Mutex<BTreeMap<u8, lead::Written>>,
}

impl Recover {
    pub fn new(
        (gateway, book, fleet): (GatewayId, Arc<dyn Recovery>, Arc<dyn Fleet>),
        drain: Arc<Drain>,
        part: Arc<dyn Part>,
        quotas: QuotaPeriods,
        lost: Arc<LostShards>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            gateway,
            book,
            fleet,
            drain,
            part,
            quotas,
            lost,
            metrics,
            looked: Mutex::default(),
            untold: Mutex::default(),
            written: Mutex::default(),
        }
    }

    /// Looks after every shard that is lost, being made whole, or was made whole without this gateway: whether such are under
    /// way, and the first trouble with one of them.
    pub async fn once(&self) -> (bool, Result<(), JobError>) {
        let rows = match self.fleet.epochs().await {
            Ok(rows) => rows,
            Err(error) => return (false, Err(error.into())),
        };
        let rows: BTreeMap<u8, ShardEpoch> = rows.into_iter().map(|row| (row.shard, row)).collect();
        let mut shards: BTreeSet<u8> = self.lost.list().into_iter().map(|shard| shard.0).collect();
        let look = self.is_time_to_look();
        for row in rows.values() {
            let shard = Shard(row.shard);
            let moved = self.part.restored(shard) < row.epoch.max(self.book.epoch(shard));
            if look || moved || row.stage != Stage::Open {
                shards.insert(row.shard);
            }
        }
        // Others wait for what this gateway restores; what it begins makes others wait.
        let restores = |shard: &u8| rows.get(shard).is_some_and(|row| row.stage == Stage::Restoring);
        let (first, then): (Vec<u8>, Vec<u8>) = shards.into_iter().partition(restores);
        let mut mending = stream::iter(first.into_iter().chain(then))
            .map(|shard| self.mend(shard, rows.get(&shard).copied()))
            .buffer_unordered(AT_ONCE);
        let (mut trouble, mut under_way) = (None, false);
        while let Some(result) = mending.next().await {
            match result {
                Ok(whole) => under_way |= !whole,
                Err(error) => drop(trouble.get_or_insert(error)),
            }
        }
        let lost = self.lost.list().len();
        self.metrics.recovery_shards_lost.set((), u64::try_from(lost).unwrap_or(u64::MAX));
        (under_way, trouble.map_or(Ok(()), Err))
    }

    /// Says that this gateway lives, forgets what the journal has, and looks after shards, until told to stop.
    pub async fn run(&self, stop: watch::Receiver<bool>) {
        tokio::join!(self.beat(stop.clone()), self.forget(stop.clone()), self.watch(stop));
        if let Err(error) = self.fleet.leave(self.gateway).await {
            tracing::warn!(%error, "the other gateways could not be told that this one ends");
        }
    }

    async fn watch(&self, mut stop: watch::Receiver<bool>) {
        let mut pace = Pace::new(Job::Recovery, WATCH_EVERY);
        loop {
            let (under_way, result) = self.once().await;
            // The pause after trouble is one shard's; others under way do not wait for it.
            let wait = pace.after(result.as_ref().copied(), &self.metrics).min(LOOK_EVERY);
            let wait = if under_way { wait.min(WATCH_EVERY / 5) } else { wait };
            tokio::select! {
                stopped = pause(wait, &mut stop) => if stopped { return },
                () = self.lost.next() => {}
            }
        }
    }

    async fn beat(&self, mut stop: watch::Receiver<bool>) {
        let mut pace = Pace::new(Job::Beat, BEAT_EVERY);
        loop {
            let result = self.fleet.beat(self.gateway).await.map_err(JobError::from);
            if let Ok(gateways) = result {
                self.metrics.recovery_gateways.set((), u64::from(gateways));
                self.part.lives(gateways);
            }
            let wait = pace.after(result.as_ref().map(|_| ()), &self.metrics).min(BEAT_EVERY);
            if pause(wait, &mut stop).await {
                return;
            }
        }
    }

    async fn forget(&self, mut stop: watch::Receiver<bool>) {
        let mut pace = Pace::new(Job::Vouchers, BEAT_EVERY);
        loop {
            let result = self.part.forget().await;
            let wait = pace.after(result.as_ref().copied(), &self.metrics);
            if pause(wait, &mut stop).await {
                return;
            }
        }
    }

    fn is_time_to_look(&self) -> bool {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let is_time = looked.is_none_or(|last| now.saturating_duration_since(last) >= LOOK_EVERY);
        if is_time {
            *looked = Some(now);
        }
        is_time
    }

    /// One step for one shard, or as many as go without waiting; whether it is whole.
    async fn mend(&self, shard: u8, row: Option<ShardEpoch>) -> Result<bool, JobError> {
        let Some(row) = row else { return self.first_use(shard).await };
        match row.stage {
            Stage::Open => self.look(row).await,
            Stage::Begun if row.cause == EpochCause::First => self.first_open(row).await,
            // Somebody writes its sums; if nobody does any more, they are begun anew.
            Stage::Begun => self.begin_anew(row).await,
            Stage::Restoring => self.restore(row).await,
        }
    }

    /// A shard that SQL does not know: its first use, unless the journal knows its calls.
    async fn first_use(&self, shard: u8) -> Result<bool, JobError> {
        let state = self.book.state(Shard(shard)).await?.value;
        let none = ShardEpoch {
            shard,
            epoch: 0,
            cause: EpochCause::First,
            stage: Stage::Begun,
            watermark: 0,
            age: Duration::ZERO,
        };
        if state.epoch == 0 && self.fleet.first_epoch(shard).await? {
            return self.first_open(ShardEpoch { epoch: 1, ..none }).await;
        }
        // Another gateway was first, or its epoch is gone from SQL alone.
        if self.fleet.epochs().await?.iter().any(|row| row.shard == shard) {
            return Ok(false);
        }
        let cause = if state.epoch == 0 { EpochCause::All } else { self.cause(none, &state).await? };
        self.lead(none, state, cause).await
    }

    /// Opens a shard that nothing was ever booked in.
    async fn first_open(&self, row: ShardEpoch) -> Result<bool, JobError> {
        let shard = Shard(row.shard);
        // Asked before the store: an entry that is there while the shard is still closed is not of its first calls.
        let has_entries = self.fleet.newest_end(row.shard).await?.is_some();
        let state = self.book.state(shard).await?.value;
        let ours = self.is_of(row, &state);
        // Whoever was to say so in SQL may have died after the first calls: then it is open, or lost.
        let is_open = ours && !state.closed;
        let is_older = self.book.epoch(shard) > row.epoch;
        if !is_open && (!ours && state.epoch > 0 || is_older || has_entries) {
            return self.lead(row, state, self.cause(row, &state).await?).await;
        }
        self.belongs().await?;
        if !self.book.begin(shard, row.epoch, false, state).await?.value {
            return Ok(false);
        }
        self.part.restore(row).await?;
        // Before it takes a call: a shard that is begun by SQL and empty never had one.
        if !self.fleet.epoch_stage(row.shard, row.epoch, Stage::Restoring).await? {
            return Ok(false);
        }
        if self.book.open(shard, row.epoch).await?.value {
            self.lost.whole(shard);
            self.fleet.epoch_stage(row.shard, row.epoch, Stage::Open).await?;
            self.metrics.recovery_opened.inc((Lost::First,));
            return Ok(true);
        }
        Ok(false)
    }

    /// A shard that is open by SQL: whether the store says so too.
    async fn look(&self, row: ShardEpoch) -> Result<bool, JobError> {
        let shard = Shard(row.shard);
        let state = self.book.state(shard).await?.value;
        if self.is_of(row, &state) && !state.closed {
            if self.part.restored(shard) < row.epoch {
                // It was made whole without this gateway, which may know calls that nobody restored.
                let restored = self.part.restore(row).await?;
                if restored != Restored::default() {
                    let (shard, epoch) = (shard.0, row.epoch);
                    tracing::warn!(shard, epoch, ?restored, "restored late what a lost shard lacked");
                }
                self.untold(row, restored);
            }
            self.report(row).await?;
            self.lost.whole(shard);
            return Ok(true);
        }
        self.lost.found(shard);
        // SQL may have moved on since it was read: the next look sees it.
        self.lead(row, state, self.cause(row, &state).await?).await
    }

    /// Restores this gateway's calls and reports; opens the shard if it is the one to do so.
    async fn restore(&self, row: ShardEpoch) -> Result<bool, JobError> {
        let shard = Shard(row.shard);
        self.lost.found(shard);
        let state = self.book.state(shard).await?.value;
        if !self.is_of(row, &state) {
            // Lost once more; who has restored already would not meet it.
            return self.begin_anew(row).await;
        }
        if self.part.restored(shard) < row.epoch {
            match self.part.restore(row).await {
                Ok(restored) => self.untold(row, restored),
                // Lost once more.
                Err(JobError::Engine(EngineError { kind: ErrorKind::Lost(_), .. })) => {
                    return self.begin_anew(row).await;
                }
                Err(error) => return Err(error),
            }
        }
        self.report(row).await?;
        self.open(row).await
    }

    /// An error if gateways of another journal keep the book: each fleet would take the other's epochs for a loss.
    async fn belongs(&self) -> Result<(), JobError> {
        let ours = self.book.belongs(self.fleet.id().await?).await?.value;
        if ours { Ok(()) } else { Err(JobError::Foreign) }
    }

    /// The store is in this epoch, as SQL knows it, and so is what this gateway was told.
    fn is_of(&self, row: ShardEpoch, state: &ShardState) -> bool {
        let newest = self.book.epoch(Shard(row.shard));
        state.epoch == row.epoch && state.same_server && newest <= row.epoch
    }

    fn untold(&self, row: ShardEpoch, restored: Restored) {
        let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        untold.retain(|(shard, _), _| *shard != row.shard);
        untold.insert((row.shard, row.epoch), restored);
    }

    /// Tells SQL what was restored, once it takes it.
    async fn report(&self, row: ShardEpoch) -> Result<(), JobError> {
        let place = (row.shard, row.epoch);
        let untold = || self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(restored) = untold().get(&place).copied() else { return Ok(()) };
        self.fleet.report(row.shard, row.epoch, self.gateway, restored).await?;
        untold().remove(&place);
        Ok(())
    }

    /// Judges by what the journal and the store say: everything is lost if the store has an older epoch than SQL or this
    /// gateway, or if the journal has an entry of the shard that ended later than the last write that is there.
    async fn cause(&self, row: ShardEpoch, state: &ShardState) -> Result<EpochCause, JobError> {
        let newest = self.fleet.newest_end(row.shard).await?.unwrap_or(0);
        let all = state.epoch < row.epoch.max(self.book.epoch(Shard(row.shard)))
            || newest > state.seen
            || row.cause == EpochCause::All && row.stage != Stage::Open;
        Ok(if all { EpochCause::All } else { EpochCause::Tail })
    }
}

impl std::fmt::Debug for Recover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recover").field("gateway", &self.gateway).finish_non_exhaustive()
    }
}
