//! An engine that passes verbs on, loses replies, or is away, as a test tells it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use tollbook_engine::ledger::{AccountId, Expired, Renewed, Settled};
use tollbook_engine::{
    AdjustCall, Answer, Balance, Cursor, Drift, DueHold, Engine, EngineError, ErrorKind, ExpireCall,
    Inspection, JournalRecord, Loss, PeriodSum, ProgressCall, RebookCall, Recovery, ReleaseCall, RenewCall,
    Repair, Reply, ReserveCall, RestoreCall, SettleCall, Shard, ShardState, Verdict,
};
use tollbook_engine_memory::MemoryEngine;

/// What happens to the verbs that write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Mood {
    Well = 0,
    /// Refuses before anything is applied.
    Away = 1,
    /// Applies, then loses the reply.
    LosesReplies = 2,
    /// Never answers.
    Silent = 3,
    /// Reserves for the tenant, and never answers for its pool.
    PoolSilent = 4,
    /// Applies one verb and loses its reply, then is away.
    Breaks = 5,
}

pub(crate) struct Flaky {
    pub(crate) inner: MemoryEngine,
    mood: AtomicU8,
    pub(crate) settles: AtomicU64,
    /// The shard that calls find lost.
    pub(crate) lost: Mutex<Option<(Shard, Loss)>>,
    /// The epoch that gateways expect, and what was restored for it.
    pub(crate) expected: AtomicU64,
    pub(crate) restored: Mutex<Vec<RestoreCall>>,
}

impl Flaky {
    pub(crate) fn new(inner: MemoryEngine) -> Self {
        Self {
            inner,
            mood: AtomicU8::new(0),
            settles: AtomicU64::new(0),
            lost: Mutex::default(),
            expected: AtomicU64::new(0),
            restored: Mutex::default(),
        }
    }

    pub(crate) fn set(&self, mood: Mood) {
        self.mood.store(mood as u8, Ordering::SeqCst);
    }

    fn is_lost<'a, T: Send + 'a>(&'a self, shard: Shard) -> Option<Answer<'a, T>> {
        let lost = *self.lost.lock().unwrap();
        let (_, loss) = lost.filter(|(of, _)| *of == shard)?;
        Some(Box::pin(std::future::ready(Err(EngineError::not_applied(ErrorKind::Lost(loss))))))
    }

    fn pass<'a, T: Send + 'a>(&'a self, verb: impl FnOnce() -> Answer<'a, T>) -> Answer<'a, T> {
        match self.mood.load(Ordering::SeqCst) {
            1 => {
                Box::pin(std::future::ready(Err(EngineError::not_applied(ErrorKind::Away("a test".into())))))
            }
            2 => {
                let applied = verb();
                Box::pin(async move {
                    applied.await?;
                    Err(EngineError::unknown(ErrorKind::Away("the reply was lost".into())))
                })
            }
            3 => Box::pin(std::future::pending()),
            5 => {
                let applied = verb();
                self.set(Mood::Away);
                Box::pin(async move {
                    applied.await?;
                    Err(EngineError::unknown(ErrorKind::Away("the connection broke".into())))
                })
            }
            _ => verb(),
        }
    }
}

