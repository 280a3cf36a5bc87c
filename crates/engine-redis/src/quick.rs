//! The quick form of a reserve: what the script needs where every limit has room, flat and of fixed widths; it is kept as
//! it is, and read again by the settle. And the answer to it, of which most is known here.
//!
//! Invariant: what `quick_reserve.lua` answers is what the long way would: a call that has anything unusual has no quick
//! form. Demands that several legs share are computed once.

#[cfg(feature = "test-clock")]
use std::sync::atomic::{AtomicU64, Ordering};

use tollbook_engine::ledger::{
    AMOUNT_MAX, Estimator, EstimatorId, EstimatorKind, Hold, Leg, LegReceipt, Measure, Micros, OnExpiry,
    Periods, Reserve, SECOND, Shape, Weights,
};

use crate::keys;
use crate::number::{double, wholes};
use crate::pack::{NEVER_SECOND, measure, place, shape};
use crate::reply::Odd;

/// How many of a test's reserves that were admitted, and settles that ended what was held, were answered by the quick way.
#[cfg(feature = "test-clock")]
#[derive(Debug)]
pub struct Counts {
    quick: AtomicU64,
    all: AtomicU64,
}

#[cfg(feature = "test-clock")]
impl Counts {
    const fn new() -> Self {
        Self { quick: AtomicU64::new(0), all: AtomicU64::new(0) }
    }

    pub(crate) fn add(&self, is_quick: bool) {
        self.quick.fetch_add(u64::from(is_quick), Ordering::Relaxed);
        self.all.fetch_add(1, Ordering::Relaxed);
    }

    /// Quick ones, and all.
    pub fn read(&self) -> (u64, u64) {
        (self.quick.load(Ordering::Relaxed), self.all.load(Ordering::Relaxed))
    }
}

/// Of all engines of the process.
#[cfg(feature = "test-clock")]
pub static RESERVES: Counts = Counts::new();
#[cfg(feature = "test-clock")]
pub static SETTLES: Counts = Counts::new();

/// In the order of the constants in `quick.lua`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    RateRequests = 1,
    RateAmounts = 2,
    QuotaRequests = 3,
    QuotaAmounts = 4,
    Slots = 5,
    Planned = 6,
}

const AT_WORST: u8 = 1;
const CHARGE: u8 = 2;
const REFUND: u8 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Demand {
    /// Place of the estimator, from one; 0: `first` is the output.
    estimator: u8,
    at_worst: bool,
    first: u64,
    base: u64,
    per_output: u64,
    cap: u64,
    worst: u64,
}

/// What a leg is; several legs are the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Kind {
    shape: Shape,
    measure: Measure,
    class: Class,
    flags: u8,
    /// Width and buckets, start and end, or window and strictness.
    x: u64,
    y: u64,
}

#[derive(Debug)]
struct Row {
    /// Places, from one.
    kind: u8,
    demand: u8,
    least: u64,
    hard: Option<u64>,
}

type Learned = (u8, EstimatorId, EstimatorId);

/// A call's quick form, and what its answer is read by.
#[derive(Debug)]
pub(crate) struct Quick {
    text: Vec<u8>,
    kinds: Vec<Kind>,
    demands: Vec<Demand>,
    rows: Vec<Row>,
}

impl Quick {
    /// `now`: about what the engine's time is; it picks the period.
    pub(crate) fn of(reserve: &Reserve, member: &[u8], now: Micros) -> Option<Self> {
        let mut form = Self { text: Vec::new(), kinds: Vec::new(), demands: Vec::new(), rows: Vec::new() };
        let mut learned = Vec::new();
        for leg in &reserve.legs {
            form.leg(leg, now, &mut learned)?;
        }
        form.write(reserve, member, &learned)?;
        Some(form)
    }

    fn leg(&mut self, leg: &Leg, now: Micros, learned: &mut Vec<Learned>) -> Option<()> {
        let (class, x, y) = class(leg, now)?;
        let (estimator, first) = match leg.estimator {
            Estimator::Constant { output } => (0, output),
            Estimator::Capped => (0, leg.cap),
            Estimator::Learned { kind, own, prior, first } => {
                let kind = match kind {
                    EstimatorKind::Ema => 1,
                    EstimatorKind::Forecast => 4,
                    EstimatorKind::RecentMean | EstimatorKind::P95 => return None,
                };
                (small(place(learned, (kind, own, prior)))?, first)
            }
        };
        // What is enforced asks, or what is shadow if nothing is.
        let enforced = leg.limits.iter().any(|limit| !limit.shadow);
        let asking = || leg.limits.iter().filter(move |limit| !(enforced && limit.shadow));
        let at_worst = asking().any(|limit| limit.hold == Hold::Worst);
        let charge = asking().any(|limit| limit.on_expiry == OnExpiry::Charge);
        let hard = asking().filter(|limit| limit.hard && !limit.shadow).map(|limit| limit.ceiling).min();
        let least = leg.limits.iter().map(|limit| limit.ceiling).min()?;
        let (base, per_output, cap, worst) = (leg.base, leg.per_output, leg.cap, leg.worst);
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let flags = flag(at_worst, AT_WORST) | flag(charge, CHARGE) | flag(leg.refund_failed, REFUND);
        let (shape, measure) = (leg.shape, leg.measure);
        let kind = place(&mut self.kinds, Kind { shape, measure, class, flags, x, y });
        let demand =
            place(&mut self.demands, Demand { estimator, at_worst, first, base, per_output, cap, worst });
        self.rows.push(Row { kind: small(kind)?, demand: small(demand)?, least, hard });
        Some(())
    }

