//! The drift check of accounts that more reservations hold something of than one script is told of.
//!
//! All reservations are read in steps, then the accounts at one moment, then all reservations again. What changed in
//! between bears the time at which it did, by the server's clock: so it is known of nearly every reservation what it held
//! at that moment. Where it is not (it was renewed to another amount, or came and went in between), the account is looked
//! at again. A difference is told that two looks agree on.

use std::collections::{BTreeMap, BTreeSet};

use tollbook_engine::ledger::{AccountId, Attempt, ReservationId};
use tollbook_engine::{EngineError, Shard};

use crate::drift::{Checked, DECLARED_MAX, Part};
use crate::engine::RedisEngine;
use crate::pack::{self, packed};
use crate::reply::{Items, Odd};

/// Reservations of one subject that are looked at.
pub(crate) const WIDE_MAX: usize = 32_768;
/// How often; the first looks at all of its accounts, later ones at what is left.
const LOOKS_MAX: usize = 6;

type Place = (ReservationId, Attempt);
/// Account, by its place in the question; period; amount.
type Hold = (usize, u64, i64);

/// A reservation as it is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Seen {
    Gone,
    Live { admitted: u64, holds: Vec<Hold> },
    Ended { admitted: u64, at: u64 },
}

/// What a reservation held at the moment of the look.
#[derive(PartialEq, Eq, Debug)]
enum Held<'a> {
    Nothing,
    These(&'a [Hold]),
    /// The due set names it, and it is nowhere.
    Lost,
    /// One of two amounts, of these accounts.
    Unclear(&'a [Hold], &'a [Hold]),
    /// Of nobody knows which accounts.
    Unknown,
}

/// An account at the moment of the look.
#[derive(Debug)]
struct Row {
    version: u64,
    live: u64,
    held: Vec<(u64, i64)>,
}

/// The moment: as reservations are admitted, and as they end.
#[derive(Clone, Copy, Debug)]
struct Moment {
    now: u64,
    steady: u64,
}

/// One answer of the script.
struct Step {
    moment: Moment,
    seen: Vec<Seen>,
    rows: Vec<Option<Row>>,
}

impl RedisEngine {
    /// Which accounts of a part are not the sums of their live holds, however many these are.
    pub(crate) async fn check_wide(&self, shard: Shard, part: Part) -> Result<Checked, EngineError> {
        let (mut accounts, mut live) = (part.accounts, part.live);
        let (mut checked, mut suspected) = (Checked::default(), BTreeMap::new());
        for _ in 0..LOOKS_MAX {
            let subjects: BTreeSet<_> = accounts.iter().map(|account| account.subject).collect();
            let before = self.seen(shard, &accounts, &live).await?;
            let Step { moment, rows, .. } = self.holds(shard, &accounts, &[]).await?;
            let since = self.live_of(shard, &subjects).await?;
            let all = live.union(&since).copied().collect();
            let after = self.seen(shard, &accounts, &all).await?;
            let look = Look::of(accounts.len(), moment, &before, &after);
            let mut again = Vec::new();
            for (index, (account, row)) in accounts.iter().zip(&rows).enumerate() {
                let Some(row) = row else { continue };
                let Some(differences) = look.of_account(index, row) else {
                    again.push(*account);
                    continue;
                };
                let same: BTreeMap<u64, i64> =
                    differences.iter().map(|(period, held, sum)| (*period, held - sum)).collect();
                if same.is_empty() || suspected.get(account) == Some(&same) {
                    let version = row.version;
                    let told = differences.into_iter();
                    checked
                        .differences
                        .extend(told.map(|(period, held, sum)| (*account, period, held, sum, version)));
                } else {
                    suspected.insert(*account, same);
                    again.push(*account);
                }
            }
            (accounts, live) = (again, since);
            if accounts.is_empty() {
                break;
            }
        }
        checked.unconfirmed = accounts.len() as u64;
        Ok(checked)
    }

