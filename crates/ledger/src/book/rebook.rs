//! `rebook`: end attempt n and decide attempt n + 1 in one step (L18).
//!
//! Invariant: a denial, a recalendar or a conflict writes nothing, so attempt n lives on.
//! An attempt n that has ended already is told as `ended`: what it used is settled late, and the next one is reserved
//! on its own. An attempt n that is not known is no obstacle: there is nothing to end.

use super::Book;
use super::check::check_actual;
use super::end::{Effects, How};
use super::plan::{Ending, Plan, Recalendar};
use crate::command::Rebook;
use crate::event::{Ended, Event, Log};
use crate::reply::{End, Met, Refusal, Settled, Verdict};
use crate::units::Micros;

impl Book {
    /// Move a call to its next attempt. The second answer says how the ended attempt was booked.
    pub fn rebook(
        &mut self,
        now: Micros,
        cmd: &Rebook,
        log: &mut impl Log,
    ) -> Result<(Verdict, Option<Settled>), Refusal> {
        let mut plan = core::mem::take(&mut self.scratch);
        let answer = self.rebook_with(now, cmd, &mut plan, log);
        self.scratch = plan;
        answer
    }

    fn rebook_with(
        &mut self,
        now: Micros,
        cmd: &Rebook,
        plan: &mut Plan,
        log: &mut impl Log,
    ) -> Result<(Verdict, Option<Settled>), Refusal> {
        let reserve = &cmd.reserve;
        self.check(reserve, &mut plan.slots)?;
        check_actual(cmd.actual.as_deref().unwrap_or_default())?;
        if let Some(verdict) = self.repeated(now, reserve).filter(|_| reserve.attempt > cmd.ended) {
            let ended = matches!(verdict, Verdict::Admit(_)).then(|| self.met(now, reserve.id, cmd.ended));
            return Ok((verdict, ended));
        }
        let slot = self.lives.find(reserve.id, cmd.ended);
        let live = slot.and_then(|slot| self.lives.get(slot));
        if let (Some(live), Some(actual)) = (live, &cmd.actual)
            && live.legs.len() != actual.len()
        {
            return Err(Refusal::ActualCount);
        }
        if reserve.attempt <= cmd.ended {
            return Err(Refusal::Attempt);
        }
        let Some(live) = live else {
            return self.rebook_ended(now, cmd, plan, log);
        };
        let actual = cmd.actual.as_deref();
        if let Err(Recalendar) =
            self.plan(now, reserve, Some(Ending { live, actual, landed: cmd.landed }), plan)
        {
            return Ok((Verdict::Recalendar, None));
        }
        let mut posts = Vec::new();
        let how = How::Moved { actual, landed: cmd.landed, onto: &plan.legs };
        let Effects { overrun, charges, dropped } = self.effects(now, live, how, &mut posts);
        let settled = Settled { before: Met::Held, overrun, posted: charges, admitted: live.admitted };
        self.alarms.negative_held += plan.negative_held;
        if let Some(denial) = self.denial(now, reserve, plan) {
            return Ok((Verdict::Deny(denial), None));
        }
        let ended = Ended {
            now,
            id: reserve.id,
            attempt: cmd.ended,
            end: End::Rebooked,
            posted: &posts,
            learned: None,
        };
        let event = Event::Rebooked { ended, reserved: self.reserved(now, reserve, plan) };
        log.append(&event).map_err(|_| Refusal::LogFull)?;
        self.apply(&event);
        self.alarms.dropped_refunds += dropped;
        Ok((self.admitted(now, reserve, plan), Some(settled)))
    }

    /// Attempt n is not live.
    fn rebook_ended(
        &mut self,
        now: Micros,
        cmd: &Rebook,
        plan: &mut Plan,
        log: &mut impl Log,
    ) -> Result<(Verdict, Option<Settled>), Refusal> {
        let before = self.met(now, cmd.reserve.id, cmd.ended);
        if let Met::Ended(end) = before.before {
            return Ok((Verdict::Ended(end), None));
        }
        self.alarms.unknown_claims += 1;
        // `scratch` is taken by this rebook; hand it over.
        self.scratch = core::mem::take(plan);
        let verdict = self.reserve(now, &cmd.reserve, log);
        *plan = core::mem::take(&mut self.scratch);
        verdict.map(|verdict| (verdict, Some(before)))
    }

    /// The answer to a claim that changes nothing.
    pub(super) fn met(&self, now: Micros, id: crate::ReservationId, attempt: crate::Attempt) -> Settled {
        let tomb = self.tombs.find(id, attempt, self.steady(now));
        Settled {
            before: tomb.map_or(Met::Unknown, |tomb| Met::Ended(tomb.end)),
            overrun: vec![0; tomb.map_or(0, |tomb| usize::from(tomb.legs))],
            posted: Vec::new(),
            admitted: tomb.map_or(0, |tomb| tomb.admitted),
        }
    }
}
