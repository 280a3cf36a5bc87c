//! The book alone, and the memory engine with its log: pairs of reserve and settle, replay, memory of accounts.
//!
//! A pair touches nine accounts, as a call of a key does whose tenant, project and key each have RPM, TPM and a daily
//! quota of llm_tokens. CPU time is counted, not the clock on the wall: of the thread for the pure book, of the whole
//! process for the engine, so that its background threads are in it.
//! Invariant: each verb is checked for having been admitted and settled; anything else ends the run.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use rustix::time::{ClockId, clock_gettime};
use tollbook_engine::{Claim, Cursor, Engine as _, ReserveCall, SettleCall, Shard, Verdict as Answered};
use tollbook_engine_memory::{MemoryEngine, Options};
use tollbook_ledger::{
    AccountId, Book, Estimator, Event, Full, Hold, Leg, Limit, LimitId, Log, Measure, Met, Micros, OnExpiry,
    Periods, ReservationId, Reserve, SECOND, Settle, Shape, SubjectId, Verdict, Weights,
};

use crate::report::{Must, Row, median};

const TENANTS: u64 = 64;
const LEVELS: u64 = 3;
const ACCOUNTS_PER_LEVEL: u64 = 3;
const DAY: u64 = 86_400;
/// Book time between two pairs: a thousand calls per second.
const STEP: Micros = 1_000;
const START: Micros = 1_800_000_000 * SECOND;
/// Pairs between two looks at the clock, at the journal and at what may be forgotten.
const BATCH: u32 = 1_024;
const PRUNE_MAX: usize = 2_048;
const CONTEXT_BYTES: usize = 160;
const ENTRY_BYTES: usize = 320;
/// Reservations in the measurement of memory; each opens nine accounts.
const MEMORY_RESERVATIONS: u64 = 20_000;

#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub rounds: u32,
    pub round: Duration,
}

pub async fn rows(plan: Plan) -> Result<Vec<Row>> {
    let at_least = |least: f64| Some(Must::ValueAtLeast(least));
    let mut pure = Vec::new();
    let mut engine = Vec::new();
    let mut replay = Vec::new();
    for _ in 0..plan.rounds {
        pure.push(pure_pairs(plan.round)?);
        let (pairs, records) = engine_pairs(plan.round).await?;
        engine.push(pairs);
        replay.push(records);
    }
    Ok(vec![
        Row::single("pure ledger, pairs per second and core", "1/s", median(pure), at_least(1_000_000.0)),
        Row::single("memory engine with log, pairs/s and core", "1/s", median(engine), at_least(200_000.0)),
        Row::single("replay, records per second", "1/s", median(replay), at_least(500_000.0)),
        Row::single(
            "memory per idle held account",
            "bytes",
            account_bytes()?,
            Some(Must::ValueAtMost(600.0)),
        ),
    ])
}

/// Throws the events away: what is measured is the book.
struct NoLog;

impl Log for NoLog {
    fn append(&mut self, _: &Event<'_>) -> Result<(), Full> {
        Ok(())
    }
}

/// The calls of one key, to be sent again and again under new ids.
struct Caller {
    reserve: Reserve,
    settle: Settle,
}

impl Caller {
    fn new(number: u64, now: Micros) -> Self {
        let legs: Vec<Leg> = (0..LEVELS).flat_map(|level| legs_of(number * LEVELS + level, now)).collect();
        let actual = legs.iter().map(|leg| if leg.measure == Measure::Requests { 1 } else { 82 }).collect();
        let id = ReservationId(0);
        Self {
            reserve: Reserve {
                id,
                attempt: 0,
                life: 15 * SECOND,
                profile: tollbook_ledger::Profile::default(),
                legs,
                context: vec![b'c'; CONTEXT_BYTES],
            },
            settle: Settle { id, attempt: 0, actual, landed: 0, learn: Some(12) },
        }
    }

    fn next(&mut self, id: u128) {
        self.reserve.id = ReservationId(id);
        self.settle.id = ReservationId(id);
    }
}

