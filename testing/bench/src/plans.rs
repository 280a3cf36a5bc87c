//! Forecast booking in the memory engine: pairs with progress between them, and a flush of many streams.
//!
//! A pair touches nine accounts as in `book`, the three of llm_tokens per minute booked by forecast. Between the reserve
//! and the settle of every pair stands one `progress` with three batches, one for each level, as 100 streams make them.
//! A flush is all a gateway does every two seconds: ask 10,000 streams of one account, make the batch, have it applied.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use rustix::time::ClockId;
use tollbook_engine::{Cursor, Engine, ProgressCall, Shard, Verdict as Answered};
use tollbook_engine_memory::{Clock, MemoryEngine, Options};
use tollbook_ledger::stream::{Seen, Share, Stream};
use tollbook_ledger::{AccountId, Measure, Met, Micros, Profile, ReservationId, SECOND, Shape};

use crate::book::{self, Calls, Plan};
use crate::report::{Must, Row, median};

/// Streams behind one batch of progress.
const STREAMS: u64 = 100;
/// Streams in one flush.
const FLUSHED: u64 = 10_000;
/// Flushes whose median is taken.
const FLUSHES: usize = 50;
const GATEWAY: u64 = 7;
const EVERY: Micros = 2 * SECOND;
const START: Micros = 1_800_000_000 * SECOND;

/// Engine time that goes on by whole flushes.
struct Moved(AtomicU64);

impl Clock for Moved {
    fn now(&self) -> Micros {
        self.0.load(Ordering::Relaxed)
    }
}

pub async fn rows(plan: Plan) -> Result<Vec<Row>> {
    let (mut pairs, mut flushes) = (Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        pairs.push(planned_pairs(plan.round).await?);
        flushes.push(flush().await?);
    }
    let must = Some(Must::ValueAtLeast(100_000.0));
    Ok(vec![
        Row::single("memory engine, forecast with progress, pairs/s and core", "1/s", median(pairs), must),
        Row::single(
            "flush of 10,000 streams of one account",
            "µs",
            median(flushes),
            Some(Must::ValueAtMost(1_000.0)),
        ),
    ])
}

async fn planned_pairs(time: Duration) -> Result<f64> {
    let dir = tempfile::tempdir()?;
    let engine = MemoryEngine::open(Some(dir.path()), Options::default())?.engine;
    let shards = engine.shards();
    let now = engine.journal_read(Shard(0), Cursor::default(), 1).await?.now;
    let mut callers: Vec<(Calls, Batches)> = book::callers(now, shards.len(), planned)
        .into_iter()
        .map(|calls| {
            let batches = Batches::new(&calls, now);
            (calls, batches)
        })
        .collect();
    let started = Instant::now();
    let cpu = book::cpu_time(ClockId::ProcessCPUTime);
    let (mut pairs, mut id) = (0_u64, 0_u128);
    while started.elapsed() < time {
        for _ in 0..16 {
            for ((reserve, settle), batches) in &mut callers {
                id += 1;
                reserve.reserve.id = ReservationId(id);
                settle.claim.id = ReservationId(id);
                let reply = engine.reserve(reserve).await?;
                let Answered::Admit(_) = reply.value else { bail!("not admitted: {:?}", reply.value) };
                engine.progress(batches.next(reply.now)).await?;
                let before = engine.settle(settle).await?.value.before;
                ensure!(before == Met::Held, "not settled: {before:?}");
                pairs += 1;
            }
        }
        book::drain(&engine, &shards).await?;
    }
    let used = book::cpu_time(ClockId::ProcessCPUTime).saturating_sub(cpu);
    engine.close()?;
    Ok(pairs as f64 / used.as_secs_f64())
}

/// llm_tokens per minute are planned; everything else stays as it is.
fn planned(leg: &mut tollbook_ledger::Leg) {
    if leg.measure == Measure::Tokens && matches!(leg.shape, Shape::Rate { .. }) {
        leg.shape = Shape::Forecast { window: 60, strict: false };
        for limit in &mut leg.limits {
            limit.ceiling = 8_000_000_000;
        }
    }
}

