//! The engine: routes verbs to shards, answers them.

use std::future::ready;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollbook_engine::{
    AdjustCall, Answer, Balance, Cursor, Drift, DueHold, Engine, EngineError, ErrorKind, ExpireCall,
    ExpireNow, Inspection, JournalRecord, LiveHold, ProgressCall, RebookCall, ReleaseCall, RenewCall, Repair,
    Reply, ReserveCall, RestoreCall, SettleCall, Shard, Survey, Verdict,
};
use tollbook_ledger::{AccountId, Expired, Leg, Micros, Renewed, ReservationId, Settled};

use crate::background::Background;
use crate::durable::{Durable, OnDisk};
use crate::error::OpenError;
use crate::log::dir::LogDir;
use crate::log::shard_log::ShardLog;
use crate::log::snapshot;
use crate::open::{Opened, open};
use crate::options::{Durability, Options};
use crate::shard::{EPOCH, ShardState, damaged};
use crate::stats::Stats;
use crate::survey::{live, survey};

/// Keeps the book in this process.
///
/// Verbs run to their end when called; the futures they return are ready, but for `durability: Fsync`, where they
/// resolve once the disk has the record. Dropping the engine syncs and seals the log.
#[derive(Debug)]
pub struct MemoryEngine {
    inner: Arc<Inner>,
    background: Option<Background>,
}

/// What verbs and background threads share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) shards: Vec<Slot>,
    pub(crate) dir: Option<Arc<LogDir>>,
    pub(crate) options: Options,
    pub(crate) counters: Counters,
}

/// One shard's lock, on cache lines of its own so that shards do not slow each other down.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Slot {
    pub(crate) state: Mutex<ShardState>,
    pub(crate) durable: Durable,
}

/// Counted outside the shards.
#[derive(Default, Debug)]
pub(crate) struct Counters {
    pub(crate) torn_tails: AtomicU64,
    pub(crate) torn_bytes: AtomicU64,
    pub(crate) snapshots: AtomicU64,
    pub(crate) snapshot_bytes: AtomicU64,
    pub(crate) snapshots_failed: AtomicU64,
}

/// Prune steps per shard and tick; what is left waits for the next tick.
const PRUNE_STEPS: usize = 64;
/// Things forgotten per step, so that a verb waits for few of them.
const PRUNE_STEP: usize = 128;

impl MemoryEngine {
    /// Opens the log in `dir`, replays it, and starts. Without a directory nothing is kept on disk.
    pub fn open(dir: Option<&Path>, options: Options) -> Result<Opened, OpenError> {
        open(dir, options)
    }

    pub(crate) fn new(inner: Inner) -> std::io::Result<Self> {
        let inner = Arc::new(inner);
        let background = if inner.options.background { Some(Background::start(&inner)?) } else { None };
        Ok(Self { inner, background })
    }

    /// What background threads do, once: forgets what is past, syncs, creates segments ahead, takes snapshots.
    pub fn tick(&self) {
        self.inner.prune();
        self.inner.sync_all();
        self.inner.snapshot_all();
    }

    pub fn stats(&self) -> Stats {
        Stats::of(&self.inner)
    }

    /// Every row of a shard's state, for tests and `inspect`.
    pub fn dump(&self, shard: Shard) -> Vec<String> {
        let mut rows = Vec::new();
        if let Ok(state) = self.inner.slot(shard).state.lock() {
            state.book.dump(&mut |row| rows.push(format!("{row:?}")));
            rows.push(format!("{:?} {:?}", state.journal.trimmed(), state.journal));
        }
        rows
    }

    /// Writes a wrong `held` past the verbs, as a fault would, so that tests can show what drift and repair do.
    #[doc(hidden)]
    pub fn corrupt_held(&self, shard: Shard, account: AccountId, period: u64, held: i64) -> bool {
        self.inner.slot(shard).state.lock().is_ok_and(|mut state| {
            let now = self.inner.options.clock.now();
            state.corrupt_held(now, account, period, held)
        })
    }

    /// Ends as a killed process would: nothing more is synced, no file is sealed.
    pub fn abandon(mut self) {
        self.background = None;
        for slot in &self.inner.shards {
            if let Ok(mut state) = slot.state.lock() {
                state.log = None;
                state.failed = Some("the engine was abandoned".to_owned());
            }
        }
    }

    /// Stops, syncs everything, seals the files.
    pub fn close(mut self) -> std::io::Result<()> {
        self.shut()
    }

