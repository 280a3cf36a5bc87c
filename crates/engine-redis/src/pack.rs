//! Commands as the scripts read them: one MessagePack array in the first argument.
//!
//! Invariants: an account is named by the place of its subject's key in KEYS and by its own digest; every number is at
//! most 2^53 − 1, which Lua holds exactly: the book's own check says so (L13).

use serde::Serialize;
use serde::ser::{SerializeSeq, Serializer};
use tollbook_engine::ledger::{
    AMOUNT_MAX, Estimator, EstimatorId, EstimatorKind, Hold, Leg, Limit, Measure, OnExpiry, Periods, Shape,
    Weights,
};

use crate::keys::{Keys, hex};

/// A leg in the order of `L_…` in `plan.lua`.
#[derive(Serialize)]
pub(crate) struct LegRow(
    usize,
    String,
    u8,
    u8,
    u64,
    u64,
    u64,
    PeriodRow,
    u64,
    u64,
    u64,
    u64,
    EstimatorRow,
    u8,
    Vec<LimitRow>,
);

/// In the order of `M_…`.
#[derive(Serialize)]
struct LimitRow(u32, u64, u8, u8, u8, u8, u8);

struct PeriodRow(Periods);

impl Serialize for PeriodRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let starts: &[u64] = match &self.0 {
            Periods::Calendar(starts) => starts,
            Periods::None | Periods::Lifetime => &[],
        };
        let mut seq = serializer.serialize_seq(Some(starts.len()))?;
        for start in starts {
            seq.serialize_element(&exact(*start))?;
        }
        seq.end()
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum EstimatorRow {
    Number(u8, u64),
    Learned(u8, u8, String, String, u64),
}

/// The largest number that stays exact in Lua, or the number itself.
pub(crate) fn exact(number: u64) -> u64 {
    number.min(AMOUNT_MAX)
}

/// Legs as rows; their subjects' keys are added.
pub(crate) fn legs(keys: &mut Keys, legs: &[Leg]) -> Vec<LegRow> {
    legs.iter().map(|leg| row(keys, leg)).collect()
}

fn row(keys: &mut Keys, leg: &Leg) -> LegRow {
    let (kind, p1, p2, p3) = shape(leg.shape);
    LegRow(
        keys.subject(leg.account.subject),
        hex(leg.account.name),
        measure(leg.measure),
        kind,
        p1,
        p2,
        p3,
        PeriodRow(leg.periods),
        leg.base,
        leg.per_output,
        leg.cap,
        leg.worst,
        estimator(leg.estimator),
        u8::from(leg.refund_failed),
        leg.limits.iter().map(limit).collect(),
    )
}

fn limit(limit: &Limit) -> LimitRow {
    LimitRow(
        limit.id.0,
        limit.ceiling,
        u8::from(limit.hard),
        u8::from(limit.shadow),
        u8::from(limit.count_denied),
        u8::from(limit.hold == Hold::Worst),
        u8::from(limit.on_expiry == OnExpiry::Charge),
    )
}

fn estimator(estimator: Estimator) -> EstimatorRow {
    let id = |id: EstimatorId| hex(id.0);
    match estimator {
        Estimator::Constant { output } => EstimatorRow::Number(0, exact(output)),
        Estimator::Capped => EstimatorRow::Number(1, 0),
        Estimator::Learned { kind, own, prior, first } => {
            let kind = match kind {
                EstimatorKind::Ema => 1,
                EstimatorKind::RecentMean => 2,
                EstimatorKind::P95 => 3,
                EstimatorKind::Forecast => 4,
            };
            EstimatorRow::Learned(2, kind, id(own), id(prior), exact(first))
        }
    }
}

pub(crate) const MEASURES: [(Measure, u8); 6] = [
    (Measure::Requests, 1),
    (Measure::Tokens, 2),
    (Measure::InputTokens, 3),
    (Measure::OutputTokens, 4),
    (Measure::Cost, 5),
    (Measure::Concurrency, 6),
];

pub(crate) fn measure(measure: Measure) -> u8 {
    MEASURES.iter().find(|(known, _)| *known == measure).map_or(0, |(_, code)| *code)
}

/// Kind and three parameters.
fn shape(shape: Shape) -> (u8, u64, u64, u64) {
    match shape {
        Shape::Rate { buckets, width, weights } => {
            let weights = match weights {
                Weights::Whole => 0,
                Weights::Oldest => 1,
                Weights::Decay => 2,
            };
            (1, u64::from(buckets), width, weights)
        }
        Shape::Forecast { window, strict } => (2, u64::from(window), u64::from(strict), 0),
        Shape::Quota => (3, 0, 0, 0),
        Shape::Concurrency => (4, 0, 0, 0),
    }
}

/// A finished array.
pub(crate) fn packed<T: Serialize>(value: &T) -> Vec<u8> {
    // Arrays of numbers and strings into memory: nothing in it can fail.
    rmp_serde::to_vec(value).unwrap_or_default()
}
