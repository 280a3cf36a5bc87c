//! What the holder of a shard's lease does: a new epoch, the journal's sums, and the opening.

use std::sync::PoisonError;
use std::time::Duration;

use tokio::time::Instant;
use tollbook_engine::{PeriodSum, Shard, ShardState};
use tollbook_ledger::Micros;
use tollbook_ledger::units::{REMEMBER, SECOND};
use tollbook_store::{
    EpochCause, PostedSum, Restored, Restorer, ShardEpoch, Stage, StoreError, StoreErrorKind,
};
use tollbook_telemetry::labels::Lost;

use super::{OPENED_AFTER, Recover};
use crate::JobError;

/// Sums of a period are written until this long after its end: so long may a late end still be posted to it.
const KEPT: Micros = REMEMBER + 3_600 * SECOND;
/// Longest calendar period, in seconds: a month with a change of zone.
const PERIOD_MAX: u64 = 32 * 86_400;
/// Sums written before the lease is kept up.
const SUMS_AT_ONCE: usize = 256;
/// Sums without a limit that get a log line.
const LINES_MAX: u64 = 8;

/// What the leader wrote before gateways restore.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Written {
    epoch: u64,
    begun: Instant,
    sums: u64,
    unnamed: u64,
    astray: u64,
}

impl Recover {
    /// Begins an epoch, if no other gateway does. Never whole: gateways restore next.
    /// `state` is what the cause was judged by.
    pub(super) async fn lead(
        &self,
        row: ShardEpoch,
        state: ShardState,
        cause: EpochCause,
    ) -> Result<bool, JobError> {
        let (shard, begun) = (Shard(row.shard), Instant::now());
        let all = cause == EpochCause::All;
        // What is there may take calls of a gateway that has not heard of the loss: one epoch closes it, the next clears it.
        let closes = all && state.epoch > 0;
        let closed = row.epoch.max(state.epoch).max(self.book.epoch(shard)).saturating_add(1);
        let next = closed.saturating_add(u64::from(closes));
        if !self.fleet.lease(row.shard, self.gateway).await? {
            return Ok(false);
        }
        self.belongs().await?;
        if closes {
            // Most of it, before anything is begun: while SQL takes no entries, no epoch grows.
            self.drained(shard).await?;
        }
        if !self.fleet.epoch_begin(self.gateway, row, next, cause).await? {
            // Another gateway was faster; the next look sees what it did.
            self.fleet.lease_end(row.shard, self.gateway).await?;
            return Ok(false);
        }
        tracing::warn!(
            shard = shard.0,
            epoch = next,
            ?cause,
            "the store has lost a part of the book: it is made whole"
        );
        if closes {
            if !self.book.begin(shard, closed, false, state).await?.value {
                return Ok(false);
            }
            self.drained(shard).await?;
        }
        if !self.book.begin(shard, next, all, state).await?.value {
            return Ok(false);
        }
        let mut written = Written { epoch: next, begun, sums: 0, unnamed: 0, astray: 0 };
        if all && !self.write_sums(shard, &mut written).await? {
            return Ok(false);
        }
        self.written.lock().unwrap_or_else(PoisonError::into_inner).insert(row.shard, written);
        self.fleet.epoch_stage(row.shard, next, Stage::Restoring).await?;
        Ok(false)
    }

