//! The engine and the auditor behind one counter: every verb that reaches the engine is audited before it is answered.
//!
//! Invariants: verbs run one after the other; after each of them the balances of its shard are compared with the books.
//! When something differs the bank keeps the first finding and takes no further verb, so the run comes to its end.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;
use tollbook_engine::ledger::{AccountId, Expired, Micros, Progress, Renewed, Settled};
use tollbook_engine::{
    AdjustCall, Balance, Cursor, DueHold, Engine, EngineError, ErrorKind, ExpireCall, JournalRecord,
    ProgressCall, RebookCall, ReleaseCall, RenewCall, Reply, ReserveCall, SettleCall, Shard, Verdict,
};
use tollbook_engine_memory::{Clock, MemoryEngine, Options};
use tollbook_engine_suite::wait;

use crate::audit::{Auditor, Checked};
use crate::brief::Brief;
use crate::clock::SimClock;
use crate::config::S;
use crate::stats::Stats;

/// What a verb comes to.
pub(crate) type Outcome<T> = Result<Reply<T>, EngineError>;

/// Segments are as small as they may be, so that runs meet their ends.
const SEGMENT_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub(crate) struct Bank {
    pub(crate) clock: Arc<SimClock>,
    shards: u8,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    engine: Option<MemoryEngine>,
    options: Options,
    dir: Option<TempDir>,
    auditor: Auditor,
    is_away: bool,
    finding: Option<String>,
    /// The last verbs, if they are written down.
    trace: Option<Vec<String>>,
}

/// How an engine is set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) start: Micros,
    pub(crate) shards: u8,
    pub(crate) has_log: bool,
    pub(crate) journal_records_max: usize,
    pub(crate) is_traced: bool,
}

impl Bank {
    pub(crate) fn open(setup: Setup) -> Result<Self, String> {
        let clock = Arc::new(SimClock::at(setup.start));
        let mut options = Options::on(Arc::clone(&clock) as Arc<dyn Clock>);
        options.shards = u16::from(setup.shards);
        options.segment_bytes = SEGMENT_BYTES;
        options.snapshot_bytes = SEGMENT_BYTES as u64;
        options.journal_records_max = setup.journal_records_max;
        options.background = false;
        let dir = if setup.has_log { Some(TempDir::new().map_err(|error| error.to_string())?) } else { None };
        let opened = MemoryEngine::open(dir.as_ref().map(TempDir::path), options.clone());
        let engine = Some(opened.map_err(|error| error.to_string())?.engine);
        let inner = Inner {
            engine,
            options,
            dir,
            auditor: Auditor::new(),
            is_away: false,
            finding: None,
            trace: setup.is_traced.then(Vec::new),
        };
        Ok(Self { clock, shards: setup.shards, inner: Mutex::new(inner) })
    }

