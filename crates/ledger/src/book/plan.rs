//! Decides a reserve by reading only: where each leg is booked, how much it asks for, and which limits have no room.
//!
//! Invariants: nothing in the book changes here. All legs are looked at, also after one is blocked, because the denial
//! names the longest wait and the room of every leg (L14). Accounts that do not exist yet get the slots that the event
//! will fill. When an attempt is being rebooked, its holds and actuals are overlaid (L18).

use super::account::{Account, Sides};
use super::live::Live;
use super::{Book, hint};
use crate::account::{Measure, Shape};
use crate::command::{Estimator, Hold, Leg, Limit, OnExpiry, Periods, Reserve};
use crate::event::{HeldLeg, Learner, Opened, PeriodOpened};
use crate::reply::DenyKind;
use crate::units::{HELD_MAX, Micros, SECOND, signed, unsigned};

/// What was decided of one reserve. Kept by the book as scratch, so that deciding allocates nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// Slot of each leg's account, if it exists.
    pub(super) slots: Vec<Option<u32>>,
    pub(super) legs: Vec<HeldLeg>,
    pub(super) opened: Vec<Opened>,
    pub(super) periods: Vec<PeriodOpened>,
    pub(super) learners: Vec<Learner>,
    /// Mean-based guess of each learner, if it has one.
    guesses: Vec<Option<u64>>,
    pub(super) standings: Vec<Standing>,
    pub(super) blocks: Vec<Block>,
    pub(super) negative_held: u64,
}

/// How the account of one leg stands before the hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) posted: i64,
    pub(super) held: i64,
    /// What the leg adds to held or posted.
    pub(super) fresh: u64,
    /// What an ending attempt posts to the current bucket in the same step.
    pub(super) extra: u64,
    /// Smallest ceiling of the limits that speak.
    pub(super) ceiling: u64,
    pub(super) enforced: bool,
    /// End of the quota's period, UTC seconds.
    pub(super) period_end: u64,
}

/// A limit without room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) leg: usize,
    pub(super) limit: Limit,
    pub(super) amount: u64,
    pub(super) kind: DenyKind,
}

/// The attempt that a rebook ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending<'a> {
    pub(super) live: &'a Live,
    pub(super) actual: Option<&'a [u64]>,
}

/// No period start of a quota leg contains the engine's time.
#[derive(Debug)]
pub(super) struct Recalendar;

impl Book {
    /// Fill `plan`, whose slots are known.
    pub(super) fn plan(
        &self,
        now: Micros,
        cmd: &Reserve,
        ending: Option<Ending<'_>>,
        plan: &mut Plan,
    ) -> Result<(), Recalendar> {
        plan.clear();
        for (index, leg) in cmd.legs.iter().enumerate() {
            let slot = plan.slots.get(index).copied().flatten();
            self.plan_leg(now, (index, leg), slot, ending, plan)?;
        }
        Ok(())
    }

