//! A simple load: calls whose legs follow from their id, so that anyone can check what became of them.

use std::collections::BTreeMap;

use tollbook_engine::ledger::{AccountId, End, Measure, Micros, Profile, ReservationId};
use tollbook_engine::{
    Claim, Cursor, Engine, EngineError, JournalRecord, ReserveCall, SettleCall, Shard, Verdict,
};
use tollbook_engine_memory::MemoryEngine;
use tollbook_engine_suite::legs::{H, R, account, daily, rpm, tpm};
use tollbook_engine_suite::wait;

/// What the call with this id costs.
pub(crate) fn cost(id: u128) -> u64 {
    u64::try_from(id % 97).unwrap() + 1
}

pub(crate) fn shard(id: u128) -> Shard {
    Shard(u8::try_from(id % 4).unwrap())
}

/// Accounts are per shard, as subjects are.
fn name(id: u128, what: &str) -> String {
    format!("t{}:{what}", shard(id).0)
}

pub(crate) fn quota(shard: Shard) -> AccountId {
    account(&format!("t{}:cost", shard.0))
}

pub(crate) fn call(id: u128, now: Micros) -> ReserveCall {
    let most = 1 << 50;
    let legs = vec![
        rpm(&name(id, "rpm"), most),
        tpm(&name(id, "tpm"), most, cost(id)),
        daily(&name(id, "cost"), Measure::Cost, most, cost(id)),
    ];
    let mut call =
        R { id, attempt: 1, life: H, legs, context: b"context".to_vec(), profile: Profile::default() }
            .at(now);
    call.shard = shard(id);
    call
}

pub(crate) fn settle_call(id: u128) -> SettleCall {
    let claim = Claim { shard: shard(id), id: ReservationId(id), attempt: 1 };
    let actual = vec![1, cost(id), cost(id)];
    SettleCall {
        claim,
        accounts: Vec::new(),
        actual,
        landed: 0,
        learn: None,
        entry: id.to_le_bytes().to_vec(),
        age: 0,
    }
}

pub(crate) fn reserve(engine: &dyn Engine, id: u128, now: Micros) -> Result<Verdict, EngineError> {
    wait(engine.reserve(&call(id, now))).map(|reply| reply.value)
}

pub(crate) fn settle(engine: &dyn Engine, id: u128) -> Result<(), EngineError> {
    wait(engine.settle(&settle_call(id))).map(|_| ())
}

/// What an engine knows of a call. A repeat would reserve an unknown one, so this only looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    No,
    Live,
    Settled,
}

pub(crate) fn known(engine: &dyn Engine, id: u128) -> Known {
    let what = tollbook_engine::Inspection::Reservation(ReservationId(id));
    let text = wait(engine.inspect(shard(id), &what)).unwrap().value;
    if text.starts_with("no such") {
        return Known::No;
    }
    let now = wait(engine.due(shard(id), 1)).unwrap().now;
    match reserve(engine, id, now).unwrap() {
        Verdict::Admit(_) => Known::Live,
        Verdict::Ended(End::Settled) => Known::Settled,
        other => panic!("{other:?}"),
    }
}

/// What an engine knows of every call.
pub(crate) fn all_known(engine: &MemoryEngine) -> BTreeMap<u128, Known> {
    let mut all = BTreeMap::new();
    for row in dump(engine) {
        let state = match row.split_once('(') {
            Some(("Live", _)) => Known::Live,
            Some(("Tombstone", _)) if row.contains("end: Settled") => Known::Settled,
            _ => continue,
        };
        let id = row.split_once("ReservationId(").and_then(|(_, rest)| rest.split_once(')'));
        all.insert(id.unwrap().0.parse().unwrap(), state);
    }
    all
}

/// Reads and trims the whole journal of one shard.
pub(crate) fn drain(engine: &dyn Engine, shard: Shard) -> Vec<JournalRecord> {
    let mut all = Vec::new();
    loop {
        let after = all.last().map_or(Cursor(0), |last: &JournalRecord| last.cursor);
        let batch = wait(engine.journal_read(shard, after, 500)).unwrap().value;
        if batch.is_empty() {
            wait(engine.journal_trim(shard, after)).unwrap();
            return all;
        }
        all.extend(batch);
    }
}

/// (posted, held) of each shard's quota.
pub(crate) fn quotas(engine: &dyn Engine) -> BTreeMap<u8, (i64, i64)> {
    (0..4)
        .map(|shard| {
            let balances = wait(engine.balances(Shard(shard), &[quota(Shard(shard))])).unwrap().value;
            let standing = balances[0].map(|balance| (balance.standing.posted, balance.standing.held));
            (shard, standing.unwrap_or_default())
        })
        .collect()
}

/// Every row of every shard.
pub(crate) fn dump(engine: &MemoryEngine) -> Vec<String> {
    engine.shards().into_iter().flat_map(|shard| engine.dump(shard)).collect()
}
