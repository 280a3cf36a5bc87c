//! The auditor's accounts and reservations, kept from what was asked and what was answered.

use std::collections::BTreeMap;

use tollbook_engine::ledger::{AccountId, End, EstimatorId, Measure, Micros, Posted, ReservationId, Shape};

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
    Rate { window: Window, held: i64 },
    Quota(BTreeMap<u64, Period>),
    Concurrency { held: i64 },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Period {
    pub(crate) end: u64,
    pub(crate) posted: i64,
    pub(crate) held: i64,
}

/// Why the simulation has no forecast account: its auditor keeps books of holds, and a plan is no hold.
pub(crate) const PLANS: &str = "plans are audited by the ledger's model, not here";

impl Account {
    pub(crate) fn new(measure: Measure, shape: Shape, used: Moment) -> Self {
        let (sides, window) = match shape {
            Shape::Rate { buckets, width, weights } => {
                let window = Window::new(buckets, width, weights);
                (Sides::Rate { window: window.clone(), held: 0 }, Some(window))
            }
            Shape::Forecast { .. } => panic!("{PLANS}"),
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

    pub(crate) fn held(&self, place: u64) -> i64 {
        match &self.sides {
            Sides::Rate { held, .. } | Sides::Concurrency { held } => *held,
            Sides::Quota(periods) => periods.get(&place).map_or(0, |period| period.held),
        }
    }

    pub(crate) fn posted(&self, now: Micros, place: u64) -> i64 {
        match &self.sides {
            Sides::Rate { window, .. } => window.posted(now).cast_signed(),
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

    pub(crate) fn hold(&mut self, place: u64, delta: i64) {
        match &mut self.sides {
            Sides::Rate { held, .. } | Sides::Concurrency { held } => *held += delta,
            Sides::Quota(periods) => {
                if let Some(period) = periods.get_mut(&place) {
                    period.held += delta;
                }
            }
        }
    }

    /// Posts to the bucket of now, or to the period named.
    pub(crate) fn post(&mut self, now: Micros, place: u64, amount: i64) {
        match &mut self.sides {
            Sides::Rate { window, .. } if amount < 0 => window.take_back(now, place, amount.unsigned_abs()),
            Sides::Rate { window, .. } => window.post(now, amount.unsigned_abs()),
            Sides::Quota(periods) => {
                if let Some(period) = periods.get_mut(&place) {
                    period.posted += amount;
                }
            }
            Sides::Concurrency { .. } => {}
        }
    }

    /// What of `requests` posted at a place could be given back.
    pub(crate) fn refundable(&self, now: Micros, place: u64) -> u64 {
        match &self.sides {
            Sides::Rate { window, .. } => window.refundable(now, place),
            Sides::Quota(periods) => {
                periods.get(&place).map_or(0, |period| u64::try_from(period.posted).unwrap_or(0))
            }
            Sides::Concurrency { .. } => 0,
        }
    }

    pub(crate) fn reset(&self, now: Micros) -> Micros {
        match &self.sides {
            Sides::Rate { window, held } => window.reset(now, *held > 0),
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
    pub(crate) learners: Vec<(EstimatorId, EstimatorId)>,
    pub(crate) admitted: Micros,
    pub(crate) sent: bool,
    pub(crate) context: Vec<u8>,
    /// Every life that was granted, and when.
    pub(crate) lives: Vec<(Moment, Micros)>,
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
    pub(crate) learners: Vec<(EstimatorId, EstimatorId)>,
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