    fn plan_leg(
        &self,
        now: Micros,
        (index, leg): (usize, &Leg),
        slot: Option<u32>,
        ending: Option<Ending<'_>>,
        plan: &mut Plan,
    ) -> Result<(), Recalendar> {
        let account = slot.and_then(|slot| self.accounts.get(slot));
        let old = account.zip(slot).and_then(|(account, slot)| ending?.on(slot, account));
        let place = place(now, leg, account, old.map(|old| old.leg)).ok_or(Recalendar)?;
        let slot = slot.unwrap_or_else(|| plan.open(self.accounts.vacant(plan.opened.len()), leg));
        if leg.shape == Shape::Quota && account.is_none_or(|account| account.period(place.start).is_none()) {
            plan.periods.push(PeriodOpened { slot, start: place.start, end: place.end });
        }

        let asks = Asks::of(&leg.limits);
        let guess = plan.guess(self, &leg.estimator);
        let output = asks.shrink(leg, guess.min(leg.cap));
        let expected = amount(leg.base, leg.per_output, output);
        let asked = if asks.worst { expected.max(leg.worst) } else { expected };

        let requests = leg.measure == Measure::Requests;
        let carried = old.filter(|_| requests).map_or(0, |old| old.leg.decided);
        let decided = asked.max(carried);
        let fresh = decided - carried;
        let (mut posted, mut held) =
            account.map_or((0, 0), |account| (account.posted(now, place.start), account.held(place.start)));
        let extra = old.filter(|_| !requests).map_or(0, |old| old.posted);
        held = held.saturating_sub(old.map_or(0, |old| signed(old.leg.held)));
        posted = posted.saturating_add(signed(extra));
        plan.negative_held += u64::from(held < 0);

        let standing = Standing {
            posted,
            held,
            fresh,
            extra,
            ceiling: asks.ceiling,
            enforced: asks.enforced,
            period_end: place.end,
        };
        // Requests that an earlier attempt has posted ask for nothing more.
        let asks_more = fresh > 0 || carried == 0;
        let total = standing.total();
        let no_room = |limit: &Limit| asks_more && (total > signed(limit.ceiling) || decided > limit.ceiling);
        if asks.enforced && (total > signed(asks.ceiling) || decided > asks.ceiling) {
            for limit in leg.limits.iter().filter(|limit| !limit.shadow) {
                if no_room(limit) {
                    let kind = hint::kind(now, leg, account, &standing, decided, limit);
                    plan.blocks.push(Block { leg: index, limit: *limit, amount: decided, kind });
                }
            }
        }
        let room_to_hold = HELD_MAX.saturating_sub(unsigned(held));
        plan.standings.push(standing);
        plan.legs.push(HeldLeg {
            slot,
            at_worst: asks.worst,
            charge: asks.charge,
            refund_failed: leg.refund_failed,
            shadow_denied: leg.limits.iter().any(|limit| limit.shadow && no_room(limit)),
            place: place.start,
            base: leg.base,
            per_output: leg.per_output,
            cap: leg.cap,
            worst: leg.worst,
            output,
            held: if requests { 0 } else { decided.min(room_to_hold) },
            decided,
            carried,
            hard_ceiling: asks.hard,
        });
        Ok(())
    }
}

impl Plan {
    fn clear(&mut self) {
        self.legs.clear();
        self.opened.clear();
        self.periods.clear();
        self.learners.clear();
        self.guesses.clear();
        self.standings.clear();
        self.blocks.clear();
        self.negative_held = 0;
    }

    fn open(&mut self, slot: u32, leg: &Leg) -> u32 {
        self.opened.push(Opened { slot, account: leg.account, measure: leg.measure, shape: leg.shape });
        slot
    }

    /// Expected output before any bound. Legs of one call nearly always share an estimator: it is looked up once.
    fn guess(&mut self, book: &Book, estimator: &Estimator) -> u64 {
        let Estimator::Ema { own, prior, first } = *estimator else {
            return match *estimator {
                Estimator::Constant { output } => output,
                _ => u64::MAX,
            };
        };
        let learner = Learner { own, prior };
        let known = self.learners.iter().position(|other| *other == learner);
        if let Some(guess) = known.and_then(|at| self.guesses.get(at)) {
            return guess.unwrap_or(first);
        }
        let guess = book.estimates.guess(learner);
        self.learners.push(learner);
        self.guesses.push(guess);
        guess.unwrap_or(first)
    }
}

impl Standing {
    /// Everything the leg would share the account with, and the leg; a negative held counts as zero (L11).
    pub(super) fn total(&self) -> i64 {
        self.posted.saturating_add(self.held.max(0)).saturating_add(signed(self.fresh))
    }

    /// Left under the ceilings of the enforced limits.
    pub(super) fn room(&self) -> u64 {
        if !self.enforced {
            return crate::units::AMOUNT_MAX;
        }
        unsigned(signed(self.ceiling).saturating_sub(self.posted).saturating_sub(self.held.max(0)))
    }
}

/// A leg of the ending attempt on the same account, and what it posts there.
#[derive(Clone, Copy)]
struct OldLeg<'a> {
    leg: &'a HeldLeg,
    posted: u64,
}

