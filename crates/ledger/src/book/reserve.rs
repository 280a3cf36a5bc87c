//! `reserve`: hold a call's demand on every leg, or on none (L1), and answer a repeat as the first time (L2).

use super::Book;
use super::account::{Shown, Sides, until};
use super::hint;
use super::live::Live;
use super::plan::{self, Block, Plan, Recalendar, Standing};
use crate::account::{Measure, Shape};
use crate::command::{Leg, Reserve};
use crate::event::{DeniedPost, Event, HeldLeg, Log, Reserved};
use crate::reply::{Denial, DenyKind, LegReceipt, Receipt, Refusal, Verdict};
use crate::units::{DUE_MAX, Micros, signed};

impl Book {
    /// Hold the demand of one call, all or nothing.
    pub fn reserve(&mut self, now: Micros, cmd: &Reserve, log: &mut impl Log) -> Result<Verdict, Refusal> {
        let mut plan = core::mem::take(&mut self.scratch);
        let verdict = self.reserve_with(now, cmd, &mut plan, log);
        self.scratch = plan;
        verdict
    }

    fn reserve_with(
        &mut self,
        now: Micros,
        cmd: &Reserve,
        plan: &mut Plan,
        log: &mut impl Log,
    ) -> Result<Verdict, Refusal> {
        self.check(cmd, &mut plan.slots)?;
        if let Some(verdict) = self.repeated(now, cmd) {
            return Ok(verdict);
        }
        if let Err(Recalendar) = self.plan(now, cmd, None, plan) {
            return Ok(Verdict::Recalendar);
        }
        self.alarms.negative_held += plan.negative_held;
        if let Some(denial) = self.denial(now, cmd, plan) {
            self.count_denied(now, plan, log)?;
            return Ok(Verdict::Deny(denial));
        }
        let event = Event::Reserved(self.reserved(now, cmd, plan));
        log.append(&event).map_err(|_| Refusal::LogFull)?;
        self.apply(&event);
        Ok(self.admitted(now, cmd, plan))
    }

    /// What a planned reserve will write.
    pub(super) fn reserved<'a>(&self, now: Micros, cmd: &'a Reserve, plan: &'a Plan) -> Reserved<'a> {
        Reserved {
            now,
            id: cmd.id,
            attempt: cmd.attempt,
            due: self.steady(now).saturating_add(cmd.life),
            profile: cmd.profile,
            context: &cmd.context,
            opened: &plan.opened,
            periods: &plan.periods,
            learners: &plan.learners,
            legs: &plan.legs,
        }
    }

    /// The answer if (id, attempt) is known already.
    pub(super) fn repeated(&self, now: Micros, cmd: &Reserve) -> Option<Verdict> {
        if self.fresh.is_new(cmd.id) {
            return None;
        }
        if let Some(live) = self.lives.find(cmd.id, cmd.attempt).and_then(|slot| self.lives.get(slot)) {
            return Some(match self.first_difference(live, &cmd.legs) {
                Some(leg) => Verdict::Conflict(leg),
                None => Verdict::Admit(self.receipt(now, cmd, live)),
            });
        }
        let tomb = self.tombs.find(cmd.id, cmd.attempt, self.steady(now))?;
        Some(Verdict::Ended(tomb.end))
    }

    /// The answer to a reserve that was just applied, from what was planned.
    pub(super) fn admitted(&self, now: Micros, cmd: &Reserve, plan: &Plan) -> Verdict {
        let receipt = |((leg, held), standing): ((&Leg, &HeldLeg), &Standing)| {
            let account = || self.accounts.get(held.slot);
            let mut shown = Shown::default();
            let (posts, posted, held_total) = match leg.shape {
                Shape::Forecast { .. } => {
                    shown = account().map(|account| account.shown(now, held.place)).unwrap_or_default();
                    (0, shown.posted, shown.beside)
                }
                _ if leg.measure == Measure::Requests => {
                    (standing.fresh, standing.posted.saturating_add(signed(standing.fresh)), standing.held)
                }
                _ => (0, standing.posted, standing.held.saturating_add(signed(held.held))),
            };
            let reset = match leg.shape {
                Shape::Concurrency => 0,
                Shape::Quota => until(now, standing.period_end),
                // Something is posted now, or will be.
                Shape::Rate { buckets, width, .. } if held_total > 0 || posts > 0 => {
                    let empty = standing.bucket.saturating_add(u64::from(buckets)).saturating_mul(width);
                    empty.saturating_sub(now)
                }
                Shape::Forecast { .. } => shown.reset,
                Shape::Rate { .. } => account().map_or(0, |account| account.reset(now, held.place)),
            };
            LegReceipt {
                account: leg.account,
                place: held.place,
                expected: plan::amount(held.base, held.per_output, held.output),
                held: held.held,
                output: held.output,
                ceiling: standing.ceiling,
                posted,
                held_total,
                reset,
                shadow_denied: held.shadow_denied,
            }
        };
        let legs = cmd.legs.iter().zip(&plan.legs).zip(&plan.standings).map(receipt).collect();
        Verdict::Admit(Receipt { id: cmd.id, attempt: cmd.attempt, now, legs })
    }