    /// What ended and survived must be in the sums. What the store refuses stays in the stream, where every drain tells of
    /// it; it does not hold up the shard.
    async fn drained(&self, shard: Shard) -> Result<(), JobError> {
        match self.drain.shard(shard).await {
            Ok(_) | Err(JobError::Store(StoreError { kind: StoreErrorKind::Refused(_), .. })) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Writes the journal's sums; false if another gateway has taken over.
    async fn write_sums(&self, shard: Shard, written: &mut Written) -> Result<bool, JobError> {
        let now = self.book.state(shard).await?.now;
        let over = now.saturating_sub(KEPT) / SECOND;
        let since = over.saturating_sub(PERIOD_MAX);
        let Some(found) = self.fleet.shard_sums(shard.0, written.epoch, since).await? else {
            return Ok(false);
        };
        written.astray = found.astray;
        self.metrics.recovery_astray.set((), found.astray);
        let mut quota = (self.quotas)(false).await?;
        if found.sums.iter().any(|sum| quota(sum.account, sum.period).is_none()) {
            quota = (self.quotas)(true).await?;
        }
        let mut sums = Vec::with_capacity(found.sums.len());
        for sum in found.sums {
            let PostedSum { account, period, amount } = sum;
            match quota(account, period) {
                Some((_, end)) if end <= over => {}
                Some((measure, end)) => {
                    sums.push(PeriodSum { account, measure, period, end, posted: amount });
                }
                None => {
                    written.unnamed = written.unnamed.saturating_add(1);
                    if written.unnamed <= LINES_MAX {
                        let account = format!("{:016x}.{:016x}", account.subject.0, account.name);
                        tracing::warn!(
                            shard = shard.0,
                            account,
                            period,
                            amount,
                            "no limit names a sum of the journal: it is left out"
                        );
                    }
                }
            }
        }
        drop(quota);
        self.metrics.recovery_unnamed.add((), written.unnamed);
        for (number, some) in sums.chunks(SUMS_AT_ONCE).enumerate() {
            // Most shards have few sums, and the lease is young.
            let held = number == 0 || self.fleet.lease(shard.0, self.gateway).await?;
            if !held || !self.book.post(shard, written.epoch, some).await?.value {
                return Ok(false);
            }
        }
        written.sums = u64::try_from(sums.len()).unwrap_or(u64::MAX);
        Ok(true)
    }

    /// Opens a shard whose gateways have restored, if this one holds the lease or nobody does: the leader can tell most.
    pub(super) async fn open(&self, row: ShardEpoch) -> Result<bool, JobError> {
        let shard = Shard(row.shard);
        let restorers = self.fleet.restorers(row.shard, row.epoch).await?;
        let missing = restorers.iter().filter(|one| one.awaited && one.restored.is_none()).count();
        if missing > 0 && row.age < OPENED_AFTER {
            return Ok(false);
        }
        if !self.fleet.lease(row.shard, self.gateway).await? {
            return Ok(false);
        }
        if !self.book.open(shard, row.epoch).await?.value {
            return self.begin_anew(row).await;
        }
        self.lost.whole(shard);
        if self.fleet.epoch_stage(row.shard, row.epoch, Stage::Open).await? {
            self.tell(row, &restorers, missing);
        } else {
            self.fleet.lease_end(row.shard, self.gateway).await?;
        }
        Ok(true)
    }

    /// What was being made whole is lost, or nobody goes on with it: another epoch, judged by what is there now.
    pub(super) async fn begin_anew(&self, row: ShardEpoch) -> Result<bool, JobError> {
        let state = self.book.state(Shard(row.shard)).await?.value;
        self.lead(row, state, self.cause(row, &state).await?).await
    }

    /// What was restored, and what is missing.
    fn tell(&self, row: ShardEpoch, restorers: &[Restorer], missing: usize) {
        let cause = match row.cause {
            EpochCause::First => Lost::First,
            EpochCause::Tail => Lost::Tail,
            EpochCause::All => Lost::All,
        };
        self.metrics.recovery_opened.inc((cause,));
        if cause == Lost::First {
            // Somebody else went on with it; nothing was lost.
            return;
        }
        self.metrics.recovery_missing.add((), u64::try_from(missing).unwrap_or(u64::MAX));
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner).remove(&row.shard);
        let written = written.filter(|written| written.epoch == row.epoch);
        let took = written.map_or(row.age, |written| written.begun.elapsed());
        let (sums, unnamed, astray) =
            written.map_or((0, 0, 0), |written| (written.sums, written.unnamed, written.astray));
        let restored =
            restorers.iter().filter_map(|one| one.restored).fold(Restored::default(), |sum, one| Restored {
                held: sum.held.saturating_add(one.held),
                ended: sum.ended.saturating_add(one.ended),
                failed: sum.failed.saturating_add(one.failed),
            });
        let Restored { held, ended, failed } = restored;
        let took_ms = u64::try_from(took.min(Duration::from_hours(1)).as_millis()).unwrap_or(u64::MAX);
        tracing::warn!(
            shard = row.shard,
            epoch = row.epoch,
            cause = ?row.cause,
            sums,
            sums_unnamed = unnamed,
            sums_astray = astray,
            calls_under_way = held,
            calls_ended = ended,
            calls_not_taken = failed,
            gateways_missing = missing,
            took_ms,
            "a lost shard is whole again and open"
        );
    }
}
