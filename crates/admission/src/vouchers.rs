//! Vouchers: what this gateway knows of its calls, for a book whose store can lose them.
//!
//! Invariants: every acknowledged reserve has a voucher until the call gave everything back, or the journal's store has its
//! entry; what makes a call end is kept with it. A call of a local book has one from the moment when the book takes its end.
//! Restoring may be repeated: a book takes each (id, attempt) once.
//! An entry counts as summed only up to the watermark of the sums: what a drain wrote later is posted again by its voucher, also
//! where this gateway never heard that the call's end was taken.
//! Until a shard's vouchers are restored for its newest epoch, no end of a call of that shard is sent: the book would not
//! know the call yet. What a book of an older epoch acknowledged counts for nothing: an end is sent again, a call admitted
//! so is restored after the others.
//! An end that the book does not take as a voucher is given back to be settled once more: the book knows the call, or
//! journals its end as `unbooked`.
//! Beyond the bound in memory a voucher is kept on disk (`overflow`), where there is a folder. Beyond that bound too it is
//! not kept, which is counted and told. After a loss the hold of such a call is missing, and its end is journaled as
//! `unbooked`; an end of the last seconds that had not reached the journal is missing.
//! Nothing of this exists where the book cannot be lost.

use std::mem::size_of;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ahash::{AHashMap, AHashSet};
use futures_util::{StreamExt, stream};
use tollbook_engine::{
    Claim, EngineError, ErrorKind, LostShards, RESTORED_ONCE, Receipt, Recovery, ReserveCall, RestoreCall,
    RestoredState, SEQ_END, SEQ_LATE, Shard,
};
use tollbook_ledger::{
    Attempt, End, Leg, LegReceipt, Limit, Measure, Met, Micros, ReleaseWhy, ReservationId, Shape,
};
use tollbook_store::{
    BATCH_MAX, Entry, EntryKey, EpochCause, Fleet, Origin, Restored, ShardEpoch, Side, StoreError,
};
use tollbook_telemetry::Metrics;
use tollbook_telemetry::log::Every;

use crate::admit::is_of_pool;
use crate::bytes::Reader;
use crate::outcome::Posting;
use crate::overflow::{Extent, Overflow};
use crate::restoration;
use crate::settle;
use crate::spool::{self, Spooled};
use crate::time::EngineTime;
use crate::verb;

/// How often the journal's store is asked for entries.
pub const VOUCHERS_ASKED_EVERY: Duration = Duration::from_secs(2);
/// Vouchers restored at the same time.
const AT_ONCE: usize = 64;
/// Longest that one may take.
const DEADLINE: Duration = Duration::from_secs(2);
/// One line about what is not kept in this time.
const WARN_EVERY: Duration = Duration::from_secs(10);
const SHARDS: usize = 256;

/// Bounds of what is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VoucherBounds {
    /// Bytes of memory. What finds no room there is on disk, as far as the spool may be long.
    pub memory_max: u64,
    /// Longest a call waits for its lost shard before it is refused.
    pub wait: Duration,
}

impl Default for VoucherBounds {
    fn default() -> Self {
        Self { memory_max: 128 << 20, wait: Duration::from_millis(500) }
    }
}

/// A book that can lose what it acknowledged, and what makes it whole again.
#[derive(Clone)]
pub struct Losable {
    pub engine: Arc<dyn Recovery>,
    pub fleet: Arc<dyn Fleet>,
    /// Where lost shards are told.
    pub lost: Arc<LostShards>,
}

impl std::fmt::Debug for Losable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Losable").finish_non_exhaustive()
    }
}

/// What kept vouchers from being restored, or asked for.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VoucherError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

type Place = (ReservationId, Attempt);
type Shelf = AHashMap<Place, Kept>;

/// A voucher, or where it lies.
#[derive(Clone)]
enum Kept {
    Here(Voucher),
    There(Spilled),
}