fn legs_of(subject: u64, now: Micros) -> [Leg; 3] {
    let rate = Shape::Rate { buckets: 61, width: SECOND, weights: Weights::Whole };
    let today = now / SECOND / DAY * DAY;
    let days = Periods::Calendar([today, today + DAY, today + 2 * DAY, today + 3 * DAY]);
    let leg = |name: u64, measure: Measure, shape: Shape, periods: Periods, hard: bool| {
        let counts = measure == Measure::Requests;
        Leg {
            account: AccountId { subject: SubjectId(subject), name },
            measure,
            shape,
            periods,
            base: if counts { 1_000 } else { 70_000 },
            per_output: if counts { 0 } else { 1_000 },
            cap: 64,
            worst: if counts { 1 } else { 134 },
            estimator: Estimator::Learned {
                kind: tollbook_ledger::EstimatorKind::Ema,
                own: tollbook_ledger::EstimatorId(subject),
                prior: tollbook_ledger::EstimatorId(u64::MAX),
                first: 256,
            },
            refund_failed: false,
            limits: vec![Limit {
                id: LimitId(0),
                ceiling: 1_000_000_000_000_000,
                hard,
                shadow: false,
                count_denied: false,
                hold: if hard { Hold::Worst } else { Hold::Expected },
                on_expiry: if hard { OnExpiry::Charge } else { OnExpiry::Release },
            }],
        }
    };
    [
        leg(0, Measure::Requests, rate, Periods::None, false),
        leg(1, Measure::Tokens, rate, Periods::None, false),
        leg(2, Measure::Tokens, Shape::Quota, days, true),
    ]
}

fn pair(book: &mut Book, now: Micros, caller: &Caller) -> Result<()> {
    match book.reserve(now, &caller.reserve, &mut NoLog) {
        Ok(Verdict::Admit(_)) => {}
        other => bail!("not admitted: {other:?}"),
    }
    match book.settle(now + STEP / 2, &caller.settle, &mut NoLog) {
        Ok(settled) if settled.before == Met::Held => Ok(()),
        other => bail!("not settled: {other:?}"),
    }
}

fn pure_pairs(time: Duration) -> Result<f64> {
    let mut callers: Vec<Caller> = (0..TENANTS).map(|number| Caller::new(number, START)).collect();
    let mut book = Book::new();
    let mut now = START;
    let mut id = 0_u128;
    let started = Instant::now();
    let cpu = cpu_time(ClockId::ThreadCPUTime);
    let mut pairs = 0_u64;
    while started.elapsed() < time {
        for _ in 0..u64::from(BATCH) / TENANTS {
            for caller in &mut callers {
                id += 1;
                now += STEP;
                caller.next(id);
                pair(&mut book, now, caller)?;
            }
        }
        pairs += u64::from(BATCH);
        ensure!(book.prune(now, PRUNE_MAX, &mut NoLog).is_ok(), "prune was refused");
    }
    let used = cpu_time(ClockId::ThreadCPUTime).saturating_sub(cpu);
    Ok(pairs as f64 / used.as_secs_f64())
}

/// Pairs per CPU second of a fresh engine, and records per second of its replay.
async fn engine_pairs(time: Duration) -> Result<(f64, f64)> {
    let dir = tempfile::tempdir()?;
    // No snapshot: the whole log is to be replayed.
    let options = Options { snapshot_bytes: u64::MAX, ..Options::default() };
    let engine = MemoryEngine::open(Some(dir.path()), options.clone())?.engine;
    let shards = engine.shards();
    let now = engine.journal_read(Shard(0), Cursor::default(), 1).await?.now;
    let mut callers = callers(now, shards.len(), |_| {});
    let started = Instant::now();
    let cpu = cpu_time(ClockId::ProcessCPUTime);
    let mut pairs = 0_u64;
    let mut id = 0_u128;
    while started.elapsed() < time {
        for _ in 0..u64::from(BATCH) / TENANTS {
            for (reserve, settle) in &mut callers {
                id += 1;
                reserve.reserve.id = ReservationId(id);
                settle.claim.id = ReservationId(id);
                match engine.reserve(reserve).await?.value {
                    Answered::Admit(_) => {}
                    other => bail!("not admitted: {other:?}"),
                }
                let before = engine.settle(settle).await?.value.before;
                ensure!(before == Met::Held, "not settled: {before:?}");
                pairs += 1;
            }
        }
        drain(&engine, &shards).await?;
    }
    let used = cpu_time(ClockId::ProcessCPUTime).saturating_sub(cpu);
    engine.close()?;
    let opened = MemoryEngine::open(Some(dir.path()), options)?;
    let records = opened.report.records as f64 / opened.report.took.as_secs_f64();
    ensure!(opened.report.records >= 2 * pairs, "records are missing from the log");
    Ok((pairs as f64 / used.as_secs_f64(), records))
}

