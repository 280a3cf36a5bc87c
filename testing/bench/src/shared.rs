//! What one call costs the server of a shared book: CPU time of its process for a reserve and a settle.
//!
//! The baseline is the literal layout of the ledger paper, one level with requests and llm_tokens per minute: a key for each
//! bucket, a key for what is in flight, one script to admit and one to settle; with windows of 7 × 10 s as there, and of
//! 61 × 1 s as ours. Ours keeps requests, llm_tokens, daily llm_tokens and daily cost at each level, learns, remembers ends
//! for repeats, and writes the journal's entry; all of that is in the figure.

mod floor;
mod growth;
mod near;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures_util::future::try_join_all;
use tollbook_engine::{Cursor, Engine, Shard, Verdict};
use tollbook_engine_redis::{Link, Options, RedisEngine, Script};
use tollbook_ledger::{Measure, Met, ReservationId, SECOND, Shape};
use tollbook_redis_world::{Plan as Start, Server};

use crate::book::{self, Calls, Plan};
use crate::process::cpu_nanos_of;
use crate::report::{Must, Row, median};

pub use growth::rows as growth_rows;

/// Calls under way at a time: as many as share one round trip of the connection.
const TOGETHER: usize = 16;
/// Pairs between two looks at the clock.
const ROUND: usize = 256;
/// Longest the server may take to answer at first.
const FIRST_ANSWER: Duration = Duration::from_secs(10);
/// llm_tokens of a call of the baseline: expected and used.
const EXPECTED: &str = "256";
const USED: &str = "200";

const ADMIT: &str = "
if redis.call('EXISTS', KEYS[1]) == 1 then return 1 end
local n = (#KEYS - 4) / 2
local requests, tokens = 0, tonumber(redis.call('GET', KEYS[2]) or 0)
for i = 5, 4 + n do requests = requests + tonumber(redis.call('GET', KEYS[i]) or 0) end
for i = 5 + n, 4 + 2 * n do tokens = tokens + tonumber(redis.call('GET', KEYS[i]) or 0) end
local mean = tonumber(redis.call('GET', KEYS[4]) or ARGV[2])
if requests + 1 > tonumber(ARGV[3]) or tokens + mean > tonumber(ARGV[4]) then return 0 end
redis.call('INCRBY', KEYS[5], 1)
redis.call('EXPIRE', KEYS[5], 120)
redis.call('INCRBY', KEYS[2], mean)
redis.call('HSET', KEYS[1], 'held', mean, 'at', ARGV[5])
redis.call('EXPIRE', KEYS[1], 120)
redis.call('ZADD', KEYS[3], ARGV[5], ARGV[1])
return 1";

const SETTLE: &str = "
local held = redis.call('HGET', KEYS[1], 'held')
if not held then return 0 end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('DECRBY', KEYS[2], held)
redis.call('INCRBY', KEYS[5], ARGV[2])
redis.call('EXPIRE', KEYS[5], 120)
local mean = tonumber(redis.call('GET', KEYS[4]) or ARGV[2])
redis.call('SET', KEYS[4], math.floor(mean * 7 / 10 + tonumber(ARGV[2]) * 3 / 10))
return 1";

pub async fn rows(plan: Plan) -> Result<Vec<Row>> {
    let (mut one, mut three, mut wide, mut planned) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut by_forecast, mut looked, mut denied) = (Vec::new(), Vec::new(), Vec::new());
    let mut flushes = Vec::new();
    for _ in 0..plan.rounds {
        let plain = paper(plan.round, 7, 10).await?;
        wide.push((plain, paper(plan.round, 61, 1).await?));
        one.push((plain, ours(plan.round, 1, false).await?));
        let held = ours(plan.round, 3, false).await?;
        let forecast = ours(plan.round, 3, true).await?;
        three.push((plain, held));
        planned.push((plain, forecast));
        by_forecast.push((held, forecast));
        looked.push((held, near::admitted(plan.round).await?));
        denied.push((held, near::denied(plan.round).await?));
        flushes.push(near::progress(plan.round).await?);
    }
    let row = |what, rounds: &[(f64, f64)], must| Row::compared(what, "µs", rounds, must);
    let near = Some(Must::RatioAtMost(4.0));
    Ok(vec![
        row("Redis CPU per call, the paper's layout with 61 × 1 s", &wide, None),
        row("Redis CPU per call, one level", &one, Some(Must::RatioAtMost(0.6))),
        row("Redis CPU per call, three levels", &three, Some(Must::RatioAtMost(1.25))),
        row("Redis CPU per call, three levels, forecast", &planned, None),
        row("the same, against held", &by_forecast, Some(Must::RatioAtMost(1.5))),
        row("near the limit and admitted, against held", &looked, near),
        row("near the limit and denied, against held", &denied, near),
        Row::single("a progress of three levels, 30 seconds each", "µs", median(flushes), None),
    ])
}