    pub(super) fn denial(&self, now: Micros, cmd: &Reserve, plan: &Plan) -> Option<Denial> {
        if plan.blocks.is_empty() {
            return None;
        }
        let reset = |block: &Block| {
            let leg = plan.legs.get(block.leg)?;
            let account = self.accounts.get(leg.slot)?;
            Some(account.reset(now, leg.place))
        };
        hint::denial(plan, cmd, |block| reset(block).unwrap_or(0), self.due(now, DUE_MAX))
    }

    /// Post the denied demand of limits that count denials, once per account and bucket; restart rings in the way.
    fn count_denied(&mut self, now: Micros, plan: &Plan, log: &mut impl Log) -> Result<(), Refusal> {
        let mut posts: Vec<DeniedPost> = Vec::new();
        for block in plan.blocks.iter().filter(|block| block.limit.count_denied) {
            let (DenyKind::Busy(_), Some(leg), Some(standing)) =
                (block.kind, plan.legs.get(block.leg), plan.standings.get(block.leg))
            else {
                continue;
            };
            let counted = self.accounts.get(leg.slot).is_none_or(|account| account.counted_denial(now));
            if !counted && posts.iter().all(|post| post.slot != leg.slot) {
                posts.push(DeniedPost { slot: leg.slot, amount: standing.fresh });
            }
        }
        // A ring that the clock left far ahead restarts when it is written (L12), and a denial would never write it.
        for leg in plan.blocks.iter().filter_map(|block| plan.legs.get(block.leg)) {
            let restarts = self.accounts.get(leg.slot).is_some_and(|account| account.restarts(now));
            if restarts && posts.iter().all(|post| post.slot != leg.slot) {
                posts.push(DeniedPost { slot: leg.slot, amount: 0 });
            }
        }
        if posts.is_empty() {
            return Ok(());
        }
        let event = Event::Denied { now, posts: &posts };
        log.append(&event).map_err(|_| Refusal::LogFull)?;
        self.apply(&event);
        Ok(())
    }

    /// The first leg whose account or coefficients are not those of a live reservation.
    fn first_difference(&self, live: &Live, legs: &[Leg]) -> Option<usize> {
        let same = |held: &HeldLeg, leg: &Leg| {
            self.accounts.get(held.slot).is_some_and(|account| account.id == leg.account)
                && (held.base, held.per_output, held.cap, held.worst)
                    == (leg.base, leg.per_output, leg.cap, leg.worst)
        };
        let differs = live.legs.iter().zip(legs).position(|(held, leg)| !same(held, leg));
        differs.or_else(|| (live.legs.len() != legs.len()).then_some(live.legs.len().min(legs.len())))
    }

    /// What is stored of each leg, beside the figures of its account as they are now.
    fn receipt(&self, now: Micros, cmd: &Reserve, live: &Live) -> Receipt {
        let leg = |(held, leg): (&HeldLeg, &Leg)| {
            let account = self.accounts.get(held.slot);
            let shown = account.map(|account| account.shown(now, held.place)).unwrap_or_default();
            let speaks = leg.limits.iter().any(|limit| !limit.shadow);
            let ceilings = leg.limits.iter().filter(|limit| limit.shadow != speaks);
            LegReceipt {
                account: leg.account,
                place: held.place,
                expected: plan::amount(held.base, held.per_output, held.output),
                held: held.held,
                output: held.output,
                ceiling: ceilings.map(|limit| limit.ceiling).min().unwrap_or(0),
                posted: shown.posted,
                held_total: shown.beside,
                reset: shown.reset,
                shadow_denied: held.shadow_denied,
            }
        };
        Receipt {
            id: live.id,
            attempt: live.attempt,
            now: live.admitted,
            legs: live.legs.iter().zip(&cmd.legs).map(leg).collect(),
        }
    }
}

impl super::account::Account {
    /// The next write restarts the ring.
    fn restarts(&self, now: Micros) -> bool {
        match &self.sides {
            Sides::Rate { ring, .. } => ring.restarts(now),
            Sides::Forecast(track) => track.restarts(now),
            Sides::Quota(_) | Sides::Concurrency { .. } => false,
        }
    }

    /// A denial has been posted in the current bucket, or there is no bucket to post it to.
    fn counted_denial(&self, now: Micros) -> bool {
        let Some(bucket) = self.bucket(now) else { return true };
        self.rare.as_deref().is_some_and(|rare| rare.denied_bucket == bucket.saturating_add(1))
    }
}
