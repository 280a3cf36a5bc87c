//! A forecast near its limit: the full look at the seconds behind and ahead, where the two sums prove nothing.
//!
//! Every second that an account keeps is full, those ahead half as much. Three quarters of what they hold together is room
//! that nothing shorter than the full look can prove; two thirds of what is behind are none.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tollbook_engine::{Cursor, Engine as _, ProgressCall, ReserveCall, Verdict};
use tollbook_engine_redis::RedisEngine;
use tollbook_ledger::{Progress, ReservationId, SECOND, Shape};
use tollbook_redis_world::Server;

use super::{callers, pair, per_pair, started};
use crate::book::Calls;

const GATEWAY: u64 = 7;
/// Seconds of the past that are filled, the current one among them, and of the time to come.
const BEHIND: u64 = 61;
const AHEAD: usize = 61;
/// In a second of the past; half of it is in one to come. Calls of a round are next to nothing beside it.
const FULL: i64 = 1_000_000;
/// The fullest window holds 60 million and more, behind and ahead together are 90: between them.
const ROOM: u64 = 75_000_000;
const NO_ROOM: u64 = 40_000_000;
/// Seconds that a flush of streams changes.
const FLUSHED: usize = 30;

/// Of a call that is admitted, to its end.
pub(super) async fn admitted(time: Duration) -> Result<f64> {
    let (server, engine, callers) = filled(ROOM).await?;
    let (engine, callers) = (&engine, &callers);
    per_pair(&server, time, |caller, id| async move { pair(engine, callers.get(caller), id).await }).await
}

/// Of a call that every level denies.
pub(super) async fn denied(time: Duration) -> Result<f64> {
    let (server, engine, callers) = filled(NO_ROOM).await?;
    let (engine, callers) = (&engine, &callers);
    per_pair(&server, time, |caller, id| async move {
        let mut reserve = callers.get(caller).context("a caller")?.0.clone();
        reserve.reserve.id = ReservationId(id);
        match engine.reserve(&reserve).await?.value {
            Verdict::Deny { .. } => Ok(()),
            other => bail!("not denied: {other:?}"),
        }
    })
    .await
}

/// Of a flush: one batch for each level.
pub(super) async fn progress(time: Duration) -> Result<f64> {
    let (server, engine, callers) = filled(ROOM).await?;
    let (engine, callers) = (&engine, &callers);
    let (first, began) = (second(engine, callers).await?, Instant::now());
    per_pair(&server, time, |caller, id| async move {
        let reserve = &callers.get(caller).context("a caller")?.0;
        // What one flush adds the next one takes back.
        let deltas = [if id % 32 < 16 { 1 } else { -1 }; FLUSHED];
        let now = first + began.elapsed().as_secs();
        engine.progress(&batches(reserve, now, u64::try_from(id)? + 1, &deltas)).await?;
        Ok(())
    })
    .await
}

/// Engine time.
async fn second(engine: &RedisEngine, callers: &[Calls]) -> Result<u64> {
    let (reserve, _) = callers.first().context("a caller")?;
    Ok(engine.journal_read(reserve.shard, Cursor::default(), 1).await?.now / SECOND)
}

fn batches(reserve: &ReserveCall, base_second: u64, seq: u64, deltas: &[i64]) -> ProgressCall {
    let planned = reserve.reserve.legs.iter().filter(|leg| matches!(leg.shape, Shape::Forecast { .. }));
    let batch = |leg: &tollbook_ledger::Leg| Progress {
        gateway: GATEWAY,
        account: leg.account,
        seq,
        base_second,
        deltas: deltas.to_vec(),
    };
    ProgressCall { shard: reserve.shard, batches: planned.map(batch).collect() }
}

/// A server whose callers' accounts are full, and the callers with so much room.
async fn filled(ceiling: u64) -> Result<(Server, RedisEngine, Vec<Calls>)> {
    let (server, engine) = started().await?;
    let mut callers = callers(&engine, 3, true).await?;
    let mut deltas = vec![FULL; usize::try_from(BEHIND)?];
    deltas.extend([FULL / 2; AHEAD]);
    for (number, calls) in (0..).zip(&callers) {
        pair(&engine, Some(calls), u128::MAX - number).await?;
    }
    let first = second(&engine, &callers).await? + 1 - BEHIND;
    for (reserve, _) in &mut callers {
        engine.progress(&batches(reserve, first, 1, &deltas)).await?;
        for leg in &mut reserve.reserve.legs {
            if matches!(leg.shape, Shape::Forecast { .. }) {
                leg.limits.iter_mut().for_each(|limit| limit.ceiling = ceiling);
            }
        }
    }
    Ok((server, engine, callers))
}
