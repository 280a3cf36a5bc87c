//! What the rules say of a reserve, from the auditor's own sums.

use tollbook_engine::ledger::{
    Estimator, Hold, Leg, Limit, Measure, Micros, OnExpiry, Periods, Profile, Reserve, Shape,
};

use super::Auditor;
use super::books::{Account, Learner, Live, LiveLeg, Mean, Sides, amount, until};
use super::ends::input_difference;
use super::seconds::{Flow, Seconds, spares, usable};

/// Longest likely wait behind holds on an account without a window.
const LIKELY_MAX: Micros = 60_000_000;

/// What a reserve would write, and what stands in its way.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) legs: Vec<LiveLeg>,
    pub(crate) standings: Vec<Standing>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) learners: Vec<Learner>,
    /// How each leg on a forecast account would land.
    pub(crate) flows: Vec<Option<Flow>>,
}

/// An account before the leg.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) posted: i64,
    pub(crate) held: i64,
    /// What the leg adds.
    pub(crate) fresh: u64,
    pub(crate) ceiling: u64,
    pub(crate) enforced: bool,
    /// End of the period, seconds.
    pub(crate) end: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) leg: usize,
    pub(crate) limit: Limit,
    pub(crate) demand: u64,
    pub(crate) why: Why,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    TooLarge,
    Exhausted,
    Spent {
        after: Micros,
    },
    /// It fits after so long with live holds unchanged.
    Firm {
        after: Micros,
    },
    /// As `Firm`, but a denial may be counted before.
    Counted {
        after: Micros,
    },
    /// Holds stand in the way.
    Likely {
        most: Micros,
    },
}

/// The attempt that a rebook ends.
#[derive(Clone, Copy)]
pub(crate) struct Ending<'a> {
    pub(crate) live: &'a Live,
    pub(crate) actual: Option<&'a [u64]>,
    pub(crate) landed: u64,
}

impl Auditor {
    /// `None`: no period that the caller names contains the engine's time.
    pub(super) fn plan(
        &self,
        now: Micros,
        shard: u8,
        reserve: &Reserve,
        ending: Option<Ending<'_>>,
    ) -> Option<Planned> {
        let mut planned = Planned {
            legs: Vec::new(),
            standings: Vec::new(),
            blocks: Vec::new(),
            learners: Vec::new(),
            flows: Vec::new(),
        };
        for (index, leg) in reserve.legs.iter().enumerate() {
            self.plan_leg((now, reserve.profile), shard, (index, leg), ending, &mut planned)?;
        }
        Some(planned)
    }

