//! A look at one shard, for people: its accounts and estimators by a walk over the book, its live reservations by the due
//! set.
//!
//! Read in steps, so what changes in between may be seen twice or not at all, and each step is short for a server that
//! others need. Nothing is written.

use std::collections::BTreeSet;

use tollbook_engine::ledger::{AccountId, EstimatorId, EstimatorKind, ReservationId};
use tollbook_engine::{
    ATTEMPTS_SHOWN, Balance, Claim, EngineError, Learned, LiveHold, LiveLeg, Reply, Shard, Survey,
};

use crate::engine::RedisEngine;
use crate::keys;
use crate::pack::{Raw, packed};
use crate::reply::{self, Items, Odd};

/// Reservations, estimators or accounts asked for in one script.
const STEP: usize = 64;
/// Fields of the book, or members of the due set, read at once.
const PAGE: usize = 512;
/// Fields of the book that are walked over for each row that is asked for. An account has up to three and an estimator one, so
/// a book with more fields keeps more of one of them than was asked for.
const FIELDS_PER_ROW: usize = 8;

/// At most `most` of each kind.
pub(crate) async fn survey(
    engine: &RedisEngine,
    shard: Shard,
    most: usize,
) -> Result<Reply<Survey>, EngineError> {
    let book = Walked::over(engine, shard, most.saturating_mul(FIELDS_PER_ROW)).await?;
    let live = live(engine, shard, most.saturating_add(1)).await?;
    let more =
        book.is_cut || [book.accounts.len(), book.estimators.len(), live.len()].iter().any(|n| *n > most);

    let accounts: Vec<AccountId> = book.accounts.into_iter().take(most).collect();
    let mut survey =
        Survey { accounts: balances(engine, shard, &accounts).await?, more, ..Survey::default() };
    let claims: Vec<Claim> = live.into_iter().take(most).collect();
    for some in claims.chunks(STEP) {
        step(engine, shard, some, &[], &mut survey).await?;
    }
    let estimators: Vec<EstimatorId> = book.estimators.into_iter().take(most).collect();
    for some in estimators.chunks(STEP) {
        step(engine, shard, &[], some, &mut survey).await?;
    }
    // With nothing to look at too: epoch and time come from a script.
    let Reply { epoch, now, value: () } = step(engine, shard, &[], &[], &mut survey).await?;
    Ok(Reply { epoch, now, value: survey })
}

/// The attempts of a reservation that have not ended.
pub(crate) async fn of_reservation(
    engine: &RedisEngine,
    shard: Shard,
    id: ReservationId,
) -> Result<Reply<Vec<LiveHold>>, EngineError> {
    let claims: Vec<Claim> = (0..ATTEMPTS_SHOWN).map(|attempt| Claim { shard, id, attempt }).collect();
    let mut found = Survey::default();
    let Reply { epoch, now, value: () } = step(engine, shard, &claims, &[], &mut found).await?;
    Ok(Reply { epoch, now, value: found.holds })
}

/// What the fields of a book name; a walk may meet a field twice.
#[derive(Default)]
struct Walked {
    accounts: BTreeSet<AccountId>,
    estimators: BTreeSet<EstimatorId>,
    /// There are more fields than were walked over.
    is_cut: bool,
}

impl Walked {
    /// Ends with the page in which so many fields are reached.
    async fn over(engine: &RedisEngine, shard: Shard, most: usize) -> Result<Self, EngineError> {
        let (key, page) = (engine.keys(shard).own("b"), PAGE.to_string());
        let (mut walked, mut seen, mut cursor) = (Self::default(), 0_usize, "0".to_owned());
        loop {
            let scan: [&[u8]; 3] = [cursor.as_bytes(), b"COUNT", page.as_bytes()];
            let mut scanned = Items::of(engine.command("HSCAN", &key, &scan).await?)?;
            cursor = scanned.text()?;
            let mut found = scanned.items()?;
            while !found.is_empty() {
                let (field, _) = (found.bytes()?, found.bytes()?);
                walked.accounts.extend(keys::account_of(&field));
                walked.estimators.extend(keys::estimator_of(&field));
                seen = seen.saturating_add(1);
            }
            if cursor == "0" {
                return Ok(walked);
            }
            if seen >= most {
                return Ok(Self { is_cut: true, ..walked });
            }
        }
    }
}