impl<'a> Ending<'a> {
    fn on(self, slot: u32, account: &Account) -> Option<OldLeg<'a>> {
        let at = self.live.legs.iter().position(|leg| leg.slot == slot)?;
        let leg = self.live.legs.get(at)?;
        // A period that is gone can not be named again.
        if matches!(account.sides, Sides::Quota(_)) && account.period(leg.place).is_none() {
            return None;
        }
        let counts = !matches!(account.measure, Measure::Requests | Measure::Concurrency);
        let posted = self.actual.filter(|_| counts).and_then(|actual| actual.get(at));
        Some(OldLeg { leg, posted: posted.copied().unwrap_or(0) })
    }
}

/// What the limits of a leg ask for together. Those that are enforced speak; the shadow ones only if none is.
struct Asks {
    enforced: bool,
    worst: bool,
    charge: bool,
    ceiling: u64,
    /// Smallest hard ceiling; `u64::MAX`: none.
    hard: u64,
    /// Smallest soft ceiling.
    soft: Option<u64>,
}

impl Asks {
    fn of(limits: &[Limit]) -> Self {
        let enforced = limits.iter().any(|limit| !limit.shadow);
        let mut asks =
            Self { enforced, worst: false, charge: false, ceiling: u64::MAX, hard: u64::MAX, soft: None };
        for limit in limits.iter().filter(|limit| limit.shadow != enforced) {
            asks.worst |= limit.hold == Hold::Worst;
            asks.charge |= limit.on_expiry == OnExpiry::Charge;
            asks.ceiling = asks.ceiling.min(limit.ceiling);
            if enforced && limit.hard {
                asks.hard = asks.hard.min(limit.ceiling);
            } else if enforced {
                asks.soft = Some(asks.soft.map_or(limit.ceiling, |soft| soft.min(limit.ceiling)));
            }
        }
        asks
    }

    /// L15: on a soft limit the expected output is at most what an empty window has room for.
    fn shrink(&self, leg: &Leg, output: u64) -> u64 {
        match self.soft {
            Some(soft) if leg.per_output > 0 => {
                output.min((soft * 1000).saturating_sub(leg.base) / leg.per_output)
            }
            _ => output,
        }
    }
}

/// ⌈(base + per_output × output) / 1000⌉.
pub(super) fn amount(base: u64, per_output: u64, output: u64) -> u64 {
    base.saturating_add(per_output.saturating_mul(output)).div_ceil(1000)
}

/// The bucket or period of a leg.
struct Place {
    start: u64,
    end: u64,
}

fn place(now: Micros, leg: &Leg, account: Option<&Account>, old: Option<&HeldLeg>) -> Option<Place> {
    match leg.shape {
        Shape::Concurrency => Some(Place { start: 0, end: 0 }),
        Shape::Rate { width, .. } => {
            let start = match (old, account.map(|account| &account.sides)) {
                (Some(old), _) if leg.measure == Measure::Requests => old.place,
                (_, Some(Sides::Rate { ring, .. })) => ring.at(now).bucket,
                _ => now / width.max(1),
            };
            Some(Place { start, end: 0 })
        }
        Shape::Quota => {
            let named = old.zip(account).and_then(|(old, account)| account.period(old.place));
            let newest = account.and_then(Account::newest);
            match named {
                Some(period) => Some(Place { start: period.start, end: period.end }),
                None => period(now, leg.periods, newest.map(|period| (period.start, period.end))),
            }
        }
    }
}

/// L12: the period that contains `now`, never one older than the account's newest.
fn period(now: Micros, periods: Periods, newest: Option<(u64, u64)>) -> Option<Place> {
    let starts = match periods {
        Periods::None => return None,
        Periods::Lifetime => return Some(Place { start: 0, end: u64::MAX }),
        Periods::Calendar(starts) => starts,
    };
    let second = now / SECOND;
    let named =
        starts.iter().zip(starts.iter().skip(1)).find(|(start, end)| (**start..**end).contains(&second));
    let (start, end) = named.map(|(start, end)| (*start, *end))?;
    match newest {
        Some((newest, end)) if newest > start => {
            starts.iter().take(3).any(|start| *start == newest).then_some(Place { start: newest, end })
        }
        _ => Some(Place { start, end }),
    }
}
