//! Spread, latency and growth of the shared book: what the cost of a call must not depend on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures_util::future::try_join_all;
use tollbook_engine::{Cursor, Engine, ReserveCall, Shard, Verdict};
use tollbook_engine_redis::RedisEngine;
use tollbook_ledger::{Met, ReservationId};
use tollbook_redis_world::{Plan as Start, Server};

use super::{TOGETHER, at_levels, connected};
use crate::book::{self, Calls, Plan};
use crate::process::cpu_nanos_of;
use crate::report::{Must, Row};

/// What the cost of a call must not depend on: `past` calls are the last figure.
pub async fn rows(plan: Plan, past: usize) -> Result<Vec<Row>> {
    let mut rows = spread(plan).await?;
    rows.extend(growth(plan, past).await?);
    Ok(rows)
}

/// One hot key, and ten thousand keys in turn: CPU, latency, what one core of the server does, and what it found slow.
async fn spread(plan: Plan) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (keys, what) in [(1, "one hot key"), (MANY_KEYS, "10,000 keys")] {
        let world = World::start(keys, 3, false).await?;
        while world.next.load(Ordering::Relaxed) <= u64::try_from(2 * keys)? {
            world.pairs(plan.round / 4).await?;
        }
        let mut seen = world.pairs(plan.round).await?;
        seen.verbs.sort_unstable();
        let at = |part: usize| seen.verbs.get(seen.verbs.len() * part / 1_000).copied().unwrap_or_default();
        let slow = world.server.ask(&["SLOWLOG", "LEN"]).int().context("the length of the slow log")?;
        let name = |of: &str| format!("{what}, three levels: {of}");
        rows.push(Row::single(&name("Redis CPU per call"), "µs", seen.micros, None));
        rows.push(Row::single(&name("calls per second of a Redis core"), "1/s", 1e6 / seen.micros, None));
        rows.push(Row::single(&name("a verb, 16 under way, p50"), "µs", at(500).as_micros() as f64, None));
        rows.push(Row::single(&name("a verb, 16 under way, p99"), "µs", at(990).as_micros() as f64, None));
        rows.push(Row::single(&name("in the slow log"), "", slow as f64, Some(Must::ValueAtMost(0.0))));
    }
    Ok(rows)
}

/// CPU with many calls in flight, and after many that are past, against a server with few; they take turns.
async fn growth(plan: Plan, wanted: usize) -> Result<Vec<Row>> {
    let (few, many) = (World::start(TOGETHER, 3, false).await?, World::start(TOGETHER, 3, false).await?);
    few.hold(IN_FLIGHT.0).await?;
    many.hold(IN_FLIGHT.1).await?;
    let in_flight = turns(plan, &few, &many).await?;
    let mut past = 0;
    while past < wanted {
        past += few.pairs(plan.round).await?.verbs.len() / 2;
        few.drop_journals();
    }
    let new = World::start(TOGETHER, 3, false).await?;
    new.hold(IN_FLIGHT.0).await?;
    let after = turns(plan, &new, &few).await?;
    let flat = Some(Must::RatioAtMost(1.25));
    Ok(vec![
        Row::compared("Redis CPU per call, 10 → 10,000 in flight", "µs", &in_flight, flat),
        Row::compared(&format!("Redis CPU per call, after {past} past calls"), "µs", &after, flat),
    ])
}

async fn turns(plan: Plan, one: &World, other: &World) -> Result<Vec<(f64, f64)>> {
    one.pairs(plan.round).await?;
    other.pairs(plan.round).await?;
    let mut rounds = Vec::new();
    for _ in 0..plan.rounds {
        rounds.push((one.pairs(plan.round).await?.micros, other.pairs(plan.round).await?.micros));
        one.drop_journals();
        other.drop_journals();
    }
    Ok(rounds)
}

/// Keys that have their turn, and calls in flight.
const MANY_KEYS: usize = 10_000;
const IN_FLIGHT: (usize, usize) = (10, 10_000);

/// A server with the shared book, and calls on so many keys.
struct World {
    server: Server,
    engine: RedisEngine,
    callers: Vec<Calls>,
    /// Of the next reservation.
    next: AtomicU64,
}

struct Seen {
    /// Of the server, per pair.
    micros: f64,
    /// How long each verb took.
    verbs: Vec<Duration>,
}

impl World {
    async fn start(keys: usize, levels: usize, planned: bool) -> Result<Self> {
        let server = Start::redis().start();
        let engine = RedisEngine::new(connected(&server).await?, "tb");
        let now = engine.journal_read(Shard(0), Cursor::default(), 1).await?.now;
        let some = book::callers(now, 256, |_| {});
        let of = |number: usize| -> Result<Calls> {
            let calls = some.get(number.checked_rem(some.len()).unwrap_or(0)).context("a caller")?;
            let (mut reserve, mut settle) = at_levels(calls.clone(), levels, planned);
            let shard = Shard(u8::try_from(number % 256)?);
            (reserve.shard, settle.claim.shard) = (shard, shard);
            // Its own subjects, beyond those of the others.
            let own = u64::try_from(number)? << 32;
            for leg in &mut reserve.reserve.legs {
                leg.account.subject.0 |= own;
            }
            settle.accounts = reserve.reserve.legs.iter().map(|leg| leg.account).collect();
            Ok((reserve, settle))
        };
        let callers: Result<Vec<Calls>> = (0..keys).map(of).collect();
        Ok(Self { server, engine, callers: callers?, next: AtomicU64::new(1) })
    }

    async fn reserve(&self, call: &ReserveCall) -> Result<()> {
        match self.engine.reserve(call).await?.value {
            Verdict::Admit(_) => Ok(()),
            other => bail!("not admitted: {other:?}"),
        }
    }

    /// So many calls that do not end.
    async fn hold(&self, count: usize) -> Result<()> {
        for id in 0..count {
            let (mut reserve, _) = self.callers.get(id % self.callers.len()).context("a caller")?.clone();
            reserve.reserve.id = ReservationId(u128::MAX - u128::try_from(id)?);
            self.reserve(&reserve).await?;
        }
        Ok(())
    }

    /// What a gateway's drain would have taken.
    fn drop_journals(&self) {
        let text =
            "for s = 0, 255 do redis.call('DEL', 'tb:{' .. s .. '}:j') end return redis.status_reply('OK')";
        self.server.ask(&["EVAL", text, "0"]);
    }

    async fn pair(&self) -> Result<[Duration; 2]> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let at = usize::try_from(id)? % self.callers.len();
        let (mut reserve, mut settle) = self.callers.get(at).context("a caller")?.clone();
        reserve.reserve.id = ReservationId(u128::from(id));
        settle.claim.id = ReservationId(u128::from(id));
        let began = Instant::now();
        self.reserve(&reserve).await?;
        let reserved = began.elapsed();
        let before = self.engine.settle(&settle).await?.value.before;
        ensure!(before == Met::Held, "not settled: {before:?}");
        Ok([reserved, began.elapsed().saturating_sub(reserved)])
    }

    /// Pairs for a time.
    async fn pairs(&self, time: Duration) -> Result<Seen> {
        let pid = self.server.pid().context("the server runs")?;
        let (begun, started, mut verbs) = (cpu_nanos_of(pid)?, Instant::now(), Vec::new());
        while started.elapsed() < time {
            for both in try_join_all((0..TOGETHER).map(|_| self.pair())).await? {
                verbs.extend(both);
            }
        }
        let used = cpu_nanos_of(pid)?.saturating_sub(begun);
        Ok(Seen { micros: used as f64 / 1e3 / (verbs.len() / 2) as f64, verbs })
    }
}
