//! One account: what is held and what is posted.
//!
//! Invariants: `live` counts the live legs on the account; `version` changes with every write to `held`. Periods are
//! sorted by start. A period is kept while it is the newest, while something is held on it, and for [`PERIOD_KEPT`] after
//! its end; whatever is booked to a period that is gone changes nothing, and the caller counts it.

use super::ring::Ring;
use super::track::{Landing, Track};
use crate::account::{AccountId, Measure, Shape};
use crate::command::Profile;
use crate::event::{AccountRow, GatewayRow, HeldLeg, Opened, PeriodRow};
use crate::reply::Alarms;
use crate::units::{AMOUNT_MAX, Micros, PERIOD_KEPT, micros, signed, unsigned};

/// Periods dropped at most by the reserve that opens one.
const DROPPED_MAX: usize = 4;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Account {
    pub(crate) id: AccountId,
    pub(crate) measure: Measure,
    pub(crate) live: u32,
    pub(crate) version: u32,
    /// Mean time a hold lives; 0: none has ended yet.
    pub(crate) mean_hold: Micros,
    /// Last use, on the steady clock.
    pub(crate) used: Micros,
    pub(crate) sides: Sides,
    /// What few accounts have.
    pub(crate) rare: Option<Box<Rare>>,
}

/// Held and posted, by shape.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Sides {
    Rate { ring: Ring, held: i64 },
    Forecast(Box<Track>),
    Quota(Vec<PeriodRow>),
    Concurrency { held: i64 },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rare {
    pub(crate) shadow_denied: u64,
    pub(crate) shadow_demand: u64,
    /// One more than the last bucket in which a denial was posted.
    pub(crate) denied_bucket: u64,
}

impl Account {
    pub(crate) fn new(opened: &Opened, used: Micros) -> Self {
        let sides = match opened.shape {
            Shape::Rate { buckets, width, weights } => {
                Sides::Rate { ring: Ring::new(buckets, width, weights), held: 0 }
            }
            Shape::Forecast { window, strict } => Sides::Forecast(Box::new(Track::new(window, strict))),
            Shape::Quota => Sides::Quota(Vec::new()),
            Shape::Concurrency => Sides::Concurrency { held: 0 },
        };
        let (id, measure) = (opened.account, opened.measure);
        Self { id, measure, live: 0, version: 0, mean_hold: 0, used, sides, rare: None }
    }

    pub(crate) fn shape(&self) -> Shape {
        match &self.sides {
            Sides::Rate { ring, .. } => {
                let (buckets, width, weights) = ring.shape();
                Shape::Rate { buckets, width, weights }
            }
            Sides::Forecast(track) => {
                let (window, strict) = track.shape();
                Shape::Forecast { window, strict }
            }
            Sides::Quota(_) => Shape::Quota,
            Sides::Concurrency { .. } => Shape::Concurrency,
        }
    }

    #[inline]
    pub(crate) fn is(&self, shape: Shape) -> bool {
        match (&self.sides, shape) {
            (Sides::Rate { ring, .. }, Shape::Rate { buckets, width, weights }) => {
                ring.shape() == (buckets, width, weights)
            }
            (Sides::Forecast(track), Shape::Forecast { window, strict }) => track.shape() == (window, strict),
            (Sides::Quota(_), Shape::Quota) | (Sides::Concurrency { .. }, Shape::Concurrency) => true,
            _ => false,
        }
    }

    /// Held at a place; quotas hold per period, forecast accounts hold nothing.
    pub(crate) fn held(&self, place: u64) -> i64 {
        match &self.sides {
            Sides::Forecast(_) => 0,
            Sides::Rate { held, .. } | Sides::Concurrency { held } => *held,
            Sides::Quota(periods) => find(periods, place).map_or(0, |period| period.held),
        }
    }

    /// Posted, and what stands beside it: what is held, or what the fullest window to come has more than this one.
    pub(crate) fn figures(&self, now: Micros, place: u64) -> (i64, i64) {
        match &self.sides {
            Sides::Forecast(_) => {
                let Shown { posted, beside, .. } = self.shown(now, place);
                (posted, beside)
            }
            _ => (self.posted(now, place), self.held(place)),
        }
    }