/// A voucher on disk.
#[derive(Clone, Copy)]
struct Spilled {
    side: Side,
    call: Extent,
    end: Option<SpilledEnd>,
}

#[derive(Clone, Copy)]
struct SpilledEnd {
    posting: Extent,
    at: Micros,
    taken: Micros,
    seq: u16,
}

impl Kept {
    fn side(&self) -> Side {
        match self {
            Self::Here(voucher) => voucher.side,
            Self::There(spilled) => spilled.side,
        }
    }

    /// Of the entry that its end wrote, if it has ended.
    fn seq(&self) -> Option<u16> {
        match self {
            Self::Here(voucher) => voucher.end.as_ref().map(|end| end.seq),
            Self::There(spilled) => spilled.end.map(|end| end.seq),
        }
    }
}

#[derive(Clone)]
struct Voucher {
    side: Side,
    asked: Arc<ReserveCall>,
    receipt: Arc<Receipt>,
    end: Option<Ended>,
}

/// The end of a call as the book acknowledged it.
#[derive(Clone)]
struct Ended {
    posting: Arc<Posting>,
    /// Engine time.
    at: Micros,
    /// Engine time at which the book took it, the last time.
    taken: Micros,
    /// Of the entry it wrote.
    seq: u16,
}

/// The vouchers of one gateway.
pub struct Vouchers {
    engine: Arc<dyn Recovery>,
    fleet: Arc<dyn Fleet>,
    pub(crate) lost: Arc<LostShards>,
    time: Arc<EngineTime>,
    metrics: Arc<Metrics>,
    pub(crate) bounds: VoucherBounds,
    shelves: Box<[Mutex<Shelf>]>,
    /// The epoch that each shard's vouchers were restored for.
    restored: Box<[AtomicU64]>,
    restoring: Box<[AtomicBool]>,
    /// Something of the shard is not restored though its epoch was: it failed, or came from a lost book meanwhile.
    missed: Box<[AtomicBool]>,
    bytes: AtomicU64,
    count: AtomicU64,
    overflow: Option<Overflow>,
    warn: Every,
}

impl Vouchers {
    pub(crate) fn new(
        book: Losable,
        time: &Arc<EngineTime>,
        metrics: &Arc<Metrics>,
        bounds: VoucherBounds,
        overflow: Option<Overflow>,
    ) -> Self {
        let Losable { engine, fleet, lost } = book;
        let (time, metrics) = (Arc::clone(time), Arc::clone(metrics));
        Self {
            engine,
            fleet,
            lost,
            time,
            metrics,
            bounds,
            shelves: (0..SHARDS).map(|_| Mutex::default()).collect(),
            restored: (0..SHARDS).map(|_| AtomicU64::new(0)).collect(),
            restoring: (0..SHARDS).map(|_| AtomicBool::new(false)).collect(),
            missed: (0..SHARDS).map(|_| AtomicBool::new(false)).collect(),
            bytes: AtomicU64::new(0),
            count: AtomicU64::new(0),
            overflow,
            warn: Every::new(WARN_EVERY),
        }
    }

    /// A reserve was acknowledged.
    pub(crate) fn admitted(&self, side: Side, asked: ReserveCall, receipt: &Receipt) {
        let (shard, epoch) = (asked.shard, receipt.epoch);
        let (asked, receipt) = (Arc::new(asked), Arc::new(receipt.clone()));
        let mut shelf = self.shelf(shard);
        self.keep(&mut shelf, Voucher { side, asked, receipt, end: None });
        // With the shelf locked: what is restored for a newer epoch either has it, or is restored once more.
        if epoch < self.engine.epoch(shard) {
            set(&self.missed, shard, true);
        }
    }

    fn keep(&self, shelf: &mut Shelf, voucher: Voucher) {
        let place = (voucher.asked.reserve.id, voucher.asked.reserve.attempt);
        if let Some(old) = shelf.remove(&place) {
            self.gone(&old);
        }
        let bytes = size(&voucher);
        let held = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let kept = if held.saturating_add(bytes) > self.bounds.memory_max {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            let Some(spilled) = self.spill(&voucher) else { return self.unkept() };
            Kept::There(spilled)
        } else {
            Kept::Here(voucher)
        };
        self.count.fetch_add(1, Ordering::Relaxed);
        shelf.insert(place, kept);
    }

