//! `adjust`: post a signed difference to a quota's period, once per id within `REMEMBER`.
//!
//! A period that has been dropped takes nothing; the id is remembered all the same, so that the caller's journal entry
//! is written once. A period that is not open yet is opened if the command says how.

use super::Book;
use super::account::Sides;
use crate::account::{Measure, Shape};
use crate::command::{Adjust, Opening};
use crate::event::{Adjusted, Event, Log, Opened, PeriodOpened};
use crate::reply::Refusal;
use crate::units::{AMOUNT_MAX, Micros, REMEMBER};

impl Adjust {
    /// What the book refuses whatever stands in it.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.delta.unsigned_abs() > AMOUNT_MAX {
            return Err(Refusal::Amount(0));
        }
        let fits = |opening: &Opening| opening.end > self.period && opening.measure != Measure::Concurrency;
        if self.opening.as_ref().is_some_and(|opening| !fits(opening)) {
            return Err(Refusal::Shape(0));
        }
        Ok(())
    }
}

impl Book {
    /// True if it was applied now, false if this id had been applied before.
    pub fn adjust(&mut self, now: Micros, cmd: &Adjust, log: &mut impl Log) -> Result<bool, Refusal> {
        cmd.check()?;
        let steady = self.steady(now);
        if self.adjusts.known.get(&cmd.id).is_some_and(|applied| applied.saturating_add(REMEMBER) > steady) {
            return Ok(false);
        }
        let event = Event::Adjusted(self.adjusted(now, cmd)?);
        log.append(&event).map_err(|_| Refusal::LogFull)?;
        self.apply(&event);
        Ok(true)
    }

    fn adjusted(&self, now: Micros, cmd: &Adjust) -> Result<Adjusted, Refusal> {
        let slot = self.accounts.find(cmd.account);
        let account = slot.and_then(|slot| self.accounts.get(slot));
        let (opened, newest) = match account.map(|account| (account.measure, &account.sides)) {
            Some((measure, Sides::Quota(periods))) => {
                if cmd.opening.is_some_and(|opening| opening.measure != measure) {
                    return Err(Refusal::Shape(0));
                }
                (None, periods.last().map(|period| period.start))
            }
            Some(_) => return Err(Refusal::NoSuchQuota),
            None => {
                let opening = cmd.opening.ok_or(Refusal::NoSuchQuota)?;
                let (slot, account) = (self.accounts.vacant(0), cmd.account);
                (Some(Opened { slot, account, measure: opening.measure, shape: Shape::Quota }), None)
            }
        };
        let slot = opened.map(|opened| opened.slot).or(slot).ok_or(Refusal::NoSuchQuota)?;
        let is_ahead = newest.is_none_or(|newest| newest < cmd.period);
        let period_opened = match cmd.opening {
            Some(opening) if is_ahead => Some(PeriodOpened { slot, start: cmd.period, end: opening.end }),
            None if is_ahead => return Err(Refusal::NoSuchQuota),
            _ => None,
        };
        let (id, period, delta) = (cmd.id, cmd.period, cmd.delta);
        Ok(Adjusted { now, id, opened, period_opened, slot, period, delta })
    }
}