    async fn seen(
        &self,
        shard: Shard,
        accounts: &[AccountId],
        live: &BTreeSet<Place>,
    ) -> Result<BTreeMap<Place, Seen>, EngineError> {
        let live: Vec<Place> = live.iter().copied().collect();
        let mut all = BTreeMap::new();
        for some in live.chunks(DECLARED_MAX) {
            let step = self.holds(shard, accounts, some).await?;
            all.extend(some.iter().copied().zip(step.seen));
        }
        Ok(all)
    }

    async fn holds(&self, shard: Shard, accounts: &[AccountId], live: &[Place]) -> Result<Step, EngineError> {
        let names: Vec<_> = accounts.iter().map(pack::account).collect();
        let keys = live.iter().fold(self.keys(shard), |keys, (id, attempt)| keys.reservation(*id, *attempt));
        let said = self.call(&self.scripts.holds, &keys, vec![packed(&names)]).await?;
        let mut items = Items::of(said.value)?;
        let moment = Moment { now: said.now, steady: items.number()? };
        let seen = items.each(|items| seen(items, accounts.len()))?;
        let rows = items.each(row)?;
        if seen.len() != live.len() || rows.len() != accounts.len() {
            return Err(Odd("holds").into());
        }
        Ok(Step { moment, seen, rows })
    }
}

fn seen(items: &mut Items, accounts: usize) -> Result<Seen, Odd> {
    let mut items = items.items()?;
    if items.is_empty() {
        return Ok(Seen::Gone);
    }
    let (admitted, ended) = (items.number()?, items.signed()?);
    if let Ok(at) = u64::try_from(ended) {
        return Ok(Seen::Ended { admitted, at });
    }
    let holds = items.all(|items| Ok((items.index()?, items.number()?, items.signed()?)))?;
    if holds.iter().any(|(index, ..)| *index >= accounts) {
        return Err(Odd("account"));
    }
    Ok(Seen::Live { admitted, holds })
}

fn row(items: &mut Items) -> Result<Option<Row>, Odd> {
    let mut items = items.items()?;
    if items.is_empty() {
        return Ok(None);
    }
    let (version, live) = (items.number()?, items.number()?);
    let held = items.all(|items| Ok((items.number()?, items.signed()?)))?;
    Ok(Some(Row { version, live, held }))
}

/// What it held at a moment between the two times at which it was seen.
fn held<'a>(moment: Moment, before: Option<&'a Seen>, after: &'a Seen) -> Held<'a> {
    let before = before.unwrap_or(&Seen::Gone);
    match (before, after) {
        (Seen::Live { holds: first, .. }, Seen::Live { holds: second, .. }) => {
            if first == second {
                Held::These(first)
            } else {
                Held::Unclear(first, second)
            }
        }
        (_, Seen::Live { admitted, holds }) => {
            if *admitted > moment.now {
                Held::Nothing
            } else {
                Held::These(holds)
            }
        }
        (Seen::Live { holds, .. }, Seen::Ended { at, .. }) => {
            if *at > moment.steady {
                Held::These(holds)
            } else {
                Held::Nothing
            }
        }
        (_, Seen::Ended { admitted, at }) => {
            if *admitted > moment.now || *at <= moment.steady {
                Held::Nothing
            } else {
                Held::Unknown
            }
        }
        (Seen::Gone, Seen::Gone) => Held::Lost,
        (_, Seen::Gone) => Held::Unknown,
    }
}

/// What all reservations together held at the moment.
struct Look {
    sums: BTreeMap<(usize, u64), i64>,
    counts: Vec<u64>,
    is_unclear: Vec<bool>,
    lost: u64,
}

impl Look {
    fn of(
        accounts: usize,
        moment: Moment,
        before: &BTreeMap<Place, Seen>,
        after: &BTreeMap<Place, Seen>,
    ) -> Self {
        let (counts, is_unclear) = (vec![0; accounts], vec![false; accounts]);
        let mut look = Self { sums: BTreeMap::new(), counts, is_unclear, lost: 0 };
        for (place, after) in after {
            match held(moment, before.get(place), after) {
                Held::Nothing => {}
                Held::These(holds) => holds.iter().for_each(|hold| look.add(*hold)),
                Held::Lost => look.lost += 1,
                Held::Unclear(first, second) => {
                    for (index, ..) in first.iter().chain(second) {
                        look.blur(*index);
                    }
                }
                Held::Unknown => look.is_unclear.fill(true),
            }
        }
        look
    }

