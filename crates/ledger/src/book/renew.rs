//! `renew`: extend a life, and grow the holds of a stream that outgrew its estimate (L7, L9).
//!
//! Invariants: soft legs grow whatever room there is; that is not decided, so what goes beyond is an overrun. Hard legs
//! held at the expected demand are decided together against their hard ceilings: all of them grow or none does. A leg
//! held at the worst case never grows. `sent` never goes back, and a life is never cut short.

use super::Book;
use super::live::Live;
use super::plan;
use crate::command::{Growth, Renew};
use crate::event::{Event, Grown, HeldLeg, Log, RenewedTo};
use crate::reply::{Refusal, Renewed};
use crate::units::{HELD_MAX, Micros, signed, unsigned};

impl Book {
    /// Extend one live reservation.
    pub fn renew(&mut self, now: Micros, cmd: &Renew, log: &mut impl Log) -> Result<Renewed, Refusal> {
        let Some(slot) = self.lives.find(cmd.id, cmd.attempt) else {
            return Ok(match self.tombs.find(cmd.id, cmd.attempt, self.steady(now)) {
                Some(tomb) => Renewed::Ended(tomb.end),
                None => Renewed::Unknown,
            });
        };
        let Some(live) = self.lives.get(slot) else { return Ok(Renewed::Unknown) };
        let mut short = Vec::new();
        let mut grown = Vec::new();
        if let Growth::Output(output) = cmd.growth {
            let is_hard = |step: &Grown| {
                live.legs.get(usize::from(step.leg)).is_some_and(|leg| leg.hard_ceiling < u64::MAX)
            };
            grown = self.growth(live, output);
            short.extend(
                grown
                    .iter()
                    .filter(|step| is_hard(step) && self.is_short(now, live, step))
                    .map(|step| step.leg),
            );
            if !short.is_empty() {
                grown.retain(|step| !is_hard(step));
            }
            for step in grown.iter_mut().filter(|step| is_hard(step)) {
                step.decided = step.held;
            }
        }
        let event = Event::Renewed(RenewedTo {
            now,
            id: cmd.id,
            attempt: cmd.attempt,
            due: live.due().max(self.steady(now).saturating_add(cmd.life)),
            sent: live.sent || cmd.sent,
            outgrown: cmd.outgrown,
            grown: &grown,
        });
        log.append(&event).map_err(|_| Refusal::LogFull)?;
        self.apply(&event);
        if !short.is_empty() {
            return Ok(Renewed::Short(short.into_iter().map(usize::from).collect()));
        }
        let held = self.lives.get(slot).map(|live| live.legs.iter().map(|leg| leg.held).collect());
        Ok(Renewed::Held(held.unwrap_or_default()))
    }

    /// The legs that would hold more for so much output in all.
    fn growth(&self, live: &Live, output: u64) -> Vec<Grown> {
        let grows = |leg: &HeldLeg| {
            let held_by_output =
                self.accounts.get(leg.slot).is_some_and(super::account::Account::holds_output);
            held_by_output && !leg.at_worst && leg.output < output.min(leg.cap)
        };
        (0..=u8::MAX)
            .zip(live.legs.iter())
            .filter(|(_, leg)| grows(leg))
            .map(|(index, leg)| {
                let output = output.min(leg.cap);
                let total = self.accounts.get(leg.slot).map_or(0, |account| account.held(leg.place));
                let room = HELD_MAX.saturating_sub(unsigned(total));
                let wanted = plan::amount(leg.base, leg.per_output, output).max(leg.held);
                let held = leg.held + (wanted - leg.held).min(room);
                Grown { leg: index, output, held, decided: leg.decided }
            })
            .collect()
    }

    /// A step of a hard leg has no room under the leg's hard ceiling.
    fn is_short(&self, now: Micros, live: &Live, step: &Grown) -> bool {
        let Some(leg) = live.legs.get(usize::from(step.leg)) else { return false };
        let Some(account) = self.accounts.get(leg.slot) else { return false };
        let more = step.held - leg.held;
        let total = account
            .posted(now, leg.place)
            .saturating_add(account.held(leg.place).max(0))
            .saturating_add(signed(more));
        more > 0 && total > signed(leg.hard_ceiling)
    }
}