async fn connected(server: &Server) -> Result<Link> {
    let mut options = Options::parse(&server.url())?;
    options.deadline = FIRST_ANSWER;
    options.connections = 1;
    let link = Link::open(&options)?;
    let began = Instant::now();
    // The first connection is made in the background.
    while let Err(error) = link.call(&Script::new("return 1"), &[b"k".to_vec()], &[]).await {
        ensure!(began.elapsed() < FIRST_ANSWER, "the server does not answer: {error}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(link)
}

/// Microseconds of the server's CPU for each pair.
async fn per_pair<F: Future<Output = Result<()>>>(
    server: &Server,
    time: Duration,
    mut pair: impl FnMut(usize, u128) -> F,
) -> Result<f64> {
    let pid = server.pid().context("the server runs")?;
    let (mut pairs, mut id) = (0_usize, 0_u128);
    let mut begun = None;
    let started = Instant::now();
    loop {
        for _ in 0..ROUND / TOGETHER {
            let some = (0..TOGETHER).map(|caller| {
                id += 1;
                pair(caller, id)
            });
            try_join_all(some).await?;
        }
        match begun {
            // The first round brings the scripts and opens the accounts.
            None => begun = Some(cpu_nanos_of(pid)?),
            Some(_) => pairs += ROUND,
        }
        if started.elapsed() >= time && pairs > 0 {
            let used = cpu_nanos_of(pid)?.saturating_sub(begun.unwrap_or_default());
            return Ok(used as f64 / 1e3 / pairs as f64);
        }
    }
}

/// The literal layout, with as many buckets of so many seconds.
async fn paper(time: Duration, buckets: u64, width: u64) -> Result<f64> {
    let server = Start::redis().start();
    let link = connected(&server).await?;
    let (admit, settle) = (Script::new(ADMIT), Script::new(SETTLE));
    let (link, admit, settle) = (&link, &admit, &settle);
    per_pair(&server, time, |caller, id| paper_pair((link, admit, settle), (buckets, width), caller, id))
        .await
}

/// One call by the literal layout.
async fn paper_pair(
    (link, admit, settle): (&Link, &Script, &Script),
    (buckets, width): (u64, u64),
    caller: usize,
    id: u128,
) -> Result<()> {
    // The windows stand still, as the keys of the buckets in a whole minute do.
    let now = 1_800_000_000_u64;
    let newest = now / width;
    let key = |name: String| format!("{{{caller}}}:{name}").into_bytes();
    let mut keys =
        vec![key(format!("hold:{id}")), key("inflight".into()), key("expiry".into()), key("ema".into())];
    for kind in ["rpm", "tpm"] {
        keys.extend((0..buckets).map(|age| key(format!("{kind}:{}", newest - age))));
    }
    let text = |text: &str| text.as_bytes().to_vec();
    let (id, deadline) = (text(&id.to_string()), text(&(now + 60).to_string()));
    let args = [id.clone(), text(EXPECTED), text("1000000000000"), text("1000000000000000"), deadline];
    link.call(admit, &keys, &args).await?;
    let spent = keys.get(4 + usize::try_from(buckets)?).context("a bucket")?.clone();
    let keys: Vec<_> = keys.into_iter().take(4).chain([spent]).collect();
    link.call(settle, &keys, &[id, text(USED)]).await?;
    Ok(())
}

/// So many pairs of one caller, one after the other, and nothing else: for a profiler around the server. No levels: the
/// literal layout. A floor: the indispensable commands alone.
pub async fn pairs(levels: usize, planned: bool, is_floor: bool, count: usize) -> Result<()> {
    let (server, engine) = started().await?;
    let mut callers = callers(&engine, levels.max(1), planned).await?;
    callers.truncate(1);
    let link = connected(&server).await?;
    let (admit, settle) = (Script::new(ADMIT), Script::new(SETTLE));
    let floor = if is_floor { Some(floor::Floor::new(&link, levels).await?) } else { None };
    for id in 1..=u128::try_from(count)? {
        if let Some(floor) = &floor {
            floor.pair(&link, id).await?;
        } else if levels == 0 {
            paper_pair((&link, &admit, &settle), (7, 10), 0, id).await?;
        } else {
            pair(&engine, callers.first(), id).await?;
        }
    }
    // The profiler writes when the server ends by itself; the connection ends without an answer.
    let _ = server.try_ask(&["SHUTDOWN", "NOSAVE"]);
    let began = Instant::now();
    let runs = |pid| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok();
    while server.pid().is_some_and(runs) && began.elapsed() < FIRST_ANSWER {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Requests, llm_tokens, daily llm_tokens and daily cost at so many levels; a call has one estimator, that of its key and
/// model.
async fn ours(time: Duration, levels: usize, planned: bool) -> Result<f64> {
    let (server, engine) = started().await?;
    let callers = callers(&engine, levels, planned).await?;
    let (engine, callers) = (&engine, &callers);
    per_pair(&server, time, |caller, id| async move { pair(engine, callers.get(caller), id).await }).await
}

async fn started() -> Result<(Server, RedisEngine)> {
    let server = Start::redis().start();
    let engine = RedisEngine::new(connected(&server).await?, "tb");
    Ok((server, engine))
}

async fn callers(engine: &RedisEngine, levels: usize, planned: bool) -> Result<Vec<Calls>> {
    let now = engine.journal_read(Shard(0), Cursor::default(), 1).await?.now;
    Ok(book::callers(now, 256, |_| {}).into_iter().map(|calls| at_levels(calls, levels, planned)).collect())
}

/// One call from its reserve to its settle.
async fn pair(engine: &RedisEngine, calls: Option<&Calls>, id: u128) -> Result<()> {
    let (mut reserve, mut settle) = calls.context("a caller")?.clone();
    reserve.reserve.id = ReservationId(id);
    settle.claim.id = ReservationId(id);
    match engine.reserve(&reserve).await?.value {
        Verdict::Admit(_) => {}
        other => bail!("not admitted: {other:?}"),
    }
    let before = engine.settle(&settle).await?.value.before;
    ensure!(before == Met::Held, "not settled: {before:?}");
    Ok(())
}

/// The call with one more leg for each level, at as many levels as wanted.
fn at_levels((mut reserve, mut settle): Calls, levels: usize, planned: bool) -> Calls {
    let mut legs = Vec::new();
    let per_level = reserve.reserve.legs.len() / 3;
    for level in reserve.reserve.legs.chunks(per_level.max(1)).take(levels) {
        legs.extend_from_slice(level);
        if let Some(daily) = level.last() {
            let mut cost = daily.clone();
            (cost.measure, cost.account.name) = (Measure::Cost, daily.account.name + 1);
            legs.push(cost);
        }
    }
    let estimator = legs.first().map(|leg| leg.estimator);
    for leg in &mut legs {
        leg.estimator = estimator.unwrap_or(leg.estimator);
        if planned && leg.measure == Measure::Tokens && matches!(leg.shape, Shape::Rate { width: SECOND, .. })
        {
            leg.shape = Shape::Forecast { window: 60, strict: false };
            for limit in &mut leg.limits {
                limit.ceiling = 8_000_000_000;
            }
        }
    }
    settle.accounts = legs.iter().map(|leg| leg.account).collect();
    settle.actual = legs.iter().map(|leg| if leg.measure == Measure::Requests { 1 } else { 120 }).collect();
    reserve.reserve.legs = legs;
    (reserve, settle)
}