    /// The figures, and the time until the account is empty: of a forecast account one look gives all three.
    pub(crate) fn shown(&self, now: Micros, place: u64) -> Shown {
        if let Sides::Forecast(track) = &self.sides {
            let (fullest, reset) = track.standing(now);
            let beside = signed(fullest.without.saturating_sub(fullest.now));
            return Shown { posted: signed(fullest.now), beside, reset };
        }
        let (posted, beside) = self.figures(now, place);
        Shown { posted, beside, reset: self.reset(now, place) }
    }

    /// Posted in the window or in the period at `place`.
    pub(crate) fn posted(&self, now: Micros, place: u64) -> i64 {
        match &self.sides {
            Sides::Rate { ring, .. } => signed(ring.posted(ring.at(now))),
            Sides::Forecast(track) => signed(track.standing(now).0.now),
            Sides::Quota(periods) => find(periods, place).map_or(0, |period| period.posted),
            Sides::Concurrency { .. } => 0,
        }
    }

    pub(crate) fn newest(&self) -> Option<&PeriodRow> {
        match &self.sides {
            Sides::Quota(periods) => periods.last(),
            _ => None,
        }
    }

    pub(crate) fn period(&self, start: u64) -> Option<&PeriodRow> {
        match &self.sides {
            Sides::Quota(periods) => find(periods, start),
            _ => None,
        }
    }

    /// Time until the account is empty if nothing else comes.
    pub(crate) fn reset(&self, now: Micros, place: u64) -> Micros {
        match &self.sides {
            Sides::Rate { ring, held } => ring.reset(ring.at(now), now, *held > 0),
            Sides::Forecast(track) => track.reset(track.at(now), now),
            Sides::Quota(periods) => find(periods, place).map_or(0, |period| until(now, period.end)),
            Sides::Concurrency { .. } => 0,
        }
    }

    /// Its holds are of an amount that depends on the output.
    pub(crate) fn holds_output(&self) -> bool {
        !matches!(self.measure, Measure::Requests | Measure::Concurrency)
            && !matches!(self.sides, Sides::Forecast(_))
    }

    /// Number of the current bucket of a rate, or second of a forecast.
    pub(crate) fn bucket(&self, now: Micros) -> Option<u64> {
        match &self.sides {
            Sides::Rate { ring, .. } => Some(ring.at(now).bucket),
            Sides::Forecast(track) => Some(track.at(now).second),
            Sides::Quota(_) | Sides::Concurrency { .. } => None,
        }
    }

    /// A forecast account on which something is posted or planned.
    pub(crate) fn is_busy(&self, now: Micros) -> bool {
        matches!(&self.sides, Sides::Forecast(track) if track.is_busy(track.at(now)))
    }

    /// How much of `requests` posted at a place could be given back now.
    #[inline]
    pub(crate) fn refundable(&self, now: Micros, place: u64) -> u64 {
        match &self.sides {
            Sides::Rate { ring, .. } => ring.in_bucket(ring.at(now), place),
            Sides::Forecast(track) => track.refundable(track.at(now), place),
            Sides::Quota(periods) => find(periods, place).map_or(0, |period| unsigned(period.posted)),
            Sides::Concurrency { .. } => 0,
        }
    }

    /// Write a new leg: its hold, its `requests`, or its input and its plan.
    #[inline]
    pub(crate) fn take(&mut self, came: Came, leg: &HeldLeg, alarms: &mut Alarms) {
        let Came { now, steady, profile } = came;
        self.used = steady;
        self.live = self.live.saturating_add(1);
        if leg.shadow_denied {
            let rare = self.rare.get_or_insert_default();
            rare.shadow_denied = rare.shadow_denied.saturating_add(1);
            rare.shadow_demand = rare.shadow_demand.saturating_add(leg.decided);
        }
        if let Sides::Forecast(track) = &mut self.sides {
            alarms.ring_restarts += u64::from(track.advance(now));
            let landing = Landing::of_held(track.at(now), profile, leg);
            alarms.saturated += u64::from(track.plan(&landing));
        } else if self.measure == Measure::Requests {
            self.post(now, leg.place, signed(leg.decided.saturating_sub(leg.carried)), alarms);
        } else {
            self.hold(leg.place, signed(leg.held), alarms);
        }
    }