    fn add(&mut self, (index, period, amount): Hold) {
        let sum = self.sums.entry((index, period)).or_default();
        *sum = sum.saturating_add(amount);
        if let Some(count) = self.counts.get_mut(index) {
            *count += 1;
        }
    }

    fn blur(&mut self, index: usize) {
        if let Some(is_unclear) = self.is_unclear.get_mut(index) {
            *is_unclear = true;
        }
    }

    /// Period, held and sum where they differ; nothing if it cannot be told.
    fn of_account(&self, index: usize, row: &Row) -> Option<Vec<(u64, i64, i64)>> {
        let count = *self.counts.get(index)?;
        let is_whole = count <= row.live && count.saturating_add(self.lost) >= row.live;
        if !is_whole || *self.is_unclear.get(index)? {
            return None;
        }
        let with_sum = |(period, held): &(u64, i64)| {
            (*period, *held, self.sums.get(&(index, *period)).copied().unwrap_or(0))
        };
        Some(row.held.iter().map(with_sum).filter(|(_, held, sum)| held != sum).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(admitted: u64, amount: i64) -> Seen {
        Seen::Live { admitted, holds: vec![(0, 0, amount)] }
    }

    #[test]
    fn what_a_reservation_held_is_told_by_when_it_changed() {
        let moment = Moment { now: 100, steady: 1_100 };
        let ended = |at| Seen::Ended { admitted: 50, at };
        let short = |admitted, at| Seen::Ended { admitted, at };
        let ten = &[(0, 0, 10)][..];
        for (before, after, want) in [
            (Some(live(50, 10)), live(50, 10), Held::These(ten)),
            (Some(live(50, 10)), live(50, 20), Held::Unclear(ten, &[(0, 0, 20)])),
            (Some(live(50, 10)), ended(1_100), Held::Nothing),
            (Some(live(50, 10)), ended(1_101), Held::These(ten)),
            (Some(ended(1_000)), ended(1_000), Held::Nothing),
            (None, live(100, 10), Held::These(ten)),
            (None, live(101, 10), Held::Nothing),
            (None, short(99, 1_100), Held::Nothing),
            (None, short(101, 1_102), Held::Nothing),
            (None, short(99, 1_101), Held::Unknown),
            (None, Seen::Gone, Held::Lost),
            (Some(Seen::Gone), Seen::Gone, Held::Lost),
            (Some(live(50, 10)), Seen::Gone, Held::Unknown),
        ] {
            assert_eq!(held(moment, before.as_ref(), &after), want, "{before:?} {after:?}");
        }
    }

    #[test]
    fn an_account_is_compared_only_if_all_its_holds_are_known() {
        let moment = Moment { now: 100, steady: 100 };
        let place = |id| (ReservationId(id), 1);
        let seen: BTreeMap<Place, Seen> = (0..3).map(|id| (place(id), live(1, 10))).collect();
        let row = |live, held| Row { version: 1, live, held: vec![(0, held)] };
        let look = Look::of(1, moment, &seen, &seen);
        assert_eq!(look.of_account(0, &row(3, 30)), Some(vec![]));
        assert_eq!(look.of_account(0, &row(3, 31)), Some(vec![(0, 31, 30)]));
        // One came and went, or was never there.
        assert_eq!(look.of_account(0, &row(4, 30)), None);
        assert_eq!(look.of_account(0, &row(2, 30)), None);
        let mut lost = seen.clone();
        lost.insert(place(7), Seen::Gone);
        let look = Look::of(1, moment, &lost, &lost);
        assert_eq!(look.of_account(0, &row(4, 40)), Some(vec![(0, 40, 30)]));
        let mut renewed = seen.clone();
        renewed.insert(place(1), live(1, 20));
        assert_eq!(Look::of(1, moment, &seen, &renewed).of_account(0, &row(3, 30)), None);
    }
}