    fn shut(&mut self) -> std::io::Result<()> {
        // The threads first: a sync that still runs would keep a segment mapped.
        self.background = None;
        let mut first_error = Ok(());
        for slot in &self.inner.shards {
            let mut state = slot.state.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(log) = state.log.take() else { continue };
            state.failed = Some("the engine is closed".to_owned());
            let position = log.position();
            match log.close() {
                Ok(()) => slot.durable.reach(position),
                Err(error) => {
                    slot.durable.fail(&error.to_string());
                    first_error = first_error.and(Err(error));
                }
            }
        }
        first_error
    }

    /// Runs a verb on one shard.
    fn on<T: Send + Unpin + 'static>(
        &self,
        shard: Shard,
        verb: impl FnOnce(&mut ShardState, Micros) -> Result<T, EngineError>,
    ) -> Answer<'_, T> {
        let mut places = Vec::new();
        let done = self.inner.lock(shard).and_then(|(slot, mut state)| {
            let now = self.inner.options.clock.now();
            let value = verb(&mut state, now)?;
            self.note_place(&mut places, slot, &state);
            Ok(Reply { epoch: EPOCH, now, value })
        });
        self.answer(done, places)
    }

    /// Runs one verb per call, in order. An error after the first call leaves the outcome of the batch unknown; every
    /// verb may be repeated.
    fn each<'a, C, T: Send + Unpin + 'static>(
        &'a self,
        calls: &'a [C],
        shard_of: impl Fn(&C) -> Shard,
        verb: impl Fn(&mut ShardState, Micros, &C) -> Result<T, EngineError>,
    ) -> Answer<'a, Vec<T>> {
        let mut places = Vec::new();
        let mut now = self.inner.options.clock.now();
        let mut value = Vec::with_capacity(calls.len());
        let mut failed = None;
        for batch in
            calls.chunk_by(|one, other| self.inner.index(shard_of(one)) == self.inner.index(shard_of(other)))
        {
            let Some(first) = batch.first() else { continue };
            let done = self.inner.lock(shard_of(first)).and_then(|(slot, mut state)| {
                now = self.inner.options.clock.now();
                let done =
                    batch.iter().try_for_each(|call| verb(&mut state, now, call).map(|one| value.push(one)));
                self.note_place(&mut places, slot, &state);
                done
            });
            if let Err(error) = done {
                let nothing_done = value.is_empty();
                failed = Some(if nothing_done { error } else { EngineError::unknown(error.kind) });
                break;
            }
        }
        let done = failed.map_or(Ok(Reply { epoch: EPOCH, now, value }), Err);
        self.answer(done, places)
    }

    /// Notes what an answer has to wait for, if it waits for the disk.
    fn note_place<'a>(&self, places: &mut Vec<(&'a Durable, u64)>, slot: &'a Slot, state: &ShardState) {
        if self.inner.options.durability == Durability::Fsync && state.log.is_some() {
            places.push((&slot.durable, state.position()));
        }
    }

    fn answer<'a, T: Send + Unpin + 'static>(
        &'a self,
        done: Result<Reply<T>, EngineError>,
        places: Vec<(&'a Durable, u64)>,
    ) -> Answer<'a, T> {
        match done {
            Ok(reply) if !places.is_empty() => {
                match &self.background {
                    Some(background) => background.wake(),
                    None => self.inner.sync_all(),
                }
                Box::pin(OnDisk::new(reply, places))
            }
            done => Box::pin(ready(done)),
        }
    }
}

impl Drop for MemoryEngine {
    fn drop(&mut self) {
        // Nobody is left to tell; the next start finds what could not be synced as a torn tail and says so.
        let _outcome = self.shut();
    }
}

impl Inner {
    fn index(&self, shard: Shard) -> usize {
        usize::from(shard.0) % self.shards.len().max(1)
    }

