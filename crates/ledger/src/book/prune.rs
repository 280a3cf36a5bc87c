//! Forgets what no rule needs any more, a bounded number of things per call.
//!
//! Invariants: tombstones and adjust ids go after `REMEMBER`; estimators not learned from for a week; rate and
//! concurrency accounts that equal fresh ones after `IDLE`; quota accounts a week after their newest period. An account
//! with a live leg stays. Accounts and estimators are looked at in turns, `max` slots per call.
//!
//! Closing an account loses its mean hold, so only a likely wait may differ afterwards. A prune after the clock stepped
//! back always leaves an event: the book learns of the step even if nothing else is written, and holds go on ageing.

use super::Book;
use super::account::{Account, Sides};
use crate::event::{Event, Log, Pruned};
use crate::reply::{PruneCount, Refusal};
use crate::units::{FORGET, IDLE, Micros, REMEMBER, micros};

impl Book {
    /// Forget, at most `max` things of each kind. To be called every few seconds.
    pub fn prune(&mut self, now: Micros, max: usize, log: &mut impl Log) -> Result<PruneCount, Refusal> {
        let steady = self.steady(now);
        let span = u32::try_from(max).unwrap_or(u32::MAX);
        let (mut accounts, mut trimmed, mut estimators) = (Vec::new(), Vec::new(), Vec::new());
        let account_slots = turn(&mut self.cursors.account, span, self.accounts.len());
        for slot in account_slots {
            let Some(account) = self.accounts.get(slot) else { continue };
            if account.is_idle(now, steady) {
                accounts.push(slot);
            } else if account.has_over(now) {
                trimmed.push(slot);
            }
        }
        let estimate_slots = turn(&mut self.cursors.estimate, span, self.estimates.slots());
        for slot in estimate_slots {
            let Some((id, used)) = self.estimates.slot(slot) else { continue };
            if used.saturating_add(FORGET) <= steady {
                estimators.push(id);
            }
        }
        let is_over = |(_, applied): &&(u128, Micros)| applied.saturating_add(REMEMBER) <= steady;
        let adjusts = self.adjusts.order.iter().take(max).take_while(is_over).count();
        let pruned = Pruned {
            now,
            tombstones: self.tombs.over(steady, max),
            adjusts: u32::try_from(adjusts).unwrap_or(0),
            estimators: &estimators,
            accounts: &accounts,
            trimmed: &trimmed,
        };
        let count = PruneCount {
            tombstones: pruned.tombstones,
            adjusts: pruned.adjusts,
            estimators: u32::try_from(estimators.len()).unwrap_or(0),
            accounts: u32::try_from(accounts.len()).unwrap_or(0),
        };
        if count != PruneCount::default() || !trimmed.is_empty() || now < self.seen {
            let event = Event::Pruned(pruned);
            log.append(&event).map_err(|_| Refusal::LogFull)?;
            self.apply(&event);
        }
        Ok(count)
    }
}

/// The next `span` slots of a round.
fn turn(cursor: &mut u32, span: u32, slots: u32) -> core::ops::Range<u32> {
    let start = if *cursor < slots { *cursor } else { 0 };
    let end = start.saturating_add(span).min(slots);
    *cursor = end;
    start..end
}

impl Account {
    /// Nothing would be lost by closing it.
    fn is_idle(&self, now: Micros, steady: Micros) -> bool {
        let kept = match &self.sides {
            Sides::Quota(_) => FORGET,
            _ if self.rare.is_some() => FORGET,
            _ => IDLE,
        };
        let empty = match &self.sides {
            Sides::Rate { ring, held } => *held == 0 && ring.is_clear(now),
            Sides::Forecast(track) => track.is_clear(now),
            Sides::Concurrency { held } => *held == 0,
            Sides::Quota(periods) => periods.iter().all(|period| {
                let over = micros(period.end).saturating_add(FORGET) <= now;
                period.held == 0 && (over || period.posted == 0)
            }),
        };
        self.live == 0 && empty && self.used.saturating_add(kept) <= steady
    }
}