    /// Nothing where there is no room on disk either, or no disk.
    fn spill(&self, voucher: &Voucher) -> Option<Spilled> {
        let (asked, receipt) = (ReserveCall::clone(&voucher.asked), Receipt::clone(&voucher.receipt));
        let state = RestoredState::Held { sent: false };
        let mut bytes = Vec::new();
        restoration::put(&mut bytes, &RestoreCall { asked, receipt, age: 0, state });
        let call = self.put(&bytes)?;
        let mut spilled = Spilled { side: voucher.side, call, end: None };
        if let Some(end) = &voucher.end {
            spilled.end = self.spill_end(end);
            if spilled.end.is_none() {
                self.unspill(&spilled);
                return None;
            }
        }
        Some(spilled)
    }

    fn spill_end(&self, end: &Ended) -> Option<SpilledEnd> {
        let Ended { posting, at, taken, seq } = end;
        let posting = self.put(&spool::encode(&Spooled { posting: Posting::clone(posting), ended: *at }))?;
        Some(SpilledEnd { posting, at: *at, taken: *taken, seq: *seq })
    }

    fn put(&self, bytes: &[u8]) -> Option<Extent> {
        match self.overflow.as_ref()?.put(bytes) {
            Ok(extent) => extent,
            Err(error) => {
                self.disk_fails(&error);
                None
            }
        }
    }

    fn disk_fails(&self, error: &std::io::Error) {
        if let Some(suppressed) = self.warn.pass(tokio::time::Instant::now().into_std()) {
            tracing::error!(suppressed, %error, "what the book may lose cannot be kept on disk");
        }
    }

    fn unspill(&self, spilled: &Spilled) {
        if let Some(overflow) = &self.overflow {
            overflow.remove(spilled.call);
            if let Some(end) = spilled.end {
                overflow.remove(end.posting);
            }
        }
    }

    /// What is kept, as it was; nothing if it was forgotten meanwhile, or cannot be read.
    fn whole(&self, shard: Shard, place: Place, kept: Kept) -> Option<Voucher> {
        let spilled = match kept {
            Kept::Here(voucher) => return Some(voucher),
            Kept::There(spilled) => spilled,
        };
        match self.read(&spilled) {
            Ok(voucher) => Some(voucher),
            Err(error) => {
                if self.shelf(shard).contains_key(&place) {
                    self.metrics.voucher_unkept.inc(());
                    self.disk_fails(&error);
                }
                None
            }
        }
    }

    fn read(&self, spilled: &Spilled) -> std::io::Result<Voucher> {
        let odd = || std::io::Error::from(std::io::ErrorKind::InvalidData);
        let overflow = self.overflow.as_ref().ok_or_else(odd)?;
        let call = overflow.get(spilled.call)?;
        let call = restoration::take(&mut Reader { rest: &call }).ok_or_else(odd)?;
        let mut end = None;
        if let Some(SpilledEnd { posting, at, taken, seq }) = spilled.end {
            let (spooled, _) = spool::decode(&overflow.get(posting)?).ok_or_else(odd)?;
            end = Some(Ended { posting: Arc::new(spooled.posting), at, taken, seq });
        }
        let (asked, receipt) = (Arc::new(call.asked), Arc::new(call.receipt));
        Ok(Voucher { side: spilled.side, asked, receipt, end })
    }

    fn unkept(&self) {
        self.metrics.voucher_unkept.inc(());
        if let Some(suppressed) = self.warn.pass(tokio::time::Instant::now().into_std()) {
            let bytes_max = self.bounds.memory_max;
            tracing::error!(
                suppressed,
                bytes_max,
                "a call that the book may lose has no room to be remembered"
            );
        }
    }

