//! `progress`: what a gateway's streams really did replaces what was planned for them.
//!
//! Invariants: only the difference to the gateway's batch before is sent, summed over all its streams of one account, so
//! the cost depends on accounts and seconds, not on streams. A batch is applied once: its number must be larger than the
//! last one of its gateway. No second goes below zero; what would have, and what finds no second, is counted in the
//! alarms. What is unknown here changes nothing: a plan dies by itself.

use super::Book;
use super::account::Sides;
use crate::command::Progress;
use crate::event::{Batch, Event, Log};
use crate::reply::Refusal;
use crate::units::{AMOUNT_MAX, Micros, PROGRESS_ACCOUNTS_MAX, PROGRESS_SECONDS_MAX};

impl Book {
    /// Apply the batches of one gateway, each once.
    pub fn progress(&mut self, now: Micros, cmds: &[Progress], log: &mut impl Log) -> Result<(), Refusal> {
        Progress::check(cmds)?;
        let steady = self.steady(now);
        let seconds = cmds.iter().map(|cmd| cmd.deltas.len()).sum();
        let (mut batches, mut deltas) = (Vec::with_capacity(cmds.len()), Vec::with_capacity(seconds));
        let (mut repeated, mut outside) = (0, 0_u64);
        for (index, cmd) in cmds.iter().enumerate() {
            let slot = self.accounts.find(cmd.account);
            let (Some(slot), Some(track)) =
                (slot, slot.and_then(|slot| self.accounts.get(slot)).and_then(track_of))
            else {
                let lost = cmd.deltas.iter().map(|delta| delta.unsigned_abs());
                outside = lost.fold(outside, u64::saturating_add);
                continue;
            };
            let doubled = cmds.iter().take(index).any(|other| {
                (other.account, other.gateway) == (cmd.account, cmd.gateway) && other.seq >= cmd.seq
            });
            if doubled || !track.is_new(cmd.gateway, cmd.seq, steady) {
                repeated += 1;
                continue;
            }
            let (gateway, seq, base_second) = (cmd.gateway, cmd.seq, cmd.base_second);
            let seconds = u8::try_from(cmd.deltas.len()).unwrap_or(u8::MAX);
            batches.push(Batch { slot, gateway, seq, base_second, seconds });
            deltas.extend_from_slice(&cmd.deltas);
        }
        if !batches.is_empty() {
            let event = Event::Progressed { now, batches: &batches, deltas: &deltas };
            log.append(&event).map_err(|_| Refusal::LogFull)?;
            self.apply(&event);
        }
        self.alarms.progress_repeated += repeated;
        self.alarms.progress_outside = self.alarms.progress_outside.saturating_add(outside);
        Ok(())
    }
}

fn track_of(account: &super::account::Account) -> Option<&super::track::Track> {
    match &account.sides {
        Sides::Forecast(track) => Some(track),
        _ => None,
    }
}

impl Progress {
    /// What the book refuses of one `progress` whatever stands in it.
    pub fn check(all: &[Self]) -> Result<(), Refusal> {
        if all.len() > PROGRESS_ACCOUNTS_MAX {
            return Err(Refusal::Progress(PROGRESS_ACCOUNTS_MAX));
        }
        let fits = |cmd: &Self| {
            cmd.deltas.len() <= PROGRESS_SECONDS_MAX
                && cmd.deltas.iter().all(|delta| delta.unsigned_abs() <= AMOUNT_MAX)
        };
        match all.iter().position(|cmd| !fits(cmd)) {
            Some(index) => Err(Refusal::Progress(index)),
            None => Ok(()),
        }
    }
}