    /// The part of the engine that keeps a shard.
    fn part(&self, shard: Shard) -> u8 {
        shard.0 % self.shards
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first difference.
    pub(crate) fn finding(&self) -> Option<String> {
        self.lock().finding.clone()
    }

    /// Every verb so far, if they are written down.
    pub(crate) fn trace(&self) -> Vec<String> {
        self.lock().trace.clone().unwrap_or_default()
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.lock().finding.is_some()
    }

    /// Something is wrong outside of the verbs.
    pub(crate) fn fail(&self, finding: impl Into<String>) {
        self.lock().finding.get_or_insert(finding.into());
    }

    pub(crate) fn note(&self, line: impl FnOnce() -> String) {
        let now = self.clock.now();
        if let Some(trace) = &mut self.lock().trace {
            trace.push(format!("{now} {}", line()));
        }
    }

    pub(crate) fn stats<T>(&self, act: impl FnOnce(&mut Stats) -> T) -> T {
        act(&mut self.lock().auditor.stats)
    }

    /// Looks at the books.
    pub(crate) fn auditor<T>(&self, look: impl FnOnce(&mut Auditor) -> T) -> T {
        look(&mut self.lock().auditor)
    }

    /// While the engine is away every verb is refused.
    pub(crate) fn set_away(&self, is_away: bool) {
        let mut inner = self.lock();
        inner.auditor.stats.engine_away += u64::from(is_away && !inner.is_away);
        inner.is_away = is_away;
    }

    /// Engine time jumps forward.
    pub(crate) fn step_forward(&self, by: Micros) {
        self.note(|| format!("the clock jumps forward by {by}"));
        self.stats(|stats| stats.clock_forward += 1);
        self.clock.step_forward(by);
    }

    /// Engine time steps back.
    pub(crate) fn step_back(&self, by: Micros) {
        self.note(|| format!("the clock steps back by {by}"));
        self.stats(|stats| {
            stats.clock_back += 1;
            stats.clock_back_far += u64::from(by > 3600 * S);
        });
        self.clock.step_back(by);
    }

    /// Runs a verb, audits it, and compares the balances of its shard.
    fn verb<T: std::fmt::Debug>(
        &self,
        shard: Shard,
        what: &dyn Brief,
        run: impl FnOnce(&MemoryEngine) -> Outcome<T>,
        audit: impl FnOnce(&mut Auditor, u8, &Outcome<T>) -> Checked,
    ) -> Outcome<T> {
        let part = self.part(shard);
        let moment = self.clock.moment();
        let now = self.clock.now();
        let mut guard = self.lock();
        let inner = &mut *guard;
        let away = || EngineError::not_applied(ErrorKind::Away("the engine is away".to_owned()));
        let Some(engine) = inner.engine.as_ref().filter(|_| !inner.is_away && inner.finding.is_none()) else {
            return Err(away());
        };
        inner.auditor.at(moment);
        inner.auditor.stats.verbs += 1;
        let auditor = &mut inner.auditor;
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let got = run(engine);
            let checked = audit(auditor, part, &got);
            (got, checked)
        }));
        let Ok((got, checked)) = ran else {
            inner.finding = Some(format!("a panic over {}", what.brief()));
            return Err(away());
        };
        if let Some(trace) = &mut inner.trace {
            trace.push(format!("{now} {} -> {}", what.brief(), answer(&got)));
        }
        let told = got.as_ref().map_or(now, |reply| reply.now);
        let on_time =
            if told == now { Ok(()) } else { Err(format!("the reply says it is {told}, and it is {now}")) };
        match checked.and(on_time).and_then(|()| inner.compare(now, part)) {
            Ok(()) => got,
            Err(finding) => {
                inner.finding = Some(finding);
                Err(away())
            }
        }
    }

    pub(crate) fn reserve(&self, call: &ReserveCall) -> Outcome<Verdict> {
        self.verb(
            call.shard,
            call,
            |engine| wait(engine.reserve(call)),
            |auditor, part, got| auditor.reserve(part, call, got),
        )
    }

    pub(crate) fn rebook(&self, call: &RebookCall) -> Outcome<Verdict> {
        self.verb(
            call.next.shard,
            call,
            |engine| wait(engine.rebook(call)),
            |auditor, part, got| auditor.rebook(part, call, got),
        )
    }

    /// A batch is audited one by one: the first that fails leaves the rest undone.
    pub(crate) fn renew(&self, calls: &[RenewCall]) -> Outcome<Vec<Renewed>> {
        self.each(calls, |call| {
            self.verb(
                call.claim.shard,
                call,
                |engine| wait(engine.renew(std::slice::from_ref(call))),
                |auditor, part, got| match got {
                    Ok(reply) => auditor.renew(part, call, reply.now, &reply.value[0]),
                    Err(error) => auditor.refused(error),
                },
            )
        })
    }

    pub(crate) fn expire(&self, calls: &[ExpireCall]) -> Outcome<Vec<Expired>> {
        self.each(calls, |call| {
            self.verb(
                call.claim.shard,
                call,
                |engine| wait(engine.expire(std::slice::from_ref(call))),
                |auditor, part, got| match got {
                    Ok(reply) => auditor.expire(part, call, reply.now, &reply.value[0]),
                    Err(error) => auditor.refused(error),
                },
            )
        })
    }

    fn each<C, T>(&self, calls: &[C], verb: impl Fn(&C) -> Outcome<Vec<T>>) -> Outcome<Vec<T>> {
        let mut all = Reply { epoch: 1, now: self.clock.now(), value: Vec::with_capacity(calls.len()) };
        for call in calls {
            match verb(call) {
                Ok(reply) => all.value.extend(reply.value),
                Err(error) if all.value.is_empty() => return Err(error),
                Err(error) => return Err(EngineError::unknown(error.kind)),
            }
        }
        Ok(all)
    }

    /// Batches of which only the engine knows whether they are new go one by one, so that its count of repeated ones tells.
    pub(crate) fn progress(&self, call: &ProgressCall) -> Outcome<()> {
        let (part, moment) = (self.part(call.shard), self.clock.moment());
        if !self.auditor(|auditor| auditor.is_in_doubt(part, call, moment)) {
            return self.progress_of(call);
        }
        let alone = |batch: &Progress| ProgressCall { shard: call.shard, batches: vec![batch.clone()] };
        let mut last = self.now();
        for batch in &call.batches {
            last = self.progress_of(&alone(batch));
            if last.is_err() {
                break;
            }
        }
        last
    }

    fn progress_of(&self, call: &ProgressCall) -> Outcome<()> {
        let repeated = Cell::new(0);
        self.verb(
            call.shard,
            call,
            |engine| {
                let before = engine.stats().alarms.progress_repeated;
                let got = wait(engine.progress(call));
                repeated.set(engine.stats().alarms.progress_repeated - before);
                got
            },
            |auditor, part, got| auditor.progress(part, call, got, repeated.get()),
        )
    }

    pub(crate) fn settle(&self, call: &SettleCall) -> Outcome<Settled> {
        self.verb(
            call.claim.shard,
            call,
            |engine| wait(engine.settle(call)),
            |auditor, part, got| auditor.settle(part, call, got),
        )
    }

    pub(crate) fn release(&self, call: &ReleaseCall) -> Outcome<Settled> {
        self.verb(
            call.claim.shard,
            call,
            |engine| wait(engine.release(call)),
            |auditor, part, got| auditor.release(part, call, got),
        )
    }

    pub(crate) fn adjust(&self, call: &AdjustCall) -> Outcome<bool> {
        self.verb(
            call.shard,
            call,
            |engine| wait(engine.adjust(call)),
            |auditor, part, got| auditor.adjust(part, call, got),
        )
    }

    pub(crate) fn due(&self, shard: Shard, max: usize) -> Outcome<Vec<DueHold>> {
        self.verb(
            shard,
            &"due",
            |engine| wait(engine.due(shard, max)),
            |auditor, part, got| match got {
                Ok(reply) => auditor.due(part, &reply.value),
                Err(_) => Ok(()),
            },
        )
    }

    /// For somebody who only wants to know the time.
    pub(crate) fn now(&self) -> Outcome<()> {
        let asked = self.balances(Shard(0), &[]);
        asked.map(|reply| Reply { epoch: reply.epoch, now: reply.now, value: () })
    }

    pub(crate) fn balances(&self, shard: Shard, accounts: &[AccountId]) -> Outcome<Vec<Option<Balance>>> {
        self.verb(shard, &"balances", |engine| wait(engine.balances(shard, accounts)), |_, _, _| Ok(()))
    }

    pub(crate) fn journal_read(&self, shard: Shard, max: usize) -> Outcome<Vec<JournalRecord>> {
        let read = |engine: &'_ MemoryEngine| -> Outcome<Vec<JournalRecord>> {
            wait(engine.journal_read(shard, Cursor(0), max))
        };
        let inner = self.lock();
        match inner.engine.as_ref().filter(|_| !inner.is_away && inner.finding.is_none()) {
            Some(engine) => read(engine),
            None => Err(EngineError::not_applied(ErrorKind::Away("the engine is away".to_owned()))),
        }
    }

    pub(crate) fn journal_trim(&self, shard: Shard, upto: Cursor) -> Outcome<()> {
        self.verb(shard, &"trim", |engine| wait(engine.journal_trim(shard, upto)), |_, _, _| Ok(()))
    }

    /// The store takes a batch of a shard's records.
    pub(crate) fn append(&self, shard: Shard, records: &[JournalRecord]) {
        let part = self.part(shard);
        let appended = self.auditor(|auditor| auditor.journal.append(part, records));
        if let Err(finding) = appended {
            self.fail(finding);
        }
    }

    pub(crate) fn shards(&self) -> impl Iterator<Item = Shard> + use<> {
        (0..self.shards).map(Shard)
    }

    /// What runs in the background of an engine, once.
    pub(crate) fn tick(&self) {
        let (moment, now) = (self.clock.moment(), self.clock.now());
        let mut guard = self.lock();
        let inner = &mut *guard;
        let Some(engine) = &inner.engine else { return };
        engine.tick();
        inner.auditor.at(moment);
        let checked = (0..self.shards).try_for_each(|part| inner.compare(now, part));
        let drift = || (0..self.shards).try_for_each(|part| inner.drift(part));
        if let Err(finding) = checked.and_then(|()| drift()) {
            inner.finding.get_or_insert(finding);
        }
    }

    /// Writes a wrong `held` past the verbs, as a fault in the engine would.
    pub(crate) fn sabotage(&self) {
        let guard = self.lock();
        let Some(engine) = &guard.engine else { return };
        for part in 0..self.shards {
            for account in guard.auditor.accounts_of(part) {
                if engine.corrupt_held(Shard(part), account, 0, 1) {
                    return;
                }
            }
        }
    }

    /// Ends the engine, with or without warning, and starts it on what it kept; without a log there is nothing to start on.
    pub(crate) fn restart(&self, is_kill: bool) {
        let (moment, now) = (self.clock.moment(), self.clock.now());
        let mut guard = self.lock();
        let inner = &mut *guard;
        let Some(dir) = &inner.dir else { return };
        let Some(engine) = inner.engine.take() else { return };
        let stats = &mut inner.auditor.stats;
        let counter = if is_kill { &mut stats.engine_kills } else { &mut stats.engine_restarts };
        *counter += 1;
        if let Some(trace) = &mut inner.trace {
            trace.push(format!("{now} the engine starts again, killed: {is_kill}"));
        }
        if is_kill {
            engine.abandon();
        } else if let Err(error) = engine.close() {
            inner.finding.get_or_insert(format!("the engine did not close: {error}"));
        }
        match MemoryEngine::open(Some(dir.path()), inner.options.clone()) {
            Ok(opened) => inner.engine = Some(opened.engine),
            Err(error) => drop(inner.finding.get_or_insert(format!("the engine did not start: {error}"))),
        }
        inner.auditor.at(moment);
        let checked = (0..self.shards).try_for_each(|part| inner.compare(now, part));
        if let Err(finding) = checked {
            inner.finding.get_or_insert(format!("after a restart: {finding}"));
        }
    }
}

/// An answer without its envelope.
fn answer<T: std::fmt::Debug>(got: &Outcome<T>) -> String {
    match got {
        Ok(reply) => format!("{:?}", reply.value),
        Err(error) => error.to_string(),
    }
}

impl Inner {
    /// Balances against the books.
    fn compare(&mut self, now: Micros, part: u8) -> Checked {
        let Some(engine) = &self.engine else { return Ok(()) };
        let accounts = self.auditor.accounts_of(part);
        match wait(engine.balances(Shard(part), &accounts)) {
            Ok(reply) => self.auditor.balances(now, part, &accounts, &reply.value),
            Err(error) => Err(format!("no balances: {error}")),
        }
    }

    /// The engine's own check must find nothing either (L10).
    fn drift(&self, part: u8) -> Checked {
        let Some(engine) = &self.engine else { return Ok(()) };
        let mut cursor = Some(0);
        while let Some(at) = cursor {
            match wait(engine.drift(Shard(part), at, usize::MAX)) {
                Ok(reply) if reply.value.differences.is_empty() => cursor = reply.value.next,
                other => return Err(format!("drift: {other:?}")),
            }
        }
        Ok(())
    }
}