/// The part of the drain that the engine does; the store's part is not measured here.
pub(crate) async fn drain(engine: &MemoryEngine, shards: &[Shard]) -> Result<()> {
    for shard in shards {
        let records = engine.journal_read(*shard, Cursor::default(), usize::MAX).await?.value;
        if let Some(last) = records.last() {
            engine.journal_trim(*shard, last.cursor).await?;
        }
    }
    Ok(())
}

/// A reserve and its settle.
pub(crate) type Calls = (ReserveCall, SettleCall);

/// The calls of all tenants, their legs changed as wanted.
pub(crate) fn callers(now: Micros, shards: usize, change: impl Fn(&mut Leg)) -> Vec<Calls> {
    let changed = |number| {
        let (mut reserve, settle) = calls(number, now, shards);
        reserve.reserve.legs.iter_mut().for_each(&change);
        (reserve, settle)
    };
    (0..TENANTS).map(changed).collect()
}

fn calls(number: u64, now: Micros, shards: usize) -> Calls {
    let caller = Caller::new(number, now);
    let shards = u64::try_from(shards).unwrap_or(1).max(1);
    let shard = Shard(u8::try_from(number % shards).unwrap_or(0));
    let accounts = caller.reserve.legs.iter().map(|leg| leg.account).collect();
    let claim = Claim { shard, id: ReservationId(0), attempt: 0 };
    let settle = SettleCall {
        claim,
        accounts,
        actual: caller.settle.actual,
        landed: 0,
        learn: caller.settle.learn,
        entry: vec![b'e'; ENTRY_BYTES],
        age: 0,
    };
    let reserve = ReserveCall { shard, reserve: caller.reserve, class: 0, waiting: false };
    (reserve, settle)
}

/// Growth of a process by accounts that were used once, less that by as many calls on the same accounts.
fn account_bytes() -> Result<f64> {
    let weigh = |arguments: &[&str]| -> Result<f64> {
        let output = Command::new(std::env::current_exe()?).arg("weigh").args(arguments).output()?;
        Ok(String::from_utf8(output.stdout)?.trim().parse::<u64>()? as f64)
    };
    let accounts = (MEMORY_RESERVATIONS * LEVELS * ACCOUNTS_PER_LEVEL) as f64;
    Ok((weigh(&["--own-accounts"])? - weigh(&[])?) / accounts)
}

/// In a fresh process: its growth by calls that each open accounts of their own, or all use the same ones.
pub fn weigh(own_accounts: bool) -> Result<u64> {
    let before = own_memory()?;
    let mut book = Book::new();
    let mut now = START;
    for number in 0..MEMORY_RESERVATIONS {
        now += STEP;
        let mut caller = Caller::new(if own_accounts { number } else { 0 }, now);
        caller.next(u128::from(number) + 1);
        pair(&mut book, now, &caller)?;
    }
    let grown = own_memory()?.saturating_sub(before);
    drop(book);
    Ok(grown)
}

fn own_memory() -> Result<u64> {
    Ok(crate::process::memory_of(std::process::id())?.anonymous)
}

pub(crate) fn cpu_time(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}
