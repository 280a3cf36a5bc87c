//! The auditor's accounts and reservations, kept from what was asked and what was answered.

use std::collections::BTreeMap;

use tollbook_engine::ledger::{
    AccountId, End, EstimatorId, EstimatorKind, Measure, Micros, Posted, ReservationId, Shape,
};

use super::seconds::Seconds;
use super::window::Window;
use crate::clock::Moment;

/// A reservation in its shard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key {
    pub(crate) shard: u8,
    pub(crate) id: ReservationId,
    pub(crate) attempt: u16,
}

/// An account in its shard.
pub(crate) type Place = (u8, AccountId);

#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) measure: Measure,
    pub(crate) shape: Shape,
    pub(crate) sides: Sides,
    pub(crate) live: u64,
    pub(crate) used: Moment,
    pub(crate) shadow_denied: u64,
    pub(crate) shadow_demand: u64,
    /// The bucket of the last denial that was counted.
    pub(crate) counted: Option<u64>,
    /// The highest ceiling that any admission met; `None` once one was admitted without a ceiling.
    pub(crate) ceiling: Option<u64>,
    /// What explains an account above its ceiling.
    pub(crate) excused: Excused,
}

/// Posted above what was decided: overruns, charges nobody asked room for, counted denials.
#[derive(Clone, Debug, Default)]
pub(crate) struct Excused {
    pub(crate) window: Option<Window>,
    pub(crate) periods: BTreeMap<u64, i64>,
}

#[derive(Clone, Debug)]
pub(crate) enum Sides {
    Rate {
        window: Window,
        held: i64,
    },
    Quota(BTreeMap<u64, Period>),
    Concurrency {
        held: i64,
    },
    /// Plans are no holds.
    Forecast(Seconds),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Period {
    pub(crate) end: u64,
    pub(crate) posted: i64,
    pub(crate) held: i64,
}

impl Account {
    pub(crate) fn new(measure: Measure, shape: Shape, used: Moment) -> Self {
        let (sides, window) = match shape {
            Shape::Rate { buckets, width, weights } => {
                let window = Window::new(buckets, width, weights);
                (Sides::Rate { window: window.clone(), held: 0 }, Some(window))
            }
            Shape::Forecast { window, strict } => (Sides::Forecast(Seconds::new(window, strict)), None),
            Shape::Quota => (Sides::Quota(BTreeMap::new()), None),
            Shape::Concurrency => (Sides::Concurrency { held: 0 }, None),
        };
        Self {
            measure,
            shape,
            sides,
            live: 0,
            used,
            shadow_denied: 0,
            shadow_demand: 0,
            counted: None,
            ceiling: Some(0),
            excused: Excused { window, periods: BTreeMap::new() },
        }
    }

    pub(crate) fn is_quota(&self) -> bool {
        matches!(self.sides, Sides::Quota(_))
    }

    /// What stands beside `posted`: holds, or how much fuller the fullest window to come is.
    pub(crate) fn held(&self, now: Micros, place: u64) -> i64 {
        match &self.sides {
            Sides::Forecast(seconds) => seconds.figures(now).1,
            Sides::Rate { held, .. } | Sides::Concurrency { held } => *held,
            Sides::Quota(periods) => periods.get(&place).map_or(0, |period| period.held),
        }
    }

    pub(crate) fn posted(&self, now: Micros, place: u64) -> i64 {
        match &self.sides {
            Sides::Rate { window, .. } => window.posted(now).cast_signed(),
            Sides::Forecast(seconds) => seconds.figures(now).0,
            Sides::Quota(periods) => periods.get(&place).map_or(0, |period| period.posted),
            Sides::Concurrency { .. } => 0,
        }
    }

    /// The newest period, with its start.
    pub(crate) fn newest(&self) -> Option<(u64, Period)> {
        match &self.sides {
            Sides::Quota(periods) => periods.last_key_value().map(|(start, period)| (*start, *period)),
            _ => None,
        }
    }

    pub(crate) fn open(&mut self, start: u64, end: u64) {
        if let Sides::Quota(periods) = &mut self.sides {
            periods.entry(start).or_insert(Period { end, posted: 0, held: 0 });
        }
    }

    /// The seconds of a forecast account.
    pub(crate) fn seconds(&self) -> Option<&Seconds> {
        match &self.sides {
            Sides::Forecast(seconds) => Some(seconds),
            _ => None,
        }
    }

    pub(crate) fn hold(&mut self, place: u64, delta: i64) {
        match &mut self.sides {
            Sides::Forecast(_) => {}
            Sides::Rate { held, .. } | Sides::Concurrency { held } => *held += delta,
            Sides::Quota(periods) => {
                if let Some(period) = periods.get_mut(&place) {
                    period.held += delta;
                }
            }
        }
    }

    /// Posts to the bucket of now, or to the period or the second named.
    pub(crate) fn post(&mut self, now: Micros, place: u64, amount: i64) {
        match &mut self.sides {
            Sides::Rate { window, .. } if amount < 0 => window.take_back(now, place, amount.unsigned_abs()),
            Sides::Rate { window, .. } => window.post(now, amount.unsigned_abs()),
            Sides::Forecast(seconds) => seconds.correct(now, place, amount),
            Sides::Quota(periods) => {
                if let Some(period) = periods.get_mut(&place) {
                    period.posted += amount;
                }
            }
            Sides::Concurrency { .. } => {}
        }
    }