    fn plan_leg(
        &self,
        (now, profile): (Micros, Profile),
        shard: u8,
        (index, leg): (usize, &Leg),
        ending: Option<Ending<'_>>,
        planned: &mut Planned,
    ) -> Option<()> {
        let account = self.accounts.get(&(shard, leg.account));
        let old = ending.and_then(|ending| {
            let at = ending.live.legs.iter().position(|old| old.account == leg.account)?;
            let used = ending.actual.map_or(0, |actual| actual[at]);
            Some((&ending.live.legs[at], used))
        });
        let (place, end) = place(now, leg, account, old.map(|(old, _)| old))?;
        let enforced: Vec<&Limit> = leg.limits.iter().filter(|limit| !limit.shadow).collect();
        let speaking: Vec<&Limit> =
            if enforced.is_empty() { leg.limits.iter().collect() } else { enforced.clone() };
        let is_planned = matches!(leg.shape, Shape::Forecast { .. });
        let seconds = account.and_then(Account::seconds);
        let headroom = spares(leg) && seconds.is_some_and(|seconds| seconds.is_busy(now));
        let least = speaking.iter().map(|limit| limit.ceiling).min().unwrap_or(0);
        let most = if is_planned { Some(usable(least, headroom)) } else { soft(&enforced) };
        let output = self.output(shard, leg, most, planned);
        let expected = amount(leg.base, leg.per_output, output);
        let at_worst = speaking.iter().any(|limit| limit.hold == Hold::Worst);
        let asked = if at_worst { expected.max(leg.worst) } else { expected };

        let is_requests = leg.measure == Measure::Requests;
        let carried = if is_requests { old.map_or(0, |(old, _)| old.decided) } else { 0 };
        let decided = asked.max(carried);
        let fresh = decided - carried;
        let counts = !matches!(leg.measure, Measure::Requests | Measure::Concurrency);
        let extra = if counts { old.map_or(0, |(_, used)| used) } else { 0 };
        let posted = account.map_or(0, |account| account.posted(now, place)) + extra.cast_signed();
        let held = account.map_or(0, |account| account.held(now, place))
            - old.map_or(0, |(old, _)| old.held.cast_signed());
        let mut standing =
            Standing { posted, held, fresh, ceiling: least, enforced: !enforced.is_empty(), end };
        let flow = is_planned.then(|| {
            let moved = ending.and_then(|ending| ending.moves(leg));
            let flow = Flow::of(seconds, now, profile, (leg.base, leg.per_output), output);
            flow.moving(moved.unwrap_or_default())
        });
        let mut peak = posted + held + fresh.cast_signed();
        if let (Some(flow), Shape::Forecast { window, strict }) = (&flow, leg.shape) {
            let new = Seconds::new(window, strict);
            let fullest = seconds.unwrap_or(&new).fullest(now, flow);
            standing.posted = fullest.now.cast_signed();
            standing.held = (fullest.without - fullest.now).cast_signed();
            peak = fullest.with.cast_signed();
        }
        let nothing_more = is_requests && fresh == 0 && carried > 0;
        let is_free = leg.base == 0 && leg.worst == 0 && leg.per_output.min(leg.cap) == 0;
        let has_no_room = |limit: &Limit| {
            let most = usable(limit.ceiling, headroom).cast_signed();
            !nothing_more && !is_free && (peak > most || decided > limit.ceiling)
        };
        for limit in enforced.iter().filter(|limit| has_no_room(limit)) {
            let why = why((now, flow.as_ref()), leg, account, &standing, (decided, extra), limit);
            planned.blocks.push(Block { leg: index, limit: **limit, demand: decided, why });
        }
        planned.standings.push(standing);
        planned.legs.push(LiveLeg {
            account: leg.account,
            measure: leg.measure,
            place,
            base: leg.base,
            per_output: leg.per_output,
            cap: leg.cap,
            worst: leg.worst,
            output,
            held: if is_requests || is_planned { 0 } else { decided },
            decided,
            within_all: decided,
            has_soft: enforced.iter().any(|limit| !limit.hard),
            carried,
            at_worst,
            charge: speaking.iter().any(|limit| limit.on_expiry == OnExpiry::Charge),
            refund_failed: leg.refund_failed,
            shadow_denied: leg.limits.iter().any(|limit| limit.shadow && has_no_room(limit)),
            hard_ceiling: enforced.iter().filter(|limit| limit.hard).map(|limit| limit.ceiling).min(),
            is_planned,
        });
        planned.flows.push(flow);
        Some(())
    }

    /// Expected output: the estimator's, at most the cap, and so much that the leg asks for no more than `most` (L15).
    fn output(&self, shard: u8, leg: &Leg, most: Option<u64>, planned: &mut Planned) -> u64 {
        let guess = match leg.estimator {
            Estimator::Capped => leg.cap,
            Estimator::Constant { output } => output,
            Estimator::Learned { kind, own, prior, first } => {
                if !planned.learners.contains(&(kind, own, prior)) {
                    planned.learners.push((kind, own, prior));
                }
                let mean = |id| self.means.get(&(shard, id));
                let own = mean(own).filter(|own| own.samples > 0).and_then(Mean::guess);
                own.or_else(|| mean(prior)?.guess()).unwrap_or(first)
            }
        };
        let output = guess.min(leg.cap);
        match most {
            Some(most) if leg.per_output > 0 => {
                output.min((most * 1000).saturating_sub(leg.base) / leg.per_output)
            }
            _ => output,
        }
    }
}