    /// A book of this epoch acknowledged the end of a call, which met it so and was `age` old then. False if that book is
    /// lost by now, or did not know the call yet: the end is to be sent again.
    pub(crate) fn ended(&self, posting: &Arc<Posting>, age: Micros, (epoch, before): (u64, Met)) -> bool {
        let claim = posting.claim();
        // Locked before the epoch is looked at: whoever restores for a newer one has told it before it reads the shelf.
        let mut shelf = self.shelf(claim.shard);
        if epoch < self.engine.epoch(claim.shard) || before == Met::Unknown && self.is_behind(claim.shard) {
            return false;
        }
        let keeps = match &**posting {
            Posting::Settle(_) | Posting::Restore(_) => true,
            Posting::Release(call) => call.why == ReleaseWhy::Failed && call.entry.is_some(),
        };
        let seq = match before {
            Met::Held | Met::Ended(End::Settled | End::Released) => Some(SEQ_END),
            Met::Late | Met::Ended(End::Corrected) => Some(SEQ_LATE),
            Met::Ended(End::Expired | End::Rebooked) | Met::Unknown => None,
        };
        let Some(seq) = seq.filter(|_| keeps) else {
            self.remove(&mut shelf, claim);
            return true;
        };
        let now = self.time.now();
        let at = now.saturating_sub(age);
        let end = Ended { posting: Arc::clone(posting), at, taken: now, seq };
        if let Posting::Restore(call) = &**posting {
            let (asked, receipt) = (Arc::new(call.asked.clone()), Arc::new(call.receipt.clone()));
            let side = if is_of_pool(claim.id) { Side::Pool } else { Side::Tenant };
            self.keep(&mut shelf, Voucher { side, asked, receipt, end: Some(end) });
            return true;
        }
        match shelf.get_mut(&(claim.id, claim.attempt)) {
            Some(Kept::Here(voucher)) => voucher.end = Some(end),
            Some(Kept::There(spilled)) => {
                let old = spilled.end.take();
                spilled.end = self.spill_end(&end);
                let is_kept = spilled.end.is_some();
                if let (Some(old), Some(overflow)) = (old, &self.overflow) {
                    overflow.remove(old.posting);
                }
                if !is_kept {
                    self.remove(&mut shelf, claim);
                    self.unkept();
                }
            }
            None => {}
        }
        true
    }

    /// Nothing is to be restored of a call.
    pub(crate) fn forget(&self, claim: Claim) {
        self.remove(&mut self.shelf(claim.shard), claim);
    }

    fn remove(&self, shelf: &mut Shelf, claim: Claim) {
        if let Some(gone) = shelf.remove(&(claim.id, claim.attempt)) {
            self.gone(&gone);
        }
    }

