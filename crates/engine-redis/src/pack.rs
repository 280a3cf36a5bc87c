//! Commands as the scripts read them: one MessagePack array in the first argument.
//!
//! Invariants: an account is named by its field's sixteen bytes; every number is at most 2^53 − 1, which Lua holds exactly:
//! the book's own check says so (L13).

use serde::Serialize;
use serde::ser::{SerializeSeq, Serializer};
use tollbook_engine::ledger::codes::{MEASURES, code_of};
use tollbook_engine::ledger::{
    AMOUNT_MAX, AccountId, Estimator, EstimatorId, EstimatorKind, Hold, Leg, Limit, Measure, OnExpiry,
    Periods, Shape, Weights,
};

use crate::keys;

/// Bytes as they are; serde would take them for a list of numbers.
#[derive(PartialEq)]
pub(crate) struct Raw<T>(pub(crate) T);

impl<T: AsRef<[u8]>> Serialize for Raw<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0.as_ref())
    }
}

type Account = Raw<[u8; keys::ACCOUNT_BYTES]>;

pub(crate) fn account(account: &AccountId) -> Account {
    Raw(keys::account(account))
}

/// Legs in their long form: what several of them share is told once, and named by its place, from one (`legs_of` in
/// `plan.lua`).
#[derive(Serialize)]
pub(crate) struct LegRows(Vec<KindRow>, Vec<DemandRow>, Vec<LegRow>);

/// Measure, kind, three parameters, periods.
#[derive(Serialize, PartialEq)]
struct KindRow(u8, u8, u64, u64, u64, PeriodRow);

/// Base, per output, cap, worst, estimator, whether requests are given back.
#[derive(Serialize, PartialEq)]
struct DemandRow(u64, u64, u64, u64, EstimatorRow, u8);

/// Account, kind, demand, limits.
#[derive(Serialize)]
struct LegRow(Account, usize, usize, Vec<LimitRow>);

/// Id, ceiling, flags in the order of `M_…`.
#[derive(Serialize)]
struct LimitRow(u32, u64, u8);

#[derive(PartialEq)]
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

#[derive(Serialize, PartialEq)]
#[serde(untagged)]
enum EstimatorRow {
    Number(u8, u64),
    Learned(u8, u8, Raw<[u8; 8]>, Raw<[u8; 8]>, u64),
}

/// A second that never comes, as in `base.lua`.
pub(crate) const NEVER_SECOND: u64 = 9_007_199_254;

/// The largest number that stays exact in Lua, or the number itself.
pub(crate) fn exact(number: u64) -> u64 {
    number.min(AMOUNT_MAX)
}

pub(crate) fn legs(legs: &[Leg]) -> LegRows {
    let mut rows = LegRows(Vec::new(), Vec::new(), Vec::with_capacity(legs.len()));
    for leg in legs {
        let (kind, p1, p2, p3) = shape(leg.shape);
        let refund = u8::from(leg.refund_failed);
        let kind = KindRow(measure(leg.measure), kind, p1, p2, p3, PeriodRow(leg.periods));
        let demand =
            DemandRow(leg.base, leg.per_output, leg.cap, leg.worst, estimator(leg.estimator), refund);
        let (kind, demand) = (place(&mut rows.0, kind), place(&mut rows.1, demand));
        rows.2.push(LegRow(account(&leg.account), kind, demand, leg.limits.iter().map(limit).collect()));
    }
    rows
}

/// The place of an item, from one; it is added where it is new.
pub(crate) fn place<T: PartialEq>(items: &mut Vec<T>, item: T) -> usize {
    let found = items.iter().position(|known| *known == item);
    let at = found.unwrap_or(items.len());
    if found.is_none() {
        items.push(item);
    }
    at.saturating_add(1)
}

fn limit(limit: &Limit) -> LimitRow {
    let asks = [
        limit.hard,
        limit.shadow,
        limit.count_denied,
        limit.hold == Hold::Worst,
        limit.on_expiry == OnExpiry::Charge,
    ];
    let flags = asks.iter().rev().fold(0, |flags: u8, asks| flags << 1 | u8::from(*asks));
    LimitRow(limit.id.0, limit.ceiling, flags)
}

fn estimator(estimator: Estimator) -> EstimatorRow {
    let id = |id: EstimatorId| Raw(keys::estimator(id));
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

pub(crate) fn measure(measure: Measure) -> u8 {
    code_of(&MEASURES, measure)
}

/// Kind and three parameters.
pub(crate) fn shape(shape: Shape) -> (u8, u64, u64, u64) {
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
    let mut bytes = rmp_serde::to_vec(value).unwrap_or_default();
    bytes_as_strings(&mut bytes);
    bytes
}

/// Servers read no byte strings, and take any bytes in a string: the two differ in their marks alone.
fn bytes_as_strings(bytes: &mut [u8]) {
    let mut rest = bytes;
    while let Some((mark, after)) = rest.split_first_mut() {
        let length = |count: usize| {
            after.iter().take(count).fold(0_usize, |length, byte| length << u8::BITS | usize::from(*byte))
        };
        let text = |count: usize| count.saturating_add(length(count));
        let skipped = match *mark {
            0xa0..=0xbf => usize::from(*mark & 0x1f),
            0xc4 | 0xd9 => text(1),
            0xc5 | 0xda => text(2),
            0xc6 | 0xdb => text(4),
            0xcc | 0xd0 => 1,
            0xcd | 0xd1 | 0xdc | 0xde => 2,
            0xca | 0xce | 0xd2 | 0xdd | 0xdf => 4,
            0xcb | 0xcf | 0xd3 => 8,
            // Small numbers, nil, truth, and heads of small arrays.
            _ => 0,
        };
        if let 0xc4..=0xc6 = *mark {
            *mark += 0xd9 - 0xc4;
        }
        rest = after.get_mut(skipped..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::{Raw, packed};

    #[test]
    fn bytes_become_strings_and_nothing_else_changes() {
        let long = "x".repeat(300);
        let some =
            (1_u8, 300_u64, -70_000_i64, Option::<u8>::None, true, "text", long.as_str(), vec![0xc4_u8; 20]);
        assert_eq!(packed(&some), rmp_serde::to_vec(&some).unwrap());
        let with = packed(&(u64::MAX, Raw([0xc4_u8; 3]), 0xc4_u8, Raw(vec![0xff_u8; 300])));
        let expected = [
            &[0x94, 0xcf][..],
            &[0xff; 8],
            &[0xd9, 3, 0xc4, 0xc4, 0xc4],
            &[0xcc, 0xc4],
            &[0xda, 1, 44],
            &[0xff; 300],
        ];
        assert_eq!(with, expected.concat());
    }
}