impl Ending<'_> {
    /// What the end changes in the second of the door of the leg's forecast account.
    fn moves(&self, leg: &Leg) -> Option<(u64, i64)> {
        let at = self.live.legs.iter().position(|old| old.account == leg.account)?;
        let old = &self.live.legs[at];
        Some((old.place, input_difference(old, self.actual.map(|actual| actual[at]), self.landed)))
    }
}

/// What an empty window of a soft limit has room for.
fn soft(enforced: &[&Limit]) -> Option<u64> {
    enforced.iter().filter(|limit| !limit.hard).map(|limit| limit.ceiling).min()
}

/// Bucket, or start and end of the period.
fn place(now: Micros, leg: &Leg, account: Option<&Account>, old: Option<&LiveLeg>) -> Option<(u64, u64)> {
    match leg.shape {
        Shape::Forecast { .. } => {
            let seconds = account.and_then(Account::seconds);
            Some((seconds.map_or(now / 1_000_000, |seconds| seconds.second(now)), 0))
        }
        Shape::Concurrency => Some((0, 0)),
        Shape::Rate { width, .. } => {
            let carried = old.filter(|old| old.measure == Measure::Requests).map(|old| old.place);
            let current = match account.map(|account| &account.sides) {
                Some(Sides::Rate { window, .. }) => window.bucket(now),
                _ => now / width,
            };
            Some((carried.unwrap_or(current), 0))
        }
        Shape::Quota => {
            if let (Some(old), Some(Sides::Quota(periods))) = (old, account.map(|account| &account.sides))
                && let Some(period) = periods.get(&old.place)
            {
                return Some((old.place, period.end));
            }
            let starts = match leg.periods {
                Periods::Lifetime => return Some((0, u64::MAX)),
                Periods::Calendar(starts) => starts,
                Periods::None => return None,
            };
            let second = now / 1_000_000;
            let at = starts.windows(2).position(|pair| (pair[0]..pair[1]).contains(&second))?;
            match account.and_then(Account::newest) {
                Some((newest, period)) if newest > starts[at] => Some((newest, period.end)),
                _ => Some((starts[at], starts[at + 1])),
            }
        }
    }
}

fn why(
    (now, flow): (Micros, Option<&Flow>),
    leg: &Leg,
    account: Option<&Account>,
    standing: &Standing,
    (demand, extra): (u64, u64),
    limit: &Limit,
) -> Why {
    if demand > limit.ceiling {
        return Why::TooLarge;
    }
    match leg.shape {
        Shape::Forecast { window, strict } => {
            let new = Seconds::new(window, strict);
            let seconds = account.and_then(Account::seconds).unwrap_or(&new);
            let longest = seconds.longest();
            match flow.and_then(|flow| seconds.wait(now, flow, limit.ceiling, spares(leg))) {
                None => Why::Likely { most: longest },
                Some(after) if after > longest => Why::Counted { after: longest },
                Some(after) if limit.count_denied => Why::Counted { after },
                Some(after) => Why::Firm { after },
            }
        }
        Shape::Concurrency => Why::Likely { most: LIKELY_MAX },
        Shape::Quota => {
            let left = until(now, standing.end);
            let never = leg.periods == Periods::Lifetime || left == 0;
            let is_spent = standing.posted + standing.fresh.cast_signed() > limit.ceiling.cast_signed();
            match (is_spent, never) {
                (true, true) => Why::Exhausted,
                (true, false) => Why::Spent { after: left },
                (false, true) => Why::Likely { most: LIKELY_MAX },
                (false, false) => Why::Likely { most: LIKELY_MAX.min(left) },
            }
        }
        Shape::Rate { .. } => {
            let Some(Sides::Rate { window, .. }) = account.map(|account| &account.sides) else {
                return Why::Likely { most: LIKELY_MAX };
            };
            let wanted = standing.held.unsigned_abs() + standing.fresh;
            let Some(room) = limit.ceiling.checked_sub(wanted) else {
                return Why::Likely { most: window.length() };
            };
            let after = window.wait(now, room, extra);
            if after > window.span() {
                Why::Likely { most: window.span() }
            } else if limit.count_denied {
                Why::Counted { after }
            } else {
                Why::Firm { after }
            }
        }
    }
}