    /// Free a leg's hold and post what it used.
    #[inline]
    pub(crate) fn end(&mut self, now: Micros, when: Lived, leg: &HeldLeg, posted: i64, alarms: &mut Alarms) {
        self.used = when.steady;
        self.live = self.live.saturating_sub(1);
        // Requests and plans hold nothing, so they say nothing about how long room is taken.
        if self.measure != Measure::Requests && !matches!(self.sides, Sides::Forecast(_)) {
            self.mean_hold = if self.mean_hold == 0 { when.lived } else { mean(self.mean_hold, when.lived) };
        }
        if leg.held > 0 {
            self.hold(leg.place, -signed(leg.held), alarms);
        }
        if posted != 0 {
            self.post(now, leg.place, posted, alarms);
        }
    }

    /// Change what is held at a place.
    #[inline]
    pub(crate) fn hold(&mut self, place: u64, delta: i64, alarms: &mut Alarms) {
        self.version = self.version.wrapping_add(1);
        let held = match &mut self.sides {
            Sides::Rate { held, .. } | Sides::Concurrency { held } => held,
            Sides::Forecast(_) => return,
            Sides::Quota(periods) => {
                let Some(period) = find_mut(periods, place) else {
                    alarms.dropped_postings += 1;
                    return;
                };
                &mut period.held
            }
        };
        *held = held.saturating_add(delta);
    }

    /// Post an amount: positive to the current bucket or the named period; negative out of the bucket or period named.
    /// A forecast account takes both to the second named.
    #[inline]
    pub(crate) fn post(&mut self, now: Micros, place: u64, amount: i64, alarms: &mut Alarms) {
        let magnitude = amount.unsigned_abs();
        match &mut self.sides {
            Sides::Rate { ring, .. } => {
                alarms.ring_restarts += u64::from(ring.advance(now));
                if amount < 0 {
                    alarms.dropped_refunds += u64::from(ring.take_back(place, magnitude) > 0);
                } else {
                    alarms.saturated += u64::from(ring.post(magnitude) > 0);
                }
            }
            Sides::Forecast(track) => {
                alarms.ring_restarts += u64::from(track.advance(now));
                // A second that has left the window no longer matters.
                track.correct(place, amount);
            }
            Sides::Quota(periods) => {
                let Some(period) = find_mut(periods, place) else {
                    alarms.dropped_postings += 1;
                    return;
                };
                let sum = period.posted.saturating_add(amount);
                period.posted = sum.clamp(-signed(AMOUNT_MAX), signed(AMOUNT_MAX));
                alarms.saturated += u64::from(period.posted != sum);
            }
            Sides::Concurrency { .. } => {}
        }
    }

    /// Open a period, and drop a few that are over.
    pub(crate) fn open(&mut self, now: Micros, start: u64, end: u64) {
        let Sides::Quota(periods) = &mut self.sides else { return };
        if let Err(at) = periods.binary_search_by_key(&start, |period| period.start) {
            periods.insert(at, PeriodRow { start, end, posted: 0, held: 0 });
        }
        drop_over(periods, now, DROPPED_MAX);
    }

    /// Drop every period that is over but the newest.
    pub(crate) fn trim(&mut self, now: Micros) {
        let Sides::Quota(periods) = &mut self.sides else { return };
        drop_over(periods, now, periods.len());
        periods.shrink_to_fit();
    }

    /// Whether [`Account::trim`] would drop something.
    pub(crate) fn has_over(&self, now: Micros) -> bool {
        match &self.sides {
            Sides::Quota(periods) => {
                periods.len() > 1 && periods.first().is_some_and(|period| is_over(period, now))
            }
            _ => false,
        }
    }