impl Engine for Flaky {
    fn reserve<'a>(&'a self, call: &'a ReserveCall) -> Answer<'a, Verdict> {
        if let Some(lost) = self.is_lost(call.shard) {
            return lost;
        }
        let silent = self.mood.load(Ordering::SeqCst) == Mood::PoolSilent as u8;
        if silent && call.shard == tollbook_admission::shard("pool") {
            return Box::pin(std::future::pending());
        }
        self.pass(|| self.inner.reserve(call))
    }
    fn rebook<'a>(&'a self, call: &'a RebookCall) -> Answer<'a, Verdict> {
        self.pass(|| self.inner.rebook(call))
    }
    fn renew<'a>(&'a self, calls: &'a [RenewCall]) -> Answer<'a, Vec<Renewed>> {
        self.pass(|| self.inner.renew(calls))
    }
    fn progress<'a>(&'a self, call: &'a ProgressCall) -> Answer<'a, ()> {
        self.inner.progress(call)
    }
    fn settle<'a>(&'a self, call: &'a SettleCall) -> Answer<'a, Settled> {
        self.settles.fetch_add(1, Ordering::SeqCst);
        if let Some(lost) = self.is_lost(call.claim.shard) {
            return lost;
        }
        self.pass(|| self.inner.settle(call))
    }
    fn release<'a>(&'a self, call: &'a ReleaseCall) -> Answer<'a, Settled> {
        self.pass(|| self.inner.release(call))
    }
    fn expire<'a>(&'a self, calls: &'a [ExpireCall]) -> Answer<'a, Vec<Expired>> {
        self.inner.expire(calls)
    }
    fn restore<'a>(&'a self, call: &'a RestoreCall) -> Answer<'a, ()> {
        if let Some(lost) = self.is_lost(call.asked.shard) {
            return lost;
        }
        self.restored.lock().unwrap().push(call.clone());
        Box::pin(std::future::ready(Ok(Reply { epoch: 1, now: 1, value: () })))
    }
    fn adjust<'a>(&'a self, call: &'a AdjustCall) -> Answer<'a, bool> {
        self.inner.adjust(call)
    }
    fn balances<'a>(&'a self, shard: Shard, accounts: &'a [AccountId]) -> Answer<'a, Vec<Option<Balance>>> {
        if let Some(lost) = self.is_lost(shard) {
            return lost;
        }
        self.inner.balances(shard, accounts)
    }
    fn demands<'a>(&'a self, shard: Shard, legs: &'a [tollbook_ledger::Leg]) -> Answer<'a, Vec<u64>> {
        self.inner.demands(shard, legs)
    }
    fn due(&self, shard: Shard, max: usize) -> Answer<'_, Vec<DueHold>> {
        self.inner.due(shard, max)
    }
    fn shards(&self) -> Vec<Shard> {
        self.inner.shards()
    }
    fn inspect<'a>(&'a self, shard: Shard, what: &'a Inspection) -> Answer<'a, String> {
        self.inner.inspect(shard, what)
    }
    fn drift(&self, shard: Shard, cursor: u64, max: usize) -> Answer<'_, Drift> {
        self.inner.drift(shard, cursor, max)
    }
    fn repair<'a>(&'a self, call: &'a Repair) -> Answer<'a, bool> {
        self.inner.repair(call)
    }
    fn journal_read(&self, shard: Shard, after: Cursor, max: usize) -> Answer<'_, Vec<JournalRecord>> {
        self.inner.journal_read(shard, after, max)
    }
    fn journal_trim(&self, shard: Shard, upto: Cursor) -> Answer<'_, ()> {
        self.inner.journal_trim(shard, upto)
    }
    fn takes(&self, shard: Shard) -> Answer<'_, ()> {
        self.pass(|| self.inner.takes(shard))
    }
    fn flush(&self) -> Answer<'_, ()> {
        self.inner.flush()
    }
}

/// The steps of a rebuild are a job's business; a gateway only tells which epoch it expects.
impl Recovery for Flaky {
    fn expect(&self, _: Shard, epoch: u64) {
        self.expected.fetch_max(epoch, Ordering::SeqCst);
    }
    fn epoch(&self, _: Shard) -> u64 {
        self.expected.load(Ordering::SeqCst)
    }
    fn state(&self, shard: Shard) -> Answer<'_, ShardState> {
        Box::pin(async move {
            let now = self.inner.balances(shard, &[]).await?.now;
            let value = ShardState { epoch: self.epoch(shard), same_server: true, closed: false, seen: now };
            Ok(Reply { epoch: value.epoch, now, value })
        })
    }
    fn begin(&self, _: Shard, _: u64, _: bool) -> Answer<'_, bool> {
        panic!("not a gateway's business")
    }
    fn post<'a>(&'a self, _: Shard, _: u64, _: &'a [PeriodSum]) -> Answer<'a, bool> {
        panic!("not a gateway's business")
    }
    fn open(&self, _: Shard, _: u64) -> Answer<'_, bool> {
        panic!("not a gateway's business")
    }
}