    #[allow(
        clippy::indexing_slicing,
        reason = "an index modulo the length, which is at least 1 (`Options::check`)"
    )]
    pub(crate) fn slot(&self, shard: Shard) -> &Slot {
        &self.shards[self.index(shard)]
    }

    fn lock(&self, shard: Shard) -> Result<(&Slot, MutexGuard<'_, ShardState>), EngineError> {
        let slot = self.slot(shard);
        match slot.state.lock() {
            Ok(state) => Ok((slot, state)),
            Err(_poisoned) => {
                let why = "a fault stopped this shard; start again to replay its log".to_owned();
                Err(EngineError::not_applied(ErrorKind::Away(why)))
            }
        }
    }

    pub(crate) fn prune(&self) {
        for slot in &self.shards {
            for _ in 0..PRUNE_STEPS {
                let Ok(mut state) = slot.state.lock() else { break };
                let now = self.options.clock.now();
                // A log that takes no record forgets later; the verbs tell their callers.
                if !state.prune(now, PRUNE_STEP).unwrap_or(false) {
                    break;
                }
            }
        }
    }

    /// Syncs every shard, and creates the segments that will be needed next.
    pub(crate) fn sync_all(&self) {
        let Some(dir) = &self.dir else { return };
        for (shard, slot) in (0..=u8::MAX).zip(&self.shards) {
            sync(dir, slot);
            create_ahead(dir, shard, slot);
        }
    }

    /// Folds the logs that are long enough.
    pub(crate) fn snapshot_all(&self) {
        let Some(dir) = &self.dir else { return };
        let is_starved = |slot: &Slot| {
            slot.state.lock().is_ok_and(|state| state.log.as_ref().is_some_and(ShardLog::starved))
        };
        // One shard's segments may be what another's needs.
        let starved = self.shards.iter().any(is_starved);
        let bytes = self.options.snapshot_bytes;
        for (shard, slot) in (0..=u8::MAX).zip(&self.shards) {
            let span =
                slot.state.lock().ok().and_then(|state| state.log.as_ref()?.snapshot_span(bytes, starved));
            let Some(span) = span else { continue };
            match snapshot::take(dir, shard, span) {
                Ok(taken) => {
                    self.counters.snapshots.fetch_add(1, Ordering::Relaxed);
                    self.counters.snapshot_bytes.store(taken.snapshot_bytes, Ordering::Relaxed);
                    if let Ok(mut state) = slot.state.lock()
                        && let Some(log) = &mut state.log
                    {
                        log.snapshot_taken(taken.seq, taken.snapshot_bytes);
                    }
                }
                // The segments stay, nothing is lost; the next tick tries again.
                Err(_error) => drop(self.counters.snapshots_failed.fetch_add(1, Ordering::Relaxed)),
            }
        }
    }
}

fn sync(dir: &LogDir, slot: &Slot) {
    let work = slot.state.lock().ok().and_then(|state| state.log.as_ref()?.sync_work());
    let Some(work) = work else { return };
    let done = work.perform(dir);
    let Ok(mut state) = slot.state.lock() else { return };
    match done {
        Ok(()) => {
            if let Some(log) = &mut state.log {
                log.synced(&work);
            }
            drop(state);
            slot.durable.reach(work.position);
        }
        // What the kernel could not write it may have dropped; a second try would lie.
        Err(error) => {
            let why = format!("the log could not be synced: {error}");
            slot.durable.fail(&why);
            state.failed = Some(why);
        }
    }
}

fn create_ahead(dir: &LogDir, shard: u8, slot: &Slot) {
    let seq = slot.state.lock().ok().and_then(|mut state| state.log.as_mut()?.want_spare());
    let Some(seq) = seq else { return };
    // On a full disk the verb that needs the segment will say so.
    let Ok(spare) = dir.create_segment(shard, seq) else { return };
    let refused = match slot.state.lock() {
        Ok(mut state) => match &mut state.log {
            Some(log) => log.put_spare(spare),
            None => Some(spare),
        },
        Err(_poisoned) => Some(spare),
    };
    if let Some(spare) = refused {
        // An empty segment that stays is removed by the next start.
        let _outcome = dir.remove_segment(&spare.mapped().path);
    }
}

impl Engine for MemoryEngine {
    fn reserve<'a>(&'a self, call: &'a ReserveCall) -> Answer<'a, Verdict> {
        self.on(call.shard, |state, now| state.reserve(now, call))
    }

    fn rebook<'a>(&'a self, call: &'a RebookCall) -> Answer<'a, Verdict> {
        if self.inner.index(call.receipt.shard) != self.inner.index(call.next.shard) {
            return Box::pin(ready(Err(EngineError::not_applied(ErrorKind::NoSuchShard))));
        }
        self.on(call.next.shard, |state, now| state.rebook(now, call))
    }

    fn renew<'a>(&'a self, calls: &'a [RenewCall]) -> Answer<'a, Vec<Renewed>> {
        self.each(calls, |call| call.claim.shard, ShardState::renew)
    }