    fn write(&mut self, reserve: &Reserve, member: &[u8], learned: &[Learned]) -> Option<()> {
        let text = &mut self.text;
        for number in [reserve.life, reserve.profile.ttft, reserve.profile.pace] {
            text.extend(double(number));
        }
        for count in [self.rows.len(), self.kinds.len(), self.demands.len(), learned.len(), member.len()] {
            text.push(small(count)?);
        }
        text.extend(member);
        text.extend(learned.iter().map(|(kind, ..)| kind));
        for id in learned.iter().flat_map(|(_, own, prior)| [own, prior]) {
            text.push(keys::ESTIMATOR);
            text.extend(keys::estimator(*id));
        }
        for leg in &reserve.legs {
            text.extend(keys::account(&leg.account));
        }
        for demand in &self.demands {
            text.extend([demand.estimator, u8::from(demand.at_worst)]);
            for number in [demand.first, demand.base, demand.per_output, demand.cap, demand.worst] {
                text.extend(double(number));
            }
        }
        for kind in &self.kinds {
            let (code, p1, p2, p3) = shape(kind.shape);
            text.extend([code, measure(kind.measure), u8::try_from(p1).ok()?, u8::try_from(p3).ok()?]);
            text.extend(double(p2));
            text.extend([kind.class as u8, kind.flags]);
            text.extend([double(kind.x), double(kind.y)].as_flattened());
        }
        for row in &self.rows {
            text.extend([row.kind, row.demand]);
            text.extend(double(row.least));
        }
        for row in &self.rows {
            text.extend(row.hard.map_or_else(|| (-1.0_f64).to_le_bytes(), double));
        }
        Some(())
    }

    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// The receipt's legs: of the answer are the outputs of the demands, then what each leg's account has posted and held.
    pub(crate) fn legs(&self, reserve: &Reserve, now: Micros, said: &[u8]) -> Result<Vec<LegReceipt>, Odd> {
        let mut said = wholes(said).ok_or(Odd("receipt"))?.into_iter();
        let mut next = || said.next().ok_or(Odd("receipt"));
        let mut outputs = Vec::with_capacity(self.demands.len());
        for _ in &self.demands {
            outputs.push(u64::try_from(next()?).map_err(|_| Odd("output"))?);
        }
        let mut legs = Vec::with_capacity(self.rows.len());
        for (row, leg) in self.rows.iter().zip(&reserve.legs) {
            let at = usize::from(row.demand).wrapping_sub(1);
            let (demand, output) = self.demands.get(at).zip(outputs.get(at)).ok_or(Odd("demand"))?;
            let thousandths = demand.per_output.saturating_mul(*output).saturating_add(demand.base);
            let expected = thousandths.div_ceil(1_000);
            let decided = if demand.at_worst { expected.max(demand.worst) } else { expected };
            let (posted, held_total) = (next()?, next()?);
            let kind = self.kinds.get(usize::from(row.kind).wrapping_sub(1)).ok_or(Odd("kind"))?;
            let (place, reset) = match kind.class {
                Class::RateRequests | Class::RateAmounts => {
                    let bucket = now / kind.x.max(1);
                    (bucket, bucket.saturating_add(kind.y).saturating_mul(kind.x).saturating_sub(now))
                }
                Class::QuotaRequests | Class::QuotaAmounts => (kind.x, until(kind.y, now)),
                Class::Slots => (0, 0),
                Class::Planned => {
                    let last = u64::try_from(next()?).map_err(|_| Odd("second"))?;
                    let empty = last.saturating_add(kind.x).saturating_add(1).saturating_mul(SECOND);
                    (now / SECOND, empty.saturating_sub(now))
                }
            };
            let is_held = matches!(kind.class, Class::RateAmounts | Class::QuotaAmounts | Class::Slots);
            let enforced = leg.limits.iter().any(|limit| !limit.shadow);
            let ceilings =
                leg.limits.iter().filter(|limit| !(enforced && limit.shadow)).map(|limit| limit.ceiling);
            legs.push(LegReceipt {
                account: leg.account,
                place,
                expected,
                held: if is_held { decided } else { 0 },
                output: *output,
                ceiling: ceilings.min().unwrap_or(AMOUNT_MAX),
                posted,
                held_total,
                reset,
                shadow_denied: false,
            });
        }
        if said.next().is_some() { Err(Odd("receipt")) } else { Ok(legs) }
    }
}

fn class(leg: &Leg, now: Micros) -> Option<(Class, u64, u64)> {
    let requests = leg.measure == Measure::Requests;
    Some(match leg.shape {
        Shape::Rate { buckets, width, weights: Weights::Whole } => {
            (if requests { Class::RateRequests } else { Class::RateAmounts }, width, u64::from(buckets))
        }
        Shape::Rate { .. } => return None,
        Shape::Quota => {
            let (start, end) = period(&leg.periods, now)?;
            (if requests { Class::QuotaRequests } else { Class::QuotaAmounts }, start, end)
        }
        Shape::Concurrency => (Class::Slots, 0, 0),
        Shape::Forecast { window, strict } => (Class::Planned, u64::from(window), u64::from(strict)),
    })
}

fn small(number: usize) -> Option<u8> {
    u8::try_from(number).ok()
}

/// Start and end of the period around now, else of the first one.
fn period(periods: &Periods, now: Micros) -> Option<(u64, u64)> {
    match periods {
        Periods::None => None,
        Periods::Lifetime => Some((0, NEVER_SECOND)),
        Periods::Calendar(starts) => {
            let pairs = || starts.iter().copied().zip(starts.iter().copied().skip(1));
            let second = now / SECOND;
            pairs().find(|(start, end)| (*start..*end).contains(&second)).or_else(|| pairs().next())
        }
    }
}

fn until(second: u64, now: Micros) -> Micros {
    if second >= NEVER_SECOND { Micros::MAX } else { (second * SECOND).saturating_sub(now) }
}
