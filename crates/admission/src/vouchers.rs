//! Vouchers: what this gateway knows of its calls, for a book whose store can lose them.
//!
//! Invariants: every acknowledged reserve has a voucher until the call gave everything back, or the journal's store has its
//! entry; what makes a call end is kept with it. Restoring may be repeated: a book takes each (id, attempt) once.
//! Until a shard's vouchers are restored for its newest epoch, no end of a call of that shard is sent: the book would not
//! know the call yet.
//! Beyond the bound in memory a voucher is not kept, which is counted and told: after a loss its hold is missing until it
//! has ended, and its end is journaled as `unbooked`.
//! Nothing of this exists where the book cannot be lost.

use std::mem::size_of;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ahash::{AHashMap, AHashSet};
use futures_util::{StreamExt, stream};
use tollbook_engine::{
    Claim, EngineError, ErrorKind, LostShards, Receipt, Recovery, ReserveCall, RestoreCall, RestoredState,
    SEQ_END, SEQ_LATE, Shard,
};
use tollbook_ledger::{
    Attempt, End, Leg, LegReceipt, Limit, Measure, Met, Micros, ReleaseWhy, ReservationId,
};
use tollbook_store::{BATCH_MAX, EntryKey, EpochCause, Fleet, Restored, ShardEpoch, Side, StoreError};
use tollbook_telemetry::Metrics;
use tollbook_telemetry::log::Every;

use crate::outcome::Posting;
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
    /// Bytes of memory.
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
type Shelf = AHashMap<Place, Voucher>;

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
    bytes: AtomicU64,
    count: AtomicU64,
    warn: Every,
}