    fn gone(&self, kept: &Kept) {
        match kept {
            Kept::Here(voucher) => drop(self.bytes.fetch_sub(size(voucher), Ordering::Relaxed)),
            Kept::There(spilled) => self.unspill(spilled),
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether the shard's vouchers are still to be restored for its newest epoch: no end of a call may be sent.
    pub(crate) fn is_behind(&self, shard: Shard) -> bool {
        is_set(&self.restoring, shard) || self.engine.epoch(shard) > self.restored(shard)
    }

    /// The epoch that the shard's vouchers were restored for, all of them; 0: none.
    pub fn restored(&self, shard: Shard) -> u64 {
        if is_set(&self.missed, shard) {
            return 0;
        }
        self.restored.get(usize::from(shard.0)).map_or(0, |epoch| epoch.load(Ordering::Acquire))
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets ends that the journal's store has; how many.
    ///
    /// # Errors
    /// When the store does not answer; nothing is forgotten then.
    pub async fn ask(&self) -> Result<u64, StoreError> {
        let mut found: Vec<Claim> = Vec::new();
        for shard in (0..=u8::MAX).map(Shard) {
            let ended: Vec<(Claim, EntryKey)> = {
                let shelf = self.shelf(shard);
                let ended = shelf.iter().filter_map(|(place, kept)| {
                    let seq = kept.seq()?;
                    let claim = Claim { shard, id: place.0, attempt: place.1 };
                    Some((claim, key(claim, kept.side(), seq)))
                });
                ended.collect()
            };
            for batch in ended.chunks(BATCH_MAX) {
                let keys: Vec<EntryKey> = batch.iter().map(|(_, key)| *key).collect();
                let places = self.fleet.entry_places(&keys).await?;
                let there = batch.iter().zip(places).filter(|(_, place)| place.is_some());
                found.extend(there.map(|((claim, _), _)| *claim));
            }
        }
        let forgotten = if found.is_empty() { 0 } else { self.forget_found(&found).await? };
        self.metrics.voucher_count.set((), self.len());
        self.metrics.voucher_bytes.set((), self.bytes.load(Ordering::Relaxed));
        self.metrics.voucher_spilled_bytes.set((), self.overflow.as_ref().map_or(0, Overflow::bytes));
        Ok(forgotten)
    }

    /// Forgets what was found in the journal, but nothing of a shard that has an epoch by now which its vouchers were not
    /// restored for: its sums may be older than the entry.
    async fn forget_found(&self, found: &[Claim]) -> Result<u64, StoreError> {
        // Asked after the entries were found: sums of an epoch that begins later have them.
        let rows = self.fleet.epochs().await?;
        let newest: AHashMap<u8, u64> = rows.into_iter().map(|row| (row.shard, row.epoch)).collect();
        let mut forgotten = 0_u64;
        for claim in found {
            if newest.get(&claim.shard.0).copied().unwrap_or(0) == self.restored(claim.shard) {
                self.forget(*claim);
                forgotten = forgotten.saturating_add(1);
            }
        }
        Ok(forgotten)
    }

    /// Restores what this gateway knows of a shard, for an epoch; `sent` are the calls that left the gateway. The end of no
    /// call of the shard is under way meanwhile. With it come the ends that are to be settled once more.
    ///
    /// # Errors
    /// When the book or the store does not answer; all of it is to be repeated.
    pub(crate) async fn restore(
        &self,
        epoch: &ShardEpoch,
        sent: &AHashSet<Claim>,
    ) -> Result<(Restored, Vec<Posting>), VoucherError> {
        let shard = Shard(epoch.shard);
        set(&self.restoring, shard, true);
        set(&self.missed, shard, false);
        self.engine.expect(shard, epoch.epoch);
        let result = self.restore_all(epoch, sent).await;
        match (&result, self.restored.get(usize::from(shard.0))) {
            (Ok(_), Some(restored)) => drop(restored.fetch_max(epoch.epoch, Ordering::AcqRel)),
            // The ends still wait: the book does not know their calls.
            _ => set(&self.missed, shard, true),
        }
        set(&self.restoring, shard, false);
        result
    }

    async fn restore_all(
        &self,
        epoch: &ShardEpoch,
        sent: &AHashSet<Claim>,
    ) -> Result<(Restored, Vec<Posting>), VoucherError> {
        let shard = Shard(epoch.shard);
        let (mut restored, mut again) = (Restored::default(), Vec::new());
        // Nothing was booked before, so nothing is lost.
        if epoch.cause == EpochCause::First {
            return Ok((restored, again));
        }
        let all: Vec<(Place, Kept)> =
            self.shelf(shard).iter().map(|(place, kept)| (*place, kept.clone())).collect();
        let mut all = all.into_iter();
        loop {
            // No more of what is on disk than these is in memory at once.
            let some = all.by_ref().take(BATCH_MAX / 2);
            let (count, batch) = some.fold((0, Vec::new()), |(count, mut batch), (place, kept)| {
                batch.extend(self.whole(shard, place, kept));
                (count + 1, batch)
            });
            if count == 0 {
                break;
            }
            // Two keys each: a late end needs to know of the first one too.
            let keys: Vec<EntryKey> = batch
                .iter()
                .flat_map(|voucher| {
                    let seq = voucher.end.as_ref().map_or(SEQ_END, |end| end.seq);
                    [SEQ_END, seq].map(|seq| key(voucher.receipt.claim(), voucher.side, seq))
                })
                .collect();
            let places = self.fleet.entry_places(&keys).await?;
            let mut calls = Vec::with_capacity(batch.len());
            for (voucher, places) in batch.iter().zip(places.chunks(2)) {
                let places = (places.first().copied().flatten(), places.last().copied().flatten());
                match self.told(voucher, epoch, places, sent).await? {
                    Told::Restore(state) => calls.push((voucher.clone(), self.call(voucher, state))),
                    Told::Nothing => {}
                    Told::Again => again.extend(self.again(voucher)),
                }
            }
            self.send(epoch.cause, calls, &mut restored, &mut again).await?;
        }
        self.metrics.voucher_restored.add((), restored.held.saturating_add(restored.ended));
        Ok((restored, again))
    }

    async fn send(
        &self,
        cause: EpochCause,
        calls: Vec<(Voucher, RestoreCall)>,
        restored: &mut Restored,
        again: &mut Vec<Posting>,
    ) -> Result<(), VoucherError> {
        let mut answers = stream::iter(calls)
            .map(|(voucher, call)| async move {
                let is_held = matches!(call.state, RestoredState::Held { .. });
                (voucher, is_held, verb::within(DEADLINE, self.engine.restore(&call)).await)
            })
            .buffer_unordered(AT_ONCE);
        while let Some((voucher, is_held, answer)) = answers.next().await {
            let claim = voucher.receipt.claim();
            let count = match answer {
                Ok(_) if is_held => &mut restored.held,
                Ok(_) => {
                    // After a lost tail it may have had it since before, and forgets it no later.
                    if cause == EpochCause::All {
                        self.taken(claim);
                    }
                    &mut restored.ended
                }
                Err(error) if is_for_good(&error) => {
                    tracing::error!(%error, ?claim, "the book does not take a voucher");
                    match self.again(&voucher) {
                        Some(posting) => again.push(posting),
                        None => self.forget(claim),
                    }
                    &mut restored.failed
                }
                Err(error) => return Err(error.into()),
            };
            *count = count.saturating_add(1);
        }
        Ok(())
    }

    /// The book has an end again, which it had lost or the journal has.
    fn taken(&self, claim: Claim) {
        let mut shelf = self.shelf(claim.shard);
        let now = self.time.now();
        match shelf.get_mut(&(claim.id, claim.attempt)) {
            Some(Kept::Here(Voucher { end: Some(end), .. })) => end.taken = now,
            Some(Kept::There(Spilled { end: Some(end), .. })) => end.taken = now,
            _ => {}
        }
    }

    /// An end as it is sent once more. Its voucher stays until the book has said what it met.
    fn again(&self, voucher: &Voucher) -> Option<Posting> {
        let end = voucher.end.as_ref()?;
        let mut posting = Posting::clone(&end.posting);
        let age = self.time.now().saturating_sub(end.at);
        settle::age(&mut posting, age.saturating_sub(settle::told_age(&end.posting)));
        Some(posting)
    }

    /// What the book is told of a call; `places` of the entries of its end and of its voucher's, where the store has them.
    async fn told(
        &self,
        voucher: &Voucher,
        epoch: &ShardEpoch,
        (first, own): (Option<i64>, Option<i64>),
        sent: &AHashSet<Claim>,
    ) -> Result<Told, StoreError> {
        let claim = voucher.receipt.claim();
        let Some(end) = &voucher.end else {
            return match first {
                Some(place) => self.told_unheard(voucher, epoch, place).await,
                None => Ok(Told::Restore(RestoredState::Held { sent: sent.contains(&claim) })),
            };
        };
        // A lost tail is seconds long: the book has it, and may have forgotten by now that it ended.
        let now = self.time.now();
        if epoch.cause == EpochCause::Tail && now.saturating_sub(end.taken) > RESTORED_ONCE {
            return Ok(Told::Nothing);
        }
        if let (SEQ_LATE, Some(first)) = (end.seq, first) {
            return self.told_late(voucher, epoch, (first, own)).await;
        }
        Ok(self.told_ended(voucher, end, epoch, own))
    }

    /// Of a call whose end this gateway does not know and the journal does: a book took it that is gone, and its answer
    /// never came, or counts for nothing. The end is sent again once the vouchers are restored.
    async fn told_unheard(
        &self,
        voucher: &Voucher,
        epoch: &ShardEpoch,
        place: i64,
    ) -> Result<Told, StoreError> {
        let entry = self.fleet.entry(key(voucher.receipt.claim(), voucher.side, SEQ_END)).await?;
        let (how, at) = match entry {
            Some(Entry { origin: Origin::Settled, ended_at, .. }) => (End::Settled, ended_at),
            Some(Entry { origin: Origin::Released, ended_at, .. }) => (End::Released, ended_at),
            // It has expired: what comes of it is late, and the journal keeps it apart.
            _ => return Ok(Told::Nothing),
        };
        let age = self.time.now().saturating_sub(at);
        if place <= epoch.watermark {
            // The book only remembers that it has ended, so that its end is no unknown one.
            return Ok(Told::Restore(RestoredState::Ended {
                how,
                posted: None,
                landed: 0,
                age,
                entry: None,
            }));
        }
        if epoch.cause == EpochCause::Tail && age > RESTORED_ONCE {
            return Ok(Told::Nothing);
        }
        // A drain that read it before the loss wrote it after the sums: its end posts what they lack, and its entry is known.
        Ok(Told::Restore(RestoredState::Held { sent: true }))
    }

    /// Of a correction whose first entry the journal has.
    async fn told_late(
        &self,
        voucher: &Voucher,
        epoch: &ShardEpoch,
        (first, own): (i64, Option<i64>),
    ) -> Result<Told, StoreError> {
        let (is_later, is_all) = (|place| place > epoch.watermark, epoch.cause == EpochCause::All);
        match own {
            Some(place) if !is_later(place) => return Ok(Told::Nothing),
            Some(_) if is_all => {}
            // What it adds alone is missing.
            _ => return Ok(Told::Again),
        }
        // Written after the sums like any other end: what they lack is what these entries posted.
        let claim = voucher.receipt.claim();
        let mut lacks = vec![0_i64; voucher.receipt.receipt.legs.len()];
        let first = is_later(first).then_some(SEQ_END);
        for seq in first.into_iter().chain([SEQ_LATE]) {
            let entry = self.fleet.entry(key(claim, voucher.side, seq)).await?;
            for posted in entry.iter().flat_map(|entry| &entry.posted) {
                let legs = voucher.asked.reserve.legs.iter().zip(&voucher.receipt.receipt.legs);
                for ((leg, told), lack) in legs.zip(&mut lacks) {
                    let names = (told.account, told.place) == (posted.account, posted.period);
                    if names && leg.shape == Shape::Quota {
                        *lack = lack.saturating_add(posted.amount);
                    }
                }
            }
        }
        let posted = Some(lacks.into_iter().map(|lack| u64::try_from(lack).unwrap_or(0)).collect());
        let at = voucher.end.as_ref().map_or(0, |end| end.at);
        let age = self.time.now().saturating_sub(at);
        Ok(Told::Restore(RestoredState::Ended { how: End::Corrected, posted, landed: 0, age, entry: None }))
    }

    /// Of an end that was acknowledged; `own` is the place of its entry.
    fn told_ended(&self, voucher: &Voucher, end: &Ended, epoch: &ShardEpoch, own: Option<i64>) -> Told {
        let (how, posted, landed, entry) = match &*end.posting {
            Posting::Settle(call) => {
                (End::Settled, Some(call.actual.clone()), call.landed, Some(&call.entry))
            }
            Posting::Release(call) => (End::Released, Some(kept(voucher)), 0, call.entry.as_ref()),
            Posting::Restore(call) => match &call.state {
                RestoredState::Ended { how, posted, landed, entry, .. } => {
                    (*how, posted.clone(), *landed, entry.as_ref())
                }
                RestoredState::Held { .. } => return Told::Nothing,
            },
        };
        let age = self.time.now().saturating_sub(end.at);
        if own.is_some_and(|place| place <= epoch.watermark) {
            return Told::Restore(RestoredState::Ended { how, posted: None, landed, age, entry: None });
        }
        // An entry that the store has already is one that it recognises.
        Told::Restore(RestoredState::Ended { how, posted, landed, age, entry: entry.cloned() })
    }

    fn call(&self, voucher: &Voucher, state: RestoredState) -> RestoreCall {
        let receipt = Receipt::clone(&voucher.receipt);
        let age = self.time.now().saturating_sub(receipt.receipt.now);
        RestoreCall { asked: ReserveCall::clone(&voucher.asked), receipt, age, state }
    }

    fn shelf(&self, shard: Shard) -> MutexGuard<'_, Shelf> {
        let index = usize::from(shard.0) % self.shelves.len().max(1);
        #[allow(clippy::indexing_slicing, reason = "there is a shelf for every value of a shard")]
        self.shelves[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Told {
    Restore(RestoredState),
    /// The journal has it all, or it is past.
    Nothing,
    /// It can be told as an end alone.
    Again,
}

fn set(flags: &[AtomicBool], shard: Shard, value: bool) {
    if let Some(flag) = flags.get(usize::from(shard.0)) {
        flag.store(value, Ordering::Release);
    }
}

fn is_set(flags: &[AtomicBool], shard: Shard) -> bool {
    flags.get(usize::from(shard.0)).is_some_and(|flag| flag.load(Ordering::Acquire))
}

/// What a call that failed upstream keeps posted: its requests (L6).
fn kept(voucher: &Voucher) -> Vec<u64> {
    let legs = voucher.asked.reserve.legs.iter().zip(&voucher.receipt.receipt.legs);
    legs.map(
        |(leg, told)| {
            if leg.measure == Measure::Requests && !leg.refund_failed { told.expected } else { 0 }
        },
    )
    .collect()
}

fn key(claim: Claim, side: Side, seq: u16) -> EntryKey {
    EntryKey { reservation: claim.id, side, attempt: claim.attempt, seq, unbooked: false }
}

/// Repeating it does not help.
fn is_for_good(error: &EngineError) -> bool {
    matches!(
        error.kind,
        ErrorKind::Refused(_) | ErrorKind::EntryTooLong | ErrorKind::Unsupported | ErrorKind::Damaged(_)
    )
}

/// What a voucher takes, about.
fn size(voucher: &Voucher) -> u64 {
    let asked = &voucher.asked;
    let limits: usize = asked.reserve.legs.iter().map(|leg| leg.limits.len()).sum();
    let legs = asked.reserve.legs.len();
    let call = size_of::<ReserveCall>()
        + size_of::<Receipt>()
        + asked.reserve.context.len()
        + legs * (size_of::<Leg>() + size_of::<LegReceipt>())
        + limits * size_of::<Limit>();
    // The posting of a call of a local book has all of it once more.
    let is_local = voucher.end.as_ref().is_some_and(|end| matches!(*end.posting, Posting::Restore(_)));
    let bytes = size_of::<(Place, Kept)>() + ENDED + call * if is_local { 2 } else { 1 };
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// What is kept of an end: the posting with its entry, and what the allocator adds.
const ENDED: usize = 1024;

impl std::fmt::Debug for Vouchers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vouchers").field("count", &self.len()).finish_non_exhaustive()
    }
}