/// So many of the live reservations, those due soonest first.
async fn live(engine: &RedisEngine, shard: Shard, most: usize) -> Result<Vec<Claim>, EngineError> {
    let key = engine.keys(shard).own("due");
    let (mut claims, mut known) = (Vec::new(), BTreeSet::new());
    for from in (0..most).step_by(PAGE) {
        let to = from.saturating_add(PAGE).min(most).saturating_sub(1);
        let page =
            engine.command("ZRANGE", &key, &[from.to_string().as_bytes(), to.to_string().as_bytes()]).await?;
        let page = Items::of(page)?.all(|items| reply::due(&items.bytes()?, shard))?;
        let is_last = page.len() < PAGE;
        let claimed = page.into_iter().map(|due| due.claim);
        claims.extend(claimed.filter(|claim| known.insert((claim.id, claim.attempt))));
        if is_last {
            break;
        }
    }
    Ok(claims)
}

async fn balances(
    engine: &RedisEngine,
    shard: Shard,
    accounts: &[AccountId],
) -> Result<Vec<Balance>, EngineError> {
    let mut found = Vec::with_capacity(accounts.len());
    for some in accounts.chunks(STEP) {
        found.extend(engine.balances_call(shard, some).await?.value.into_iter().flatten());
    }
    Ok(found)
}

async fn step(
    engine: &RedisEngine,
    shard: Shard,
    claims: &[Claim],
    estimators: &[EstimatorId],
    into: &mut Survey,
) -> Result<Reply<()>, EngineError> {
    let mut named = engine.keys(shard);
    for claim in claims {
        named = named.reservation(claim.id, claim.attempt);
    }
    let estimators: Vec<_> = estimators.iter().map(|id| Raw(keys::estimator(*id))).collect();
    let args = packed(&estimators);
    let said = engine.call(&engine.scripts.survey, &named, vec![args]).await?;
    let mut items = Items::of(said.value)?;
    into.holds.extend(items.each(|items| hold(items, claims))?);
    into.learned.extend(items.each(learned)?);
    Ok(Reply { epoch: said.epoch, now: said.now, value: () })
}

fn hold(items: &mut Items, claims: &[Claim]) -> Result<LiveHold, Odd> {
    let mut items = items.items()?;
    let claim = claims.get(items.index()?).ok_or(Odd("reservation"))?;
    Ok(LiveHold {
        id: claim.id,
        attempt: claim.attempt,
        age: items.number()?,
        due: items.number()?,
        sent: items.flag()?,
        context: items.bytes()?,
        legs: items.each(leg)?,
    })
}

fn leg(items: &mut Items) -> Result<LiveLeg, Odd> {
    let mut items = items.items()?;
    Ok(LiveLeg {
        account: reply::account(&mut items)?,
        place: items.number()?,
        held: items.number()?,
        decided: items.number()?,
        output: items.number()?,
    })
}

fn learned(items: &mut Items) -> Result<Learned, Odd> {
    let mut items = items.items()?;
    Ok(Learned {
        id: keys::estimator_id(&items.bytes()?).ok_or(Odd("estimator"))?,
        kind: match items.number()? {
            1 => EstimatorKind::Ema,
            2 => EstimatorKind::RecentMean,
            3 => EstimatorKind::P95,
            4 => EstimatorKind::Forecast,
            _ => return Err(Odd("estimator")),
        },
        calls: items.number()?,
        mean: items.number()?,
        samples: items.number()?,
        idle: items.number()?,
    })
}