    fn progress<'a>(&'a self, call: &'a ProgressCall) -> Answer<'a, ()> {
        self.on(call.shard, |state, now| state.progress(now, call))
    }

    fn settle<'a>(&'a self, call: &'a SettleCall) -> Answer<'a, Settled> {
        self.on(call.claim.shard, |state, now| state.settle(now, call))
    }

    fn release<'a>(&'a self, call: &'a ReleaseCall) -> Answer<'a, Settled> {
        self.on(call.claim.shard, |state, now| state.release(now, call))
    }

    fn expire<'a>(&'a self, calls: &'a [ExpireCall]) -> Answer<'a, Vec<Expired>> {
        self.each(calls, |call| call.claim.shard, |state, now, call| state.expire(now, call.claim, None))
    }

    fn expire_now<'a>(&'a self, call: &'a ExpireNow) -> Answer<'a, Expired> {
        self.on(call.claim.shard, |state, now| state.expire(now, call.claim, Some(&call.entry)))
    }

    fn restore<'a>(&'a self, call: &'a RestoreCall) -> Answer<'a, ()> {
        self.on(call.asked.shard, |state, now| state.restore(now, call))
    }

    fn adjust<'a>(&'a self, call: &'a AdjustCall) -> Answer<'a, bool> {
        self.on(call.shard, |state, now| state.adjust(now, call))
    }

    fn balances<'a>(&'a self, shard: Shard, accounts: &'a [AccountId]) -> Answer<'a, Vec<Option<Balance>>> {
        self.on(shard, |state, now| Ok(accounts.iter().map(|account| state.balance(now, *account)).collect()))
    }

    fn demands<'a>(&'a self, shard: Shard, legs: &'a [Leg]) -> Answer<'a, Vec<u64>> {
        self.on(shard, |state, now| Ok(state.demands(now, legs)))
    }

    fn due(&self, shard: Shard, max: usize) -> Answer<'_, Vec<DueHold>> {
        self.on(shard, |state, now| state.due(shard, now, max))
    }

    fn shards(&self) -> Vec<Shard> {
        (0..=u8::MAX).take(self.inner.shards.len()).map(Shard).collect()
    }

    fn inspect<'a>(&'a self, shard: Shard, what: &'a Inspection) -> Answer<'a, String> {
        self.on(shard, |state, now| Ok(state.inspect(now, what)))
    }

    fn live(&self, shard: Shard, id: ReservationId) -> Answer<'_, Vec<LiveHold>> {
        self.on(shard, |state, now| Ok(live(&state.book, now, id)))
    }

    fn survey(&self, shard: Shard, max: usize) -> Answer<'_, Survey> {
        self.on(shard, |state, now| Ok(survey(&state.book, now, max)))
    }

    fn drift(&self, shard: Shard, cursor: u64, max: usize) -> Answer<'_, Drift> {
        self.on(shard, |state, _| Ok(state.drift(cursor, max)))
    }

    fn repair<'a>(&'a self, call: &'a Repair) -> Answer<'a, bool> {
        self.on(call.shard, |state, now| state.repair(now, call))
    }

    fn journal_read(&self, shard: Shard, after: Cursor, max: usize) -> Answer<'_, Vec<JournalRecord>> {
        let taken = self
            .inner
            .lock(shard)
            .map(|(_, state)| (self.inner.options.clock.now(), state.journal.after_cursor(after, max)));
        // Read without the lock: a long batch would keep the shard's calls waiting.
        let done = taken.and_then(|(now, encoded)| {
            let value = encoded.decode().map_err(|error| damaged(&error))?;
            Ok(Reply { epoch: EPOCH, now, value })
        });
        Box::pin(ready(done))
    }

    fn journal_trim(&self, shard: Shard, upto: Cursor) -> Answer<'_, ()> {
        self.on(shard, |state, _| state.journal_trim(upto))
    }

    fn takes(&self, shard: Shard) -> Answer<'_, ()> {
        self.on(shard, |state, _| state.takes())
    }

    fn flush(&self) -> Answer<'_, ()> {
        self.inner.sync_all();
        let now = self.inner.options.clock.now();
        let failed = self.inner.shards.iter().find_map(|slot| slot.state.lock().ok()?.failed.clone());
        let done = match failed {
            None => Ok(Reply { epoch: EPOCH, now, value: () }),
            Some(why) => Err(EngineError::unknown(ErrorKind::Away(why))),
        };
        Box::pin(ready(done))
    }
}