    pub(crate) fn row<'a>(&'a self, slot: u32, buckets: &'a mut Vec<u64>) -> AccountRow<'a> {
        let rare = self.rare.as_deref().copied().unwrap_or_default();
        buckets.clear();
        let (mut held, mut newest) = (0, 0);
        let (mut periods, mut gateways): (&[PeriodRow], &[GatewayRow]) = (&[], &[]);
        match &self.sides {
            Sides::Rate { ring, held: all } => (held, newest) = (*all, ring.dump(buckets)),
            Sides::Forecast(track) => (newest, gateways) = (track.dump(buckets), track.gateways()),
            Sides::Quota(kept) => periods = kept,
            Sides::Concurrency { held: all } => held = *all,
        }
        AccountRow {
            opened: Opened { slot, account: self.id, measure: self.measure, shape: self.shape() },
            held,
            live: self.live,
            version: self.version,
            mean_hold: self.mean_hold,
            used: self.used,
            shadow_denied: rare.shadow_denied,
            shadow_demand: rare.shadow_demand,
            denied_bucket: rare.denied_bucket,
            newest,
            buckets,
            gateways,
            periods,
        }
    }

    pub(crate) fn from_row(row: &AccountRow<'_>) -> Self {
        let mut account = Self::new(&row.opened, row.used);
        (account.live, account.version, account.mean_hold) = (row.live, row.version, row.mean_hold);
        match &mut account.sides {
            Sides::Rate { ring, held } => {
                ring.load(row.newest, row.buckets);
                *held = row.held;
            }
            Sides::Forecast(track) => track.load(row.newest, row.buckets, row.gateways),
            Sides::Quota(periods) => periods.extend_from_slice(row.periods),
            Sides::Concurrency { held } => *held = row.held,
        }
        let rare = Rare {
            shadow_denied: row.shadow_denied,
            shadow_demand: row.shadow_demand,
            denied_bucket: row.denied_bucket,
        };
        account.rare = (rare != Rare::default()).then(|| Box::new(rare));
        account
    }
}

/// Posted, what stands beside it, and the time until the account is empty if nothing else comes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shown {
    pub(crate) posted: i64,
    pub(crate) beside: i64,
    pub(crate) reset: Micros,
}

/// When a call was admitted, and how it is expected to stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Came {
    pub(crate) now: Micros,
    pub(crate) steady: Micros,
    pub(crate) profile: Profile,
}

/// When a hold ended, on the steady clock, and how long it lived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lived {
    pub(crate) steady: Micros,
    pub(crate) lived: Micros,
}

/// Time from `now` to a second; `Micros::MAX` if it never comes.
pub(crate) fn until(now: Micros, second: u64) -> Micros {
    match micros(second) {
        Micros::MAX => Micros::MAX,
        instant => instant.saturating_sub(now),
    }
}

/// 0.7 × old + 0.3 × new, in 64 bits: no life is longer than the bound.
#[inline]
fn mean(old: Micros, new: Micros) -> Micros {
    let bounded = |span: Micros| span.min(Micros::MAX / 16);
    (bounded(old) * 7 + bounded(new) * 3) / 10
}

// The newest period is nearly always the one that is meant.
#[inline]
fn find(periods: &[PeriodRow], start: u64) -> Option<&PeriodRow> {
    periods.iter().rev().find(|period| period.start == start)
}

#[inline]
fn find_mut(periods: &mut [PeriodRow], start: u64) -> Option<&mut PeriodRow> {
    periods.iter_mut().rev().find(|period| period.start == start)
}

fn is_over(period: &PeriodRow, now: Micros) -> bool {
    period.held == 0 && micros(period.end).saturating_add(PERIOD_KEPT) <= now
}

fn drop_over(periods: &mut Vec<PeriodRow>, now: Micros, max: usize) {
    let newest = periods.last().map(|period| period.start);
    let mut left = max;
    periods.retain(|period| {
        let gone = left > 0 && Some(period.start) != newest && is_over(period, now);
        left -= usize::from(gone);
        !gone
    });
}
