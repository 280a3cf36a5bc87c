//! The check that `held` is the sum of live holds (L10), at one moment, and its repair.
//!
//! A call looks at a range of account slots and passes over all live legs once, so its cost grows with what is live; a
//! running engine checks in steps ([`Book::audit`]). Repair takes what the check saw: it recounts, and does nothing if the account has changed since.

use std::collections::BTreeMap;

use super::Book;
use super::account::{Account, Sides};
use crate::event::{Event, Log};
use crate::reply::{Drift, Refusal};
use crate::units::{Micros, signed};

impl Book {
    /// Accounts among the `max` slots from `cursor` whose held is not the sum of their live holds, and where to go on.
    pub fn drift(&self, cursor: u32, max: u32) -> (Vec<Drift>, Option<u32>) {
        let end = cursor.saturating_add(max.max(1));
        let sums = self.sums(|slot| (cursor..end).contains(&slot));
        let mut found = Vec::new();
        for slot in cursor..end.min(self.accounts.len()) {
            let Some(account) = self.accounts.get(slot) else { continue };
            for (period, held) in holdings(account) {
                let sum = sums.get(&(slot, period)).copied().unwrap_or(0);
                if held != sum {
                    found.push(Drift { account: account.id, period, held, sum, version: account.version });
                }
            }
        }
        (found, (end < self.accounts.len()).then_some(end))
    }

    /// Set `held` to the sum of its live holds; false if the account has changed since `seen`, or there is no drift.
    pub fn repair(&mut self, now: Micros, seen: &Drift, log: &mut impl Log) -> Result<bool, Refusal> {
        let Some(slot) = self.accounts.find(seen.account) else { return Ok(false) };
        let Some(account) = self.accounts.get(slot) else { return Ok(false) };
        let Some((period, held)) = holdings(account).into_iter().find(|(period, _)| *period == seen.period)
        else {
            return Ok(false);
        };
        let sum = self.sums(|other| other == slot).get(&(slot, period)).copied().unwrap_or(0);
        if account.version != seen.version || (held, sum) != (seen.held, seen.sum) || held == sum {
            return Ok(false);
        }
        let event = Event::Repaired { now, slot, period, held: sum };
        log.append(&event).map_err(|_| Refusal::LogFull)?;
        self.apply(&event);
        Ok(true)
    }

    /// Live holds per account and period, of the slots asked for.
    fn sums(&self, wanted: impl Fn(u32) -> bool) -> BTreeMap<(u32, u64), i64> {
        let mut sums = BTreeMap::new();
        for leg in self.lives.iter().flat_map(|live| live.legs.iter()).filter(|leg| wanted(leg.slot)) {
            let quota =
                self.accounts.get(leg.slot).is_some_and(|account| matches!(account.sides, Sides::Quota(_)));
            let sum: &mut i64 = sums.entry((leg.slot, if quota { leg.place } else { 0 })).or_default();
            *sum = sum.saturating_add(signed(leg.held));
        }
        sums
    }
}

/// (period, held) of each thing that an account holds on.
pub(super) fn holdings(account: &Account) -> Vec<(u64, i64)> {
    match &account.sides {
        Sides::Rate { held, .. } | Sides::Concurrency { held } => vec![(0, *held)],
        Sides::Forecast(_) => Vec::new(),
        Sides::Quota(periods) => periods.iter().map(|period| (period.start, period.held)).collect(),
    }
}
