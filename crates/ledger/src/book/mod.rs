//! One shard's accounts and reservations, and the verbs over them.
//!
//! Invariants: a verb checks the command's shape, decides by reading only, builds one event, hands it to the caller's
//! log, and applies it. So a book is the fold of its events ([`Book::apply`]), and what the log did not take did not
//! happen. Between verbs `held` of every account is the sum of its live holds (L10).
//! Nothing here can fail for lack of room once it was admitted (L4); what can not be booked any more is counted in
//! [`Alarms`].
//!
//! Two clocks. Engine time (`now`) addresses buckets and periods. The *steady* clock is engine time plus everything it
//! has stepped back so far; it never goes back, and lives, tombstones and idleness are measured on it, so a step back
//! neither keeps dead holds nor brings forgotten things to life.
//!
//! Forecast accounts hold nothing. An admitted call writes its input and a plan of its output into seconds; from then on
//! the plan is the gateway's, which replaces it by facts with `progress`, and the clock's, which ends it.

mod account;
mod accounts;
mod adjust;
mod apply;
mod audit;
mod check;
mod drift;
mod dump;
mod end;
mod estimate;
mod fresh;
mod hint;
mod live;
mod plan;
mod progress;
mod prune;
mod queue;
mod rebook;
mod renew;
mod reserve;
mod ring;
mod slab;
mod table;
mod tomb;
mod track;

use std::collections::{BTreeMap, VecDeque};

use accounts::Accounts;
use audit::Audit;
use estimate::Estimates;
use fresh::Fresh;
use live::Lives;
use plan::Plan;
use tomb::Tombs;
pub(crate) use track::Landing;

use crate::account::{AccountId, SubjectId};
use crate::id::{Attempt, ReservationId};
use crate::reply::{Alarms, Balance, Due, Met};
use crate::units::Micros;

/// The state of one shard.
#[derive(Clone, Debug, Default)]
pub struct Book {
    /// Engine time of the last event.
    seen: Micros,
    /// By how much engine time has stepped back, in all.
    behind: Micros,
    accounts: Accounts,
    lives: Lives,
    fresh: Fresh,
    tombs: Tombs,
    estimates: Estimates,
    adjusts: Adjusts,
    alarms: Alarms,
    /// Where the next prune goes on.
    cursors: Cursors,
    /// The check under way; no part of the state.
    audit: Audit,
    scratch: Plan,
    posts: Vec<i64>,
}

/// Ids of adjusts applied within `REMEMBER`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Adjusts {
    known: BTreeMap<u128, Micros>,
    order: VecDeque<(u128, Micros)>,
}

#[derive(Clone, Debug, Default)]
struct Cursors {
    account: u32,
    estimate: u32,
}

impl Book {
    pub fn new() -> Self {
        Self::default()
    }

    /// The steady clock at an engine time: never behind what it was at the last event.
    pub fn steady(&self, now: Micros) -> Micros {
        now.max(self.seen).saturating_add(self.behind)
    }

    /// Reservations that are due, oldest second first.
    pub fn due(&self, now: Micros, max: usize) -> Vec<Due> {
        self.lives.due(self.steady(now), max)
    }

    /// Subjects whose accounts a live reservation touches, each once, in the order of its legs.
    pub fn subjects(&self, id: ReservationId, attempt: Attempt) -> Vec<SubjectId> {
        let mut found: Vec<SubjectId> = Vec::new();
        let live = self.lives.find(id, attempt).and_then(|slot| self.lives.get(slot));
        for leg in live.iter().flat_map(|live| live.legs.iter()) {
            if let Some(account) = self.accounts.get(leg.slot)
                && !found.contains(&account.id.subject)
            {
                found.push(account.id.subject);
            }
        }
        found
    }

    /// The state that a claim would meet.
    pub fn state(&self, now: Micros, id: ReservationId, attempt: Attempt) -> Met {
        if self.lives.find(id, attempt).is_some() {
            return Met::Held;
        }
        match self.tombs.find(id, attempt, self.steady(now)) {
            Some(tomb) => Met::Ended(tomb.end),
            None => Met::Unknown,
        }
    }

    pub fn balance(&self, now: Micros, account: AccountId) -> Option<Balance> {
        Some(balance(now, self.accounts.get(self.accounts.find(account)?)?))
    }

    pub fn balances(&self, now: Micros) -> impl Iterator<Item = Balance> + '_ {
        self.accounts.iter().map(move |(_, account)| balance(now, account))
    }

    /// Posted and held of one kept period of a quota, by its start in UTC seconds.
    pub fn period(&self, account: AccountId, start: u64) -> Option<(i64, i64)> {
        let period = self.accounts.get(self.accounts.find(account)?)?.period(start)?;
        Some((period.posted, period.held))
    }

    /// How much is kept: live reservations, tombstones, accounts. Costs nothing.
    pub fn sizes(&self) -> (usize, usize, usize) {
        (self.lives.count(), self.tombs.count(), self.accounts.count())
    }

    pub fn alarms(&self) -> &Alarms {
        &self.alarms
    }
}

fn balance(now: Micros, account: &account::Account) -> Balance {
    let is_quota = account.shape() == crate::account::Shape::Quota;
    let period = account
        .newest()
        .map(|period| (period.start, period.end))
        .filter(|(_, end)| account::until(now, *end) > 0);
    let place = period.map_or(0, |(start, _)| start);
    let account::Shown { mut posted, beside: mut held, mut reset } = account.shown(now, place);
    if is_quota && period.is_none() {
        (posted, held, reset) = (0, 0, 0);
    }
    let rare = account.rare.as_deref().copied().unwrap_or_default();
    Balance {
        account: account.id,
        measure: account.measure,
        shape: account.shape(),
        period,
        posted,
        held,
        live_holds: account.live,
        reset,
        shadow_denied: rare.shadow_denied,
        shadow_demand: rare.shadow_demand,
        version: account.version,
    }
}

/// Equal state; alarms, scratch and what only saves look-ups are no part of it.
impl PartialEq for Book {
    fn eq(&self, other: &Self) -> bool {
        (self.seen, self.behind) == (other.seen, other.behind)
            && self.accounts == other.accounts
            && self.lives == other.lives
            && self.tombs == other.tombs
            && self.estimates == other.estimates
            && self.adjusts == other.adjusts
    }
}

impl Eq for Book {}

#[cfg(test)]
mod tests {
    use core::mem::size_of;

    use super::account::Account;
    use super::tomb::Tomb;

    /// An idle rate account of 61 × 1 s with its ring and its part of the index takes at most 600 bytes.
    #[test]
    fn an_idle_account_is_small() {
        let (slab_growth, index_growth, cell, allocator) = (2, 4, 8, 16);
        let ring = 61 * size_of::<u32>() + allocator;
        let all = size_of::<Option<Account>>() * slab_growth + ring + cell * index_growth;
        assert!(all <= 600, "{all} bytes");
    }

    #[test]
    fn a_tombstone_is_small() {
        assert_eq!(size_of::<Tomb>(), 48);
    }
}
