//! An engine that passes verbs on, loses replies, or is away, as a test tells it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use tollbook_engine::ledger::{AccountId, Expired, Renewed, Settled};
use tollbook_engine::{
    AdjustCall, Answer, Balance, Claim, Cursor, Drift, DueHold, Engine, EngineError, ErrorKind, ExpireCall,
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
    /// Answers for the tenant, and never for its pool.
    PoolSilent = 4,
    /// Applies one verb and loses its reply, then is away.
    Breaks = 5,
    /// Answers, and takes its time.
    Slow = 6,
    /// Has lost what it had.
    Lost = 7,
    /// Cannot read what it has.
    Damaged = 8,
    /// Answers after a moment, as over a network.
    Remote = 9,
}

/// How long a slow engine takes.
pub(crate) const SLOW: std::time::Duration = std::time::Duration::from_millis(300);
const REMOTE: std::time::Duration = std::time::Duration::from_millis(2);

pub(crate) struct Flaky {
    pub(crate) inner: MemoryEngine,
    mood: AtomicU8,
    pub(crate) settles: AtomicU64,
    /// The next so many settles meet damaged data, and whatever settles the same calls after them.
    pub(crate) damages: AtomicU64,
    pub(crate) damaged: Mutex<Vec<Claim>>,
    /// The shard that calls find lost.
    pub(crate) lost: Mutex<Option<(Shard, Loss)>>,
    /// The epoch that gateways expect, and what was restored for it.
    pub(crate) expected: AtomicU64,
    pub(crate) restored: Mutex<Vec<RestoreCall>>,
    pub(crate) reserves: AtomicU64,
    /// Knows how to restore.
    pub(crate) restores: AtomicBool,
    /// Takes no voucher, for good.
    pub(crate) refuses: AtomicBool,
}

impl Flaky {
    pub(crate) fn new(inner: MemoryEngine) -> Self {
        Self {
            inner,
            mood: AtomicU8::new(0),
            settles: AtomicU64::new(0),
            reserves: AtomicU64::new(0),
            restores: AtomicBool::new(true),
            refuses: AtomicBool::new(false),
            damages: AtomicU64::new(0),
            damaged: Mutex::default(),
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

    /// Of the epoch in which the verb was applied, whenever its answer comes.
    fn of_epoch<'a, T: Send + 'a>(&self, answer: Answer<'a, T>) -> Answer<'a, T> {
        let epoch = self.expected.load(Ordering::SeqCst).max(1);
        Box::pin(async move { answer.await.map(|reply| Reply { epoch, ..reply }) })
    }

    fn is_silent(&self, shard: Shard) -> bool {
        self.mood.load(Ordering::SeqCst) == Mood::PoolSilent as u8
            && shard == tollbook_admission::shard("pool")
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
            mood @ (6 | 9) => {
                let applied = verb();
                Box::pin(async move {
                    tokio::time::sleep(if mood == 6 { SLOW } else { REMOTE }).await;
                    applied.await
                })
            }
            7 => Box::pin(std::future::ready(Err(EngineError::not_applied(ErrorKind::Lost(Loss::All))))),
            8 => Box::pin(std::future::ready(Err(EngineError::not_applied(ErrorKind::Damaged(
                "a test".into(),
            ))))),
            _ => verb(),
        }
    }
}

impl Engine for Flaky {
    fn reserve<'a>(&'a self, call: &'a ReserveCall) -> Answer<'a, Verdict> {
        self.reserves.fetch_add(1, Ordering::SeqCst);
        if let Some(lost) = self.is_lost(call.shard) {
            return lost;
        }
        if self.is_silent(call.shard) {
            return Box::pin(std::future::pending());
        }
        let answer = self.of_epoch(self.pass(|| self.inner.reserve(call)));
        Box::pin(async move {
            let mut reply = answer.await?;
            if let Verdict::Admit(receipt) = &mut reply.value {
                receipt.epoch = reply.epoch;
            }
            Ok(reply)
        })
    }
    fn rebook<'a>(&'a self, call: &'a RebookCall) -> Answer<'a, Verdict> {
        self.pass(|| self.inner.rebook(call))
    }
    fn renew<'a>(&'a self, calls: &'a [RenewCall]) -> Answer<'a, Vec<Renewed>> {
        // As an engine does that asks for each and gives up at the first error.
        if let Some(lost) = calls.iter().find_map(|call| self.is_lost(call.claim.shard)) {
            return lost;
        }
        self.pass(|| self.inner.renew(calls))
    }
    fn progress<'a>(&'a self, call: &'a ProgressCall) -> Answer<'a, ()> {
        self.pass(|| self.inner.progress(call))
    }
    fn settle<'a>(&'a self, call: &'a SettleCall) -> Answer<'a, Settled> {
        self.settles.fetch_add(1, Ordering::SeqCst);
        if let Some(lost) = self.is_lost(call.claim.shard) {
            return lost;
        }
        if self.is_silent(call.claim.shard) {
            return Box::pin(std::future::pending());
        }
        let mut damaged = self.damaged.lock().unwrap();
        if self.damages.load(Ordering::SeqCst) > 0 {
            self.damages.fetch_sub(1, Ordering::SeqCst);
            damaged.push(call.claim);
        }
        if damaged.contains(&call.claim) {
            let damaged = EngineError::not_applied(ErrorKind::Damaged("a test".into()));
            return Box::pin(std::future::ready(Err(damaged)));
        }
        self.of_epoch(self.pass(|| self.inner.settle(call)))
    }
    fn release<'a>(&'a self, call: &'a ReleaseCall) -> Answer<'a, Settled> {
        if self.is_silent(call.claim.shard) {
            return Box::pin(std::future::pending());
        }
        self.of_epoch(self.pass(|| self.inner.release(call)))
    }
    fn expire<'a>(&'a self, calls: &'a [ExpireCall]) -> Answer<'a, Vec<Expired>> {
        self.inner.expire(calls)
    }
    fn restore<'a>(&'a self, call: &'a RestoreCall) -> Answer<'a, ()> {
        if let Some(lost) = self.is_lost(call.asked.shard) {
            return lost;
        }
        if self.refuses.load(Ordering::SeqCst) {
            let error = EngineError::not_applied(ErrorKind::Damaged("a test".into()));
            return Box::pin(std::future::ready(Err(error)));
        }
        let epoch = self.expected.load(Ordering::SeqCst);
        if epoch > 0 {
            // A voucher of a shard that is made whole: this engine has lost nothing.
            self.restored.lock().unwrap().push(call.clone());
            return Box::pin(std::future::ready(Ok(Reply { epoch, now: 1, value: () })));
        }
        if self.restores.load(Ordering::SeqCst) {
            self.pass(|| self.inner.restore(call))
        } else {
            Box::pin(std::future::ready(Err(EngineError::not_applied(ErrorKind::Unsupported))))
        }
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
        if self.is_silent(shard) {
            return Box::pin(std::future::pending());
        }
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
    fn belongs(&self, _: u64) -> Answer<'_, bool> {
        panic!("not a gateway's business")
    }
    fn begin(&self, _: Shard, _: u64, _: bool, _: ShardState) -> Answer<'_, bool> {
        panic!("not a gateway's business")
    }
    fn post<'a>(&'a self, _: Shard, _: u64, _: &'a [PeriodSum]) -> Answer<'a, bool> {
        panic!("not a gateway's business")
    }
    fn open(&self, _: Shard, _: u64) -> Answer<'_, bool> {
        panic!("not a gateway's business")
    }
}