impl Vouchers {
    pub(crate) fn new(
        book: Losable,
        time: &Arc<EngineTime>,
        metrics: &Arc<Metrics>,
        bounds: VoucherBounds,
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
            bytes: AtomicU64::new(0),
            count: AtomicU64::new(0),
            warn: Every::new(WARN_EVERY),
        }
    }

    /// A reserve was acknowledged.
    pub(crate) fn admitted(&self, side: Side, asked: ReserveCall, receipt: &Receipt) {
        let bytes = size(&asked);
        let held = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if held.saturating_add(bytes) > self.bounds.memory_max {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return self.unkept();
        }
        let (shard, place) = (asked.shard, (asked.reserve.id, asked.reserve.attempt));
        let (asked, receipt) = (Arc::new(asked), Arc::new(receipt.clone()));
        let voucher = Voucher { side, asked, receipt, end: None };
        self.count.fetch_add(1, Ordering::Relaxed);
        if let Some(old) = self.shelf(shard).insert(place, voucher) {
            self.gone(&old);
        }
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

    /// The book acknowledged the end of a call. False if it did not know the call yet: the end is to be sent again.
    pub(crate) fn ended(&self, posting: &Arc<Posting>, before: Met) -> bool {
        let claim = posting.claim();
        let keeps = match &**posting {
            Posting::Settle(_) => true,
            Posting::Release(call) => call.why == ReleaseWhy::Failed && call.entry.is_some(),
            // Of a call that the book never admitted: it has no voucher.
            Posting::Restore(_) => return true,
        };
        let seq = match before {
            Met::Held | Met::Ended(End::Settled | End::Released) => Some(SEQ_END),
            Met::Late | Met::Ended(End::Corrected) => Some(SEQ_LATE),
            Met::Unknown if self.is_behind(claim.shard) => return false,
            Met::Ended(End::Expired | End::Rebooked) | Met::Unknown => None,
        };
        match seq.filter(|_| keeps) {
            Some(seq) => {
                let end = Ended { posting: Arc::clone(posting), at: self.time.now(), seq };
                if let Some(voucher) = self.shelf(claim.shard).get_mut(&(claim.id, claim.attempt)) {
                    voucher.end = Some(end);
                }
            }
            None => self.forget(claim),
        }
        true
    }

    /// Nothing is to be restored of a call.
    pub(crate) fn forget(&self, claim: Claim) {
        let gone = self.shelf(claim.shard).remove(&(claim.id, claim.attempt));
        if let Some(gone) = gone {
            self.gone(&gone);
        }
    }

    fn gone(&self, voucher: &Voucher) {
        self.bytes.fetch_sub(size(&voucher.asked), Ordering::Relaxed);
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether the shard's vouchers are still to be restored for its newest epoch: no end of a call may be sent.
    pub(crate) fn is_behind(&self, shard: Shard) -> bool {
        let restoring = self.restoring.get(usize::from(shard.0));
        restoring.is_some_and(|restoring| restoring.load(Ordering::Acquire))
            || self.engine.epoch(shard) > self.restored(shard)
    }

    /// The epoch that the shard's vouchers were restored for.
    pub fn restored(&self, shard: Shard) -> u64 {
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
    /// When the store does not answer; nothing is forgotten that was not found.
    pub async fn ask(&self) -> Result<u64, StoreError> {
        let mut forgotten = 0_u64;
        for shard in (0..=u8::MAX).map(Shard) {
            let ended: Vec<(Claim, EntryKey)> = {
                let shelf = self.shelf(shard);
                let ended = shelf.iter().filter_map(|(place, voucher)| {
                    let seq = voucher.end.as_ref()?.seq;
                    let claim = Claim { shard, id: place.0, attempt: place.1 };
                    Some((claim, key(claim, voucher.side, seq)))
                });
                ended.collect()
            };
            for batch in ended.chunks(BATCH_MAX) {
                let keys: Vec<EntryKey> = batch.iter().map(|(_, key)| *key).collect();
                let places = self.fleet.entry_places(&keys).await?;
                for ((claim, _), place) in batch.iter().zip(places) {
                    if place.is_some() {
                        self.forget(*claim);
                        forgotten = forgotten.saturating_add(1);
                    }
                }
            }
        }
        self.metrics.voucher_count.set((), self.len());
        self.metrics.voucher_bytes.set((), self.bytes.load(Ordering::Relaxed));
        Ok(forgotten)
    }

    /// Restores what this gateway knows of a shard, for an epoch; `sent` are the calls that left the gateway. The end of no
    /// call of the shard is under way meanwhile.
    ///
    /// # Errors
    /// When the book or the store does not answer; all of it is to be repeated.
    pub async fn restore(
        &self,
        epoch: &ShardEpoch,
        sent: &AHashSet<Claim>,
    ) -> Result<Restored, VoucherError> {
        let shard = Shard(epoch.shard);
        let flag = self.restoring.get(usize::from(shard.0));
        if let Some(flag) = flag {
            flag.store(true, Ordering::Release);
        }
        self.engine.expect(shard, epoch.epoch);
        let result = self.restore_all(epoch, sent).await;
        if let (Ok(_), Some(restored)) = (&result, self.restored.get(usize::from(shard.0))) {
            restored.fetch_max(epoch.epoch, Ordering::AcqRel);
        }
        // After a failure the ends still wait: the book does not know their calls.
        if let (Ok(_), Some(flag)) = (&result, flag) {
            flag.store(false, Ordering::Release);
        }
        result
    }

    async fn restore_all(
        &self,
        epoch: &ShardEpoch,
        sent: &AHashSet<Claim>,
    ) -> Result<Restored, VoucherError> {
        let shard = Shard(epoch.shard);
        let mut restored = Restored::default();
        // Nothing was booked before, so nothing is lost.
        if epoch.cause == EpochCause::First {
            return Ok(restored);
        }
        let vouchers: Vec<Voucher> = self.shelf(shard).values().cloned().collect();
        for batch in vouchers.chunks(BATCH_MAX / 2) {
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
                match self.told(voucher, epoch, places, sent) {
                    Told::Restore(state) => calls.push(self.call(voucher, state)),
                    Told::Nothing => {}
                    Told::Missing => restored.failed = restored.failed.saturating_add(1),
                }
            }
            self.send(calls, &mut restored).await?;
        }
        self.metrics.voucher_restored.add((), restored.held.saturating_add(restored.ended));
        Ok(restored)
    }

    async fn send(&self, calls: Vec<RestoreCall>, restored: &mut Restored) -> Result<(), VoucherError> {
        let mut answers = stream::iter(calls)
            .map(|call| async move {
                let answer = verb::within(DEADLINE, self.engine.restore(&call)).await;
                (matches!(call.state, RestoredState::Held { .. }), call.receipt.claim(), answer)
            })
            .buffer_unordered(AT_ONCE);
        while let Some((held, claim, answer)) = answers.next().await {
            let count = match answer {
                Ok(_) if held => &mut restored.held,
                Ok(_) => &mut restored.ended,
                Err(error) if is_for_good(&error) => {
                    tracing::error!(%error, ?claim, "the book does not take a voucher");
                    &mut restored.failed
                }
                Err(error) => return Err(error.into()),
            };
            *count = count.saturating_add(1);
        }
        Ok(())
    }

    /// What the book is told of a call; `places` of the entries of its end and of its voucher's, where the store has them.
    fn told(
        &self,
        voucher: &Voucher,
        epoch: &ShardEpoch,
        (first, own): (Option<i64>, Option<i64>),
        sent: &AHashSet<Claim>,
    ) -> Told {
        let Some(end) = &voucher.end else {
            // It has expired: what comes of it is late, and the journal keeps it apart.
            let claim = voucher.receipt.claim();
            let held = RestoredState::Held { sent: sent.contains(&claim) };
            return if first.is_some() { Told::Nothing } else { Told::Restore(held) };
        };
        // A correction whose first entry is in the sums already: what it adds alone is missing in them.
        if end.seq == SEQ_LATE && first.is_some() {
            return if own.is_some() { Told::Nothing } else { Told::Missing };
        }
        let is_in_sums = |place: i64| epoch.cause == EpochCause::All && place <= epoch.watermark;
        let age = self.time.now().saturating_sub(end.at);
        let (how, posted, landed, entry) = match &*end.posting {
            Posting::Settle(call) => (End::Settled, call.actual.clone(), call.landed, Some(&call.entry)),
            Posting::Release(call) => (End::Released, kept(voucher), 0, call.entry.as_ref()),
            Posting::Restore(_) => return Told::Nothing,
        };
        if own.is_some_and(is_in_sums) {
            return Told::Restore(RestoredState::Ended { how, posted: None, landed, age, entry: None });
        }
        // An entry that the store has already is one that it recognises.
        let (posted, entry) = (Some(posted), entry.cloned());
        Told::Restore(RestoredState::Ended { how, posted, landed, age, entry })
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
    /// It cannot be told.
    Missing,
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
fn size(asked: &ReserveCall) -> u64 {
    let limits: usize = asked.reserve.legs.iter().map(|leg| leg.limits.len()).sum();
    let legs = asked.reserve.legs.len();
    let bytes = size_of::<(Place, Voucher)>()
        + size_of::<ReserveCall>()
        + size_of::<Receipt>()
        + ENDED
        + asked.reserve.context.len()
        + legs * (size_of::<Leg>() + size_of::<LegReceipt>())
        + limits * size_of::<Limit>();
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// What is kept of an end: the posting with its entry, and what the allocator adds.
const ENDED: usize = 1024;

impl std::fmt::Debug for Vouchers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vouchers").field("count", &self.len()).finish_non_exhaustive()
    }
}
