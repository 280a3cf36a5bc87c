//! Decides a reserve by reading only: where each leg is booked, how much it asks for, and which limits have no room.
//!
//! Invariants: nothing in the book changes here. All legs are looked at, also after one is blocked, because the denial
//! names the longest wait and the room of every leg (L14). Accounts that do not exist yet get the slots that the event
//! will fill. When an attempt is being rebooked, its holds and actuals are overlaid (L18).

use super::account::{Account, Sides};
use super::live::Live;
use super::track::{At, Flow, Fullest, Landing, Track};
use super::{Book, hint};
use crate::account::{Measure, Shape};
use crate::command::{Estimator, Hold, Leg, Limit, OnExpiry, Periods, Profile, Reserve};
use crate::event::{HeldLeg, Learner, Opened, PeriodOpened, PeriodRow};
use crate::reply::DenyKind;
use crate::units::{AMOUNT_MAX, HELD_MAX, Micros, SECOND, signed, unsigned};

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
    /// Forecast: what the fullest window to come has more than the one that ends now.
    pub(super) held: i64,
    /// The most there would ever be on the account with the leg; a negative held counts as zero (L11).
    pub(super) peak: i64,
    /// What the leg adds to held or posted.
    pub(super) fresh: u64,
    /// Whatever the call does, it costs nothing here.
    pub(super) free: bool,
    /// `requests` that an earlier attempt has posted.
    pub(super) carried: u64,
    /// What an ending attempt posts to the current bucket in the same step.
    pub(super) extra: u64,
    /// Smallest ceiling of the limits that speak.
    pub(super) ceiling: u64,
    pub(super) enforced: bool,
    /// A part of each ceiling is left for uncertainty (forecast, busy).
    pub(super) headroom: bool,
    /// Forecast: so much room that the windows were not looked at. The peak is a bound, and `posted` and `held` are not
    /// known.
    clear: bool,
    /// Number of the rate's current bucket.
    pub(super) bucket: u64,
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
    /// Output that landed.
    pub(super) landed: u64,
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
            self.plan_leg((now, cmd.profile), (index, leg), slot, ending, plan)?;
        }
        if !plan.blocks.is_empty() {
            self.look_closer(now, cmd, ending, plan);
        }
        Ok(())
    }

    /// A denial tells the room of every leg, also of those that clearly have some.
    fn look_closer(&self, now: Micros, cmd: &Reserve, ending: Option<Ending<'_>>, plan: &mut Plan) {
        let legs = cmd.legs.iter().zip(&plan.slots).zip(&plan.legs);
        for (((leg, slot), held), standing) in legs.zip(&mut plan.standings) {
            let account = slot.and_then(|slot| self.accounts.get(slot));
            let (true, Some(account), Some(slot)) = (standing.clear, account, *slot) else { continue };
            let Sides::Forecast(track) = &account.sides else { continue };
            let at = track.at(now);
            let moved = ending.map(|ending| ending.on(slot, account).moved).unwrap_or_default();
            let flow = Flow::new(&Landing::of_leg(at, cmd.profile, leg, held.output)).moving(moved);
            standing.stands(&track.fullest(at, &flow));
        }
    }

    fn plan_leg(
        &self,
        (now, profile): (Micros, Profile),
        (index, leg): (usize, &Leg),
        slot: Option<u32>,
        ending: Option<Ending<'_>>,
        plan: &mut Plan,
    ) -> Result<(), Recalendar> {
        let account = slot.and_then(|slot| self.accounts.get(slot));
        let old = match (ending, account, slot) {
            (Some(ending), Some(account), Some(slot)) => ending.on(slot, account),
            _ => Old::default(),
        };
        let spot = spot(now, leg, account, old.place).ok_or(Recalendar)?;
        let slot = slot.unwrap_or_else(|| plan.open(self.accounts.vacant(plan.opened.len()), leg));
        if spot.opens {
            plan.periods.push(PeriodOpened { slot, start: spot.start, end: spot.end });
        }

        let asks = Asks::of(&leg.limits);
        let most = asks.most(leg, spot.busy);
        let output = shrink(leg, plan.guess(self, now, &leg.estimator).min(leg.cap), most);
        let expected = amount(leg.base, leg.per_output, output);
        let asked = if asks.worst { expected.max(leg.worst) } else { expected };

        let requests = leg.measure == Measure::Requests;
        let decided = asked.max(old.carried);
        let fresh = decided - old.carried;
        let mut standing = Standing {
            posted: spot.posted.saturating_add(signed(old.posted)),
            held: spot.held.saturating_sub(signed(old.held)),
            peak: 0,
            fresh,
            free: leg.is_free(),
            carried: old.carried,
            extra: old.posted,
            ceiling: asks.ceiling,
            enforced: asks.enforced,
            headroom: false,
            clear: false,
            bucket: spot.bucket,
            period_end: spot.end,
        };
        let landing = spot.at.map(|at| Landing::of_leg(at, profile, leg, output));
        let flow = standing.look_ahead(leg, account, &spot, landing.map(|landing| (landing, old.moved)));
        if asks.enforced && standing.lacks_room(asks.ceiling) {
            for limit in leg.limits.iter().filter(|limit| !limit.shadow && standing.lacks_room(limit.ceiling))
            {
                let kind = hint::kind(now, leg, account, &standing, flow.as_ref(), limit);
                plan.blocks.push(Block { leg: index, limit: *limit, amount: decided, kind });
            }
        }
        plan.negative_held += u64::from(standing.held < 0);
        plan.standings.push(standing);
        plan.legs.push(HeldLeg {
            slot,
            at_worst: asks.worst,
            charge: asks.charge,
            refund_failed: leg.refund_failed,
            shadow_denied: asks.shadow && standing.lacks_room_of_shadow(&leg.limits),
            place: spot.start,
            base: leg.base,
            per_output: leg.per_output,
            cap: leg.cap,
            worst: leg.worst,
            output,
            held: if requests || landing.is_some() {
                0
            } else {
                decided.min(HELD_MAX.saturating_sub(unsigned(standing.held)))
            },
            decided,
            carried: old.carried,
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
    #[inline]
    fn guess(&mut self, book: &Book, now: Micros, estimator: &Estimator) -> u64 {
        let Estimator::Learned { kind, own, prior, first } = *estimator else {
            return match *estimator {
                Estimator::Constant { output } => output,
                _ => u64::MAX,
            };
        };
        let learner = Learner { own, prior, kind };
        let known = self.learners.iter().rposition(|other| *other == learner);
        if let Some(guess) = known.and_then(|at| self.guesses.get(at)) {
            return guess.unwrap_or(first);
        }
        let guess = book.estimates.guess(learner, book.steady(now));
        self.learners.push(learner);
        self.guesses.push(guess);
        guess.unwrap_or(first)
    }
}

impl Standing {
    /// Find the peak: by the holds, or by the plans; how the call would land, if that had to be known.
    #[inline]
    fn look_ahead(
        &mut self,
        leg: &Leg,
        account: Option<&Account>,
        spot: &Spot,
        landing: Option<(Landing, (u64, i64))>,
    ) -> Option<Flow> {
        let (Some((landing, moved)), Some(at), Shape::Forecast { window, strict }) =
            (landing, spot.at, leg.shape)
        else {
            self.peak = self.posted.saturating_add(self.held.max(0)).saturating_add(signed(self.fresh));
            return None;
        };
        self.headroom = spot.busy && leg.spares();
        let track = match account.map(|account| &account.sides) {
            Some(Sides::Forecast(track)) => Some(track),
            _ => None,
        };
        // All that is posted and planned, and all of the call: no window is fuller.
        let most = track.map_or(0, |track| track.most(moved)).saturating_add(self.fresh);
        let lowest = leg.limits.iter().map(|limit| limit.ceiling).min().unwrap_or(0);
        if most <= Track::usable(lowest, self.headroom) {
            (self.clear, self.peak) = (true, signed(most));
            return None;
        }
        let flow = Flow::new(&landing).moving(moved);
        self.stands(&match track {
            Some(track) => track.fullest(at, &flow),
            None => Track::new(window, strict).fullest(at, &flow),
        });
        Some(flow)
    }

    /// What the windows of a forecast account say.
    fn stands(&mut self, fullest: &Fullest) {
        self.clear = false;
        self.posted = signed(fullest.now);
        self.held = signed(fullest.without.saturating_sub(fullest.now));
        self.peak = signed(fullest.with);
    }

    /// What the leg asks for in all.
    #[inline]
    pub(super) fn demand(&self) -> u64 {
        self.carried + self.fresh
    }

    /// Requests that an earlier attempt has posted ask for nothing more, and what is free asks for nothing at all: both
    /// have room on an account that is overdrawn. A call that may still cost something has none, though it asks for 0 now.
    #[inline]
    fn lacks_room(&self, ceiling: u64) -> bool {
        let asks = self.fresh > 0 || (self.carried == 0 && !self.free);
        asks && (self.peak > signed(Track::usable(ceiling, self.headroom)) || self.demand() > ceiling)
    }

    fn lacks_room_of_shadow(&self, limits: &[Limit]) -> bool {
        limits.iter().any(|limit| limit.shadow && self.lacks_room(limit.ceiling))
    }

    /// Left under the ceilings of the enforced limits.
    pub(super) fn room(&self) -> u64 {
        if !self.enforced {
            return AMOUNT_MAX;
        }
        unsigned(signed(self.ceiling).saturating_sub(self.posted).saturating_sub(self.held.max(0)))
    }
}

/// What the ending attempt has on the same account; nothing in a plain reserve.
#[derive(Clone, Copy, Default)]
struct Old {
    /// Bucket or period that its leg named.
    place: Option<u64>,
    held: u64,
    /// What it posts there now.
    posted: u64,
    /// `requests` it has posted.
    carried: u64,
    /// Forecast: what its end changes in the second of its door.
    moved: (u64, i64),
}

impl Ending<'_> {
    fn on(self, slot: u32, account: &Account) -> Old {
        let Some((at, leg)) = self.live.legs.iter().enumerate().find(|(_, leg)| leg.slot == slot) else {
            return Old::default();
        };
        // A period that is gone can not be named again.
        if matches!(account.sides, Sides::Quota(_)) && account.period(leg.place).is_none() {
            return Old::default();
        }
        let (held, place) = (leg.held, Some(leg.place));
        let actual = self.actual.and_then(|actual| actual.get(at)).copied();
        match (account.measure, &account.sides) {
            (_, Sides::Forecast(_)) => {
                let moved = (leg.place, input_difference(leg, actual, self.landed));
                Old { place, moved, ..Old::default() }
            }
            (Measure::Requests, _) => Old { place, held, carried: leg.decided, ..Old::default() },
            (Measure::Concurrency, _) => Old { place, held, ..Old::default() },
            _ => Old { place, held, posted: actual.unwrap_or(0), ..Old::default() },
        }
    }
}

/// What the limits of a leg ask for together. Those that are enforced speak; the shadow ones only if none is.
struct Asks {
    enforced: bool,
    shadow: bool,
    worst: bool,
    charge: bool,
    ceiling: u64,
    /// Smallest hard ceiling; `u64::MAX`: none.
    hard: u64,
    /// Smallest soft ceiling; `u64::MAX`: none.
    soft: u64,
}

impl Asks {
    #[inline]
    fn of(limits: &[Limit]) -> Self {
        let (mut asks, mut unheard) = (Self::NOTHING, Self::NOTHING);
        for limit in limits {
            let speaker = if limit.shadow {
                asks.shadow = true;
                &mut unheard
            } else {
                asks.enforced = true;
                &mut asks
            };
            speaker.worst |= limit.hold == Hold::Worst;
            speaker.charge |= limit.on_expiry == OnExpiry::Charge;
            speaker.ceiling = speaker.ceiling.min(limit.ceiling);
            let strictest = if limit.hard { &mut speaker.hard } else { &mut speaker.soft };
            *strictest = limit.ceiling.min(*strictest);
        }
        if asks.enforced {
            return asks;
        }
        Self { shadow: true, hard: u64::MAX, soft: u64::MAX, ..unheard }
    }

    const NOTHING: Self = Self {
        enforced: false,
        shadow: false,
        worst: false,
        charge: false,
        ceiling: u64::MAX,
        hard: u64::MAX,
        soft: u64::MAX,
    };

    /// The most a leg may expect (L15): on a soft limit what an empty window has room for, on a forecast account what is
    /// usable of the ceiling.
    #[inline]
    fn most(&self, leg: &Leg, busy: bool) -> u64 {
        match leg.shape {
            Shape::Forecast { .. } => Track::usable(self.ceiling, busy && leg.spares()),
            _ => self.soft,
        }
    }
}

/// The expected output, so that the leg's amount is at most `most`.
#[inline]
fn shrink(leg: &Leg, output: u64, most: u64) -> u64 {
    // Most ceilings are far above the demand; only near ones are worth a division.
    let most = most.saturating_mul(1000);
    if leg.per_output == 0 || leg.base.saturating_add(leg.per_output.saturating_mul(output)) <= most {
        return output;
    }
    most.saturating_sub(leg.base) / leg.per_output
}

/// What the second of a call's door gets when the truth is known: true input − estimated input. `used` is the whole
/// amount, of which what landed as output is no input; `None`: nothing was used.
pub(super) fn input_difference(leg: &HeldLeg, used: Option<u64>, landed: u64) -> i64 {
    let estimated = leg.base.div_ceil(1000);
    let output = amount(leg.base, leg.per_output, landed) - estimated;
    signed(used.unwrap_or(0).saturating_sub(output)) - signed(estimated)
}

impl Book {
    /// What a leg would ask for now, by what its estimator has learned; nothing is decided or written.
    pub fn demand(&self, now: Micros, leg: &Leg) -> u64 {
        let asks = Asks::of(&leg.limits);
        let slot = self.accounts.find(leg.account);
        let busy = slot.and_then(|slot| self.accounts.get(slot)).is_some_and(|account| account.is_busy(now));
        let guess = Plan::default().guess(self, now, &leg.estimator);
        let output = shrink(leg, guess.min(leg.cap), asks.most(leg, busy));
        let expected = amount(leg.base, leg.per_output, output);
        if asks.worst { expected.max(leg.worst) } else { expected }
    }
}

/// ⌈(base + per_output × output) / 1000⌉.
#[inline]
pub(super) fn amount(base: u64, per_output: u64, output: u64) -> u64 {
    base.saturating_add(per_output.saturating_mul(output)).div_ceil(1000)
}

/// The bucket or period of a leg, and how it stands.
#[derive(Default)]
struct Spot {
    start: u64,
    /// End of the period.
    end: u64,
    bucket: u64,
    posted: i64,
    held: i64,
    /// The period is not open yet.
    opens: bool,
    /// Forecast: where `now` falls.
    at: Option<At>,
    /// Forecast: something is posted or planned.
    busy: bool,
}

#[inline]
fn spot(now: Micros, leg: &Leg, account: Option<&Account>, old: Option<u64>) -> Option<Spot> {
    match (leg.shape, account.map(|account| &account.sides)) {
        (Shape::Rate { .. }, Some(Sides::Rate { ring, held })) => {
            let at = ring.at(now);
            let taken = old.filter(|_| leg.measure == Measure::Requests);
            let start = taken.unwrap_or(at.bucket);
            let posted = signed(ring.posted(at));
            Some(Spot { start, bucket: at.bucket, posted, held: *held, ..Spot::default() })
        }
        (Shape::Rate { width, .. }, _) => {
            let bucket = now / width.max(1);
            Some(Spot { start: bucket, bucket, ..Spot::default() })
        }
        (Shape::Forecast { .. }, sides) => {
            let (at, busy) = match sides {
                Some(Sides::Forecast(track)) => (track.at(now), track.is_busy(track.at(now))),
                _ => (At::fresh(now), false),
            };
            Some(Spot { start: at.second, bucket: at.second, at: Some(at), busy, ..Spot::default() })
        }
        (Shape::Quota, sides) => {
            let periods: &[PeriodRow] = match sides {
                Some(Sides::Quota(periods)) => periods,
                _ => &[],
            };
            let kept = |start| periods.iter().rev().find(|period| period.start == start);
            let named = old.and_then(kept);
            let (start, end) = match named {
                Some(period) => (period.start, period.end),
                None => period(now, leg.periods, periods.last())?,
            };
            let (posted, held) = kept(start).map_or((0, 0), |period| (period.posted, period.held));
            Some(Spot { start, end, posted, held, opens: kept(start).is_none(), ..Spot::default() })
        }
        (Shape::Concurrency, Some(Sides::Concurrency { held })) => {
            Some(Spot { held: *held, ..Spot::default() })
        }
        (Shape::Concurrency, _) => Some(Spot::default()),
    }
}

/// L12: the period that contains `now`, never one older than the account's newest.
#[inline]
fn period(now: Micros, periods: Periods, newest: Option<&PeriodRow>) -> Option<(u64, u64)> {
    let starts = match periods {
        Periods::None => return None,
        Periods::Lifetime => return Some((0, u64::MAX)),
        Periods::Calendar(starts) => starts,
    };
    let second = now / SECOND;
    let named =
        starts.iter().zip(starts.iter().skip(1)).find(|(start, end)| (**start..**end).contains(&second));
    let (start, end) = named.map(|(start, end)| (*start, *end))?;
    match newest {
        // However far the clock stepped back: the caller can not know the newest, and would be sent away until it is past.
        Some(newest) if newest.start > start => Some((newest.start, newest.end)),
        _ => Some((start, end)),
    }
}