/// The batches of a caller's levels: now what 100 streams have landed and expect, now all of it taken back.
struct Batches {
    call: ProgressCall,
    seq: u64,
}

impl Batches {
    fn new((reserve, _): &Calls, now: Micros) -> Self {
        let planned = |leg: &&tollbook_ledger::Leg| matches!(leg.shape, Shape::Forecast { .. });
        let batches = reserve.reserve.legs.iter().filter(planned).map(|leg| {
            let mut share = Share::new(leg.account, 60, now);
            for number in 0..STREAMS {
                let mut stream = Stream::admitted(now, Profile::default(), 400 + number, 4_096);
                let told = stream.flush(now + EVERY, seen(now, number, EVERY));
                share.land(now + EVERY, told.landed, 1000);
                share.come(told.coming, 1000);
            }
            share
                .flush(now + EVERY, GATEWAY)
                .unwrap_or_else(|| unreachable!("a hundred streams have landed something"))
        });
        Self { call: ProgressCall { shard: reserve.shard, batches: batches.collect() }, seq: 0 }
    }

    fn next(&mut self, now: Micros) -> &ProgressCall {
        self.seq += 1;
        for batch in &mut self.call.batches {
            (batch.seq, batch.base_second) = (self.seq, now / SECOND);
            for delta in &mut batch.deltas {
                *delta = -*delta;
            }
            if self.seq == 1 {
                batch.deltas.iter_mut().for_each(|delta| *delta = delta.abs());
            }
        }
        &self.call
    }
}

/// Microseconds of one flush: the streams, the batch, the engine with its log.
async fn flush() -> Result<f64> {
    let dir = tempfile::tempdir()?;
    let clock = Arc::new(Moved(AtomicU64::new(START)));
    let options = Options { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..Options::default() };
    let engine = MemoryEngine::open(Some(dir.path()), options)?.engine;
    let start = START;
    let account = AccountId { subject: tollbook_ledger::SubjectId(1), name: 1 };
    open(&engine, account).await?;
    let mut share = Share::new(account, 60, start);
    let mut streams: Vec<Stream> = (0..FLUSHED)
        .map(|number| Stream::admitted(start, Profile::default(), 300 + number % 900, 8_192))
        .collect();
    let mut took = Vec::with_capacity(FLUSHES);
    let mut now = start;
    for _ in 0..FLUSHES {
        now += EVERY;
        clock.0.store(now, Ordering::Relaxed);
        let began = Instant::now();
        for (number, stream) in (0..).zip(&mut streams) {
            let told = stream.flush(now, seen(start, number, now - start));
            share.land(now, told.landed, 1000);
            share.come(told.coming, 1000);
        }
        if let Some(batch) = share.flush(now, GATEWAY) {
            let seq = batch.seq;
            engine.progress(&ProgressCall { shard: Shard(0), batches: vec![batch] }).await?;
            share.acknowledged(seq);
        }
        took.push(began.elapsed().as_secs_f64() * 1e6);
    }
    engine.close()?;
    Ok(median(took))
}

/// The account exists once a call was admitted on it.
async fn open(engine: &MemoryEngine, account: AccountId) -> Result<()> {
    let now = engine.journal_read(Shard(0), Cursor::default(), 1).await?.now;
    let Some((mut reserve, _)) = book::callers(now, 1, planned).into_iter().next() else {
        bail!("no caller")
    };
    reserve.shard = Shard(0);
    reserve.reserve.id = ReservationId(1);
    reserve.reserve.legs.retain(|leg| matches!(leg.shape, Shape::Forecast { .. }));
    reserve.reserve.legs.truncate(1);
    for leg in &mut reserve.reserve.legs {
        leg.account = account;
    }
    match engine.reserve(&reserve).await?.value {
        Answered::Admit(_) => Ok(()),
        other => bail!("not admitted: {other:?}"),
    }
}

/// A stream of its own pace that began half a second after its admission.
fn seen(admitted: Micros, number: u64, since: Micros) -> Seen {
    let pace = 15_000 + number % 40 * 1_000;
    let first = admitted + SECOND / 2;
    Seen::Output { output: since.saturating_sub(SECOND / 2) / pace, first }
}
