//! The check that `held` is the sum of live holds, in steps of bounded cost, while verbs go on (L10).
//!
//! First every live reservation is counted, so many per step; then every account is compared, so many per step. What
//! changes on a reservation that is already counted changes its account's sum too, so each comparison is exact at its own
//! moment. Not a part of the book's state: it is not logged, and a book is the same with it or without.

use std::collections::BTreeMap;

use super::Book;
use super::account::Sides;
use super::drift::holdings;
use super::live::Live;
use crate::event::HeldLeg;
use crate::reply::Drift;
use crate::units::signed;

/// A check under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Audit {
    /// The step that comes next; 0: none is under way.
    step: u64,
    /// Reservations in slots below are counted; past the last one, every reservation is.
    lives: u32,
    all: bool,
    /// Accounts in slots below are compared.
    accounts: u32,
    sums: BTreeMap<(u32, u64), i64>,
}

impl Audit {
    #[inline]
    fn counts(&self, live: u32) -> bool {
        self.step > 0 && (self.all || live < self.lives)
    }

    fn add(&mut self, account: u32, period: u64, amount: i64) {
        let sum = self.sums.entry((account, period)).or_default();
        *sum = sum.saturating_add(amount);
    }
}

impl Book {
    /// One step of the check: at most `max` reservations or `max` accounts. Begins anew at 0; then the number that the
    /// last step told comes next, and any other ends the check. Tells what it found, and the next step's number.
    pub fn audit(&mut self, step: u64, max: u32) -> (Vec<Drift>, Option<u64>) {
        let max = max.max(1);
        if step == 0 {
            self.audit = Audit::default();
        } else if step != self.audit.step {
            return (Vec::new(), None);
        }
        let mut audit = core::mem::take(&mut self.audit);
        let mut found = Vec::new();
        if audit.all {
            let end = audit.accounts.saturating_add(max).min(self.accounts.len());
            self.compare(&audit, audit.accounts..end, &mut found);
            if end >= self.accounts.len() {
                return (found, None);
            }
            audit.accounts = end;
        } else {
            let end = audit.lives.saturating_add(max).min(self.lives.slots());
            for live in (audit.lives..end).filter_map(|slot| self.lives.get(slot)) {
                for leg in &live.legs {
                    audit.add(leg.slot, self.period_of(leg), signed(leg.held));
                }
            }
            audit.lives = end;
            audit.all = end >= self.lives.slots();
        }
        audit.step = step.saturating_add(1);
        let next = audit.step;
        self.audit = audit;
        (found, Some(next))
    }

    fn compare(&self, audit: &Audit, slots: core::ops::Range<u32>, found: &mut Vec<Drift>) {
        for slot in slots {
            let Some(account) = self.accounts.get(slot) else { continue };
            for (period, held) in holdings(account) {
                let sum = audit.sums.get(&(slot, period)).copied().unwrap_or(0);
                if held != sum {
                    found.push(Drift { account: account.id, period, held, sum, version: account.version });
                }
            }
        }
    }

    fn period_of(&self, leg: &HeldLeg) -> u64 {
        let quota =
            self.accounts.get(leg.slot).is_some_and(|account| matches!(account.sides, Sides::Quota(_)));
        if quota { leg.place } else { 0 }
    }

    /// A reservation came in this slot.
    #[inline]
    pub(super) fn audit_came(&mut self, slot: u32) {
        if self.audit.counts(slot) {
            self.audit_legs(slot, 1);
        }
    }

    /// The reservation in this slot is about to go.
    #[inline]
    pub(super) fn audit_goes(&mut self, slot: u32) {
        if self.audit.counts(slot) {
            self.audit_legs(slot, -1);
        }
    }

    /// Before holds change it is as if the reservation went, after it as if it came.
    fn audit_legs(&mut self, slot: u32, sign: i64) {
        let legs = |live: &Live| -> Vec<(u32, u64, i64)> {
            let legs = live.legs.iter();
            legs.map(|leg| (leg.slot, self.period_of(leg), sign * signed(leg.held))).collect()
        };
        for (account, period, amount) in self.lives.get(slot).map(legs).unwrap_or_default() {
            self.audit.add(account, period, amount);
        }
    }
}
