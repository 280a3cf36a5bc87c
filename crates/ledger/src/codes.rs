//! The numbers that stand for values of the ledger wherever they are kept: in a log, a spool, a shared book.
//!
//! Invariants: they are on disk, so none is changed or used for another value; a new value gets a new one; 0 is none.
//! A number that no value has is damage, and the reader's to tell.

use crate::account::{Measure, Weights};
use crate::command::EstimatorKind;
use crate::reply::End;

pub const MEASURES: [(Measure, u8); 6] = [
    (Measure::Requests, 1),
    (Measure::Tokens, 2),
    (Measure::InputTokens, 3),
    (Measure::OutputTokens, 4),
    (Measure::Cost, 5),
    (Measure::Concurrency, 6),
];

pub const WEIGHTS: [(Weights, u8); 3] = [(Weights::Whole, 1), (Weights::Oldest, 2), (Weights::Decay, 3)];

pub const KINDS: [(EstimatorKind, u8); 4] = [
    (EstimatorKind::Ema, 1),
    (EstimatorKind::RecentMean, 2),
    (EstimatorKind::P95, 3),
    (EstimatorKind::Forecast, 4),
];

pub const ENDS: [(End, u8); 5] =
    [(End::Settled, 1), (End::Released, 2), (End::Expired, 3), (End::Corrected, 4), (End::Rebooked, 5)];

/// The number of a value; 0 for one that the table has not.
pub fn code_of<T: PartialEq + Copy>(table: &[(T, u8)], value: T) -> u8 {
    table.iter().find(|(known, _)| *known == value).map_or(0, |(_, code)| *code)
}

/// The value that a number stands for.
pub fn value_of<T: Copy>(table: &[(T, u8)], code: u8) -> Option<T> {
    table.iter().find(|(_, known)| *known == code).map(|(value, _)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Copy + PartialEq + std::fmt::Debug>(table: &[(T, u8)]) {
        for (at, (value, code)) in table.iter().enumerate() {
            assert_eq!(usize::from(*code), at + 1, "the numbers follow each other: {table:?}");
            assert_eq!((code_of(table, *value), value_of(table, *code)), (*code, Some(*value)));
        }
        assert_eq!((value_of(table, 0), value_of(table, u8::MAX)), (None, None));
    }

    #[test]
    fn every_number_is_that_of_its_value() {
        check(&MEASURES);
        check(&WEIGHTS);
        check(&KINDS);
        check(&ENDS);
    }
}