    /// Posted, and what stands beside it.
    pub(crate) fn figures(&self, now: Micros, place: u64) -> (i64, i64) {
        match &self.sides {
            Sides::Forecast(seconds) => seconds.figures(now),
            _ => (self.posted(now, place), self.held(now, place)),
        }
    }

    /// What of `requests` posted at a place could be given back.
    pub(crate) fn refundable(&self, now: Micros, place: u64) -> u64 {
        match &self.sides {
            Sides::Rate { window, .. } => window.refundable(now, place),
            Sides::Quota(periods) => {
                periods.get(&place).map_or(0, |period| u64::try_from(period.posted).unwrap_or(0))
            }
            Sides::Concurrency { .. } | Sides::Forecast(_) => 0,
        }
    }

    pub(crate) fn reset(&self, now: Micros) -> Micros {
        match &self.sides {
            Sides::Rate { window, held } => window.reset(now, *held > 0),
            Sides::Forecast(seconds) => seconds.reset(now),
            Sides::Quota(_) => self.newest().map_or(0, |(_, period)| until(now, period.end)),
            Sides::Concurrency { .. } => 0,
        }
    }

    /// Notes that so much was posted without having been decided.
    pub(crate) fn excuse(&mut self, now: Micros, place: u64, amount: u64) {
        match &mut self.excused.window {
            Some(window) => window.post(now, amount),
            None => *self.excused.periods.entry(place).or_default() += amount.cast_signed(),
        }
    }
}

/// Time from `now` to a second.
pub(crate) fn until(now: Micros, second: u64) -> Micros {
    match second {
        u64::MAX => Micros::MAX,
        second => (second * 1_000_000).saturating_sub(now),
    }
}

/// One leg of a reservation as it was admitted and has grown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LiveLeg {
    pub(crate) account: AccountId,
    pub(crate) measure: Measure,
    pub(crate) place: u64,
    pub(crate) base: u64,
    pub(crate) per_output: u64,
    pub(crate) cap: u64,
    pub(crate) worst: u64,
    pub(crate) output: u64,
    pub(crate) held: u64,
    pub(crate) decided: u64,
    /// What was decided against every ceiling, soft ones included; growth is decided against hard ones only.
    pub(crate) within_all: u64,
    pub(crate) has_soft: bool,
    /// `requests` that an earlier attempt has posted.
    pub(crate) carried: u64,
    pub(crate) at_worst: bool,
    pub(crate) charge: bool,
    pub(crate) refund_failed: bool,
    pub(crate) shadow_denied: bool,
    pub(crate) hard_ceiling: Option<u64>,
    /// Booked by forecast: it holds nothing.
    pub(crate) is_planned: bool,
}

impl LiveLeg {
    pub(crate) fn expected(&self) -> u64 {
        amount(self.base, self.per_output, self.output)
    }

    pub(crate) fn counts(&self) -> bool {
        !matches!(self.measure, Measure::Requests | Measure::Concurrency)
    }
}

/// ⌈(base + per_output × output) / 1000⌉.
pub(crate) fn amount(base: u64, per_output: u64, output: u64) -> u64 {
    (base + per_output * output).div_ceil(1000)
}

#[derive(Clone, Debug)]
pub(crate) struct Live {
    pub(crate) legs: Vec<LiveLeg>,
    pub(crate) learners: Vec<Learner>,
    pub(crate) admitted: Micros,
    pub(crate) sent: bool,
    pub(crate) context: Vec<u8>,
    /// Every life that was granted, and when.
    pub(crate) lives: Vec<(Moment, Micros)>,
}

/// The estimators of a call: its kind, its own and the prior.
pub(crate) type Learner = (EstimatorKind, EstimatorId, EstimatorId);

/// A moving mean × 1000, and its samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Mean {
    pub(crate) samples: u64,
    mean: u64,
}

impl Mean {
    /// Twice the mean; a forecast has one before its first sample where a stream outgrew it.
    pub(crate) fn guess(&self) -> Option<u64> {
        (self.samples > 0 || self.mean > 0).then_some(2 * self.mean / 1000)
    }

    pub(crate) fn learn(&mut self, kind: EstimatorKind, output: u64) {
        self.samples += 1;
        let sample = output * 1000;
        match kind {
            EstimatorKind::Forecast => self.blend(output),
            _ if self.samples == 1 => self.mean = sample,
            _ => self.mean = (self.mean * 7 + sample * 3) / 10,
        }
    }

    /// The sample mean while young, then a weight of a twentieth.
    pub(crate) fn blend(&mut self, output: u64) {
        let weight = (1024 / self.samples.max(1)).max(51).cast_signed();
        let mean = self.mean.cast_signed();
        let moved = mean + (((output * 1000).cast_signed() - mean) * weight).div_euclid(1024);
        self.mean = moved.unsigned_abs();
    }
}

/// What is remembered of a reservation that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) end: End,
    pub(crate) at: Moment,
    pub(crate) admitted: Micros,
    pub(crate) legs: usize,
    pub(crate) late: Option<Late>,
}

/// What the one late claim of an expired reservation corrects.
#[derive(Clone, Debug)]
pub(crate) struct Late {
    pub(crate) quotas: Vec<LateLeg>,
    pub(crate) learners: Vec<Learner>,
}

#[derive(Clone, Debug)]
pub(crate) struct LateLeg {
    pub(crate) index: usize,
    pub(crate) leg: LiveLeg,
    pub(crate) charged: i64,
}

/// What an end did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Effects {
    pub(crate) overrun: Vec<u64>,
    pub(crate) posted: Vec<Posted>,
}
