//! Which thresholds a quota has crossed, and which it has come back from.
//!
//! Pure: the same amounts and the same memory give the same steps. A threshold that is crossed is not crossed again before
//! the account has come back from it by [`BACK`] percent of its ceiling, so that amounts that go to and fro at a threshold
//! are told once. A ceiling of 0 has no shares, and crosses nothing.

/// How far an account has to come back from a threshold, in percent of its ceiling, for the next crossing to be one.
pub const BACK: u8 = 2;

/// A share of a ceiling, in percent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Threshold {
    /// Less than this is left of what may be posted.
    Remaining(u8),
    /// More than this is held by calls in flight.
    Held(u8),
}

/// What an account stands at in the period that runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Amounts {
    pub ceiling: u64,
    pub posted: i64,
    pub held: i64,
}

/// What is known of a threshold: how often it was crossed, and whether it still is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    pub turn: u64,
    pub crossed: bool,
}

/// What became of a threshold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Crossed, for the time that is named.
    Crossed(u64),
    /// Left, after the crossing that is named.
    Left(u64),
}

impl Amounts {
    /// What may still be posted. What is held is not taken off: it may be given back.
    pub fn remaining(&self) -> i128 {
        i128::from(self.ceiling).saturating_sub(i128::from(self.posted)).max(0)
    }
}

/// What became of a threshold, if anything. `known`: as it was left, `None` if it was never crossed in this period.
pub fn step(threshold: Threshold, amounts: &Amounts, known: Option<Known>) -> Option<Step> {
    if amounts.ceiling == 0 {
        return None;
    }
    let whole = i128::from(amounts.ceiling);
    let share = |percent: u8| whole.saturating_mul(i128::from(percent.min(100)));
    let (is_beyond, is_back) = match threshold {
        Threshold::Remaining(percent) => {
            let left = amounts.remaining().saturating_mul(100);
            (left < share(percent), left >= share(percent.saturating_add(BACK)))
        }
        Threshold::Held(percent) => {
            let held = i128::from(amounts.held.max(0)).saturating_mul(100);
            (held > share(percent), held <= share(percent.saturating_sub(BACK)))
        }
    };
    match known {
        None if is_beyond => Some(Step::Crossed(1)),
        Some(Known { turn, crossed: false }) if is_beyond => Some(Step::Crossed(turn.saturating_add(1))),
        Some(Known { turn, crossed: true }) if is_back => Some(Step::Left(turn)),
        _ => None,
    }
}

#[cfg(test)]
#[allow(
    clippy::float_arithmetic,
    clippy::unnecessary_wraps,
    reason = "shares are judged apart from the code"
)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ceiling: u64, posted: i64, held: i64) -> Amounts {
        Amounts { ceiling, posted, held }
    }

    fn known(turn: u64, crossed: bool) -> Option<Known> {
        Some(Known { turn, crossed })
    }

    #[test]
    fn steps_of_thresholds() {
        use Step::{Crossed, Left};
        use Threshold::{Held, Remaining};
        let max = (1 << 53) - 1;
        for (threshold, amounts, before, wanted) in [
            // Exactly ten percent is not below it.
            (Remaining(10), at(100, 90, 0), None, None),
            (Remaining(10), at(100, 91, 0), None, Some(Crossed(1))),
            // What is held is not spent.
            (Remaining(10), at(100, 50, 50), None, None),
            (Remaining(10), at(100, 250, 0), None, Some(Crossed(1))),
            (Remaining(10), at(100, 91, 0), known(1, true), None),
            (Remaining(10), at(100, 89, 0), known(1, true), None),
            (Remaining(10), at(100, 88, 0), known(1, true), Some(Left(1))),
            (Remaining(10), at(100, 88, 0), known(1, false), None),
            (Remaining(10), at(100, 95, 0), known(1, false), Some(Crossed(2))),
            // A top-up may leave less than nothing posted.
            (Remaining(10), at(100, -50, 0), known(3, true), Some(Left(3))),
            (Remaining(100), at(100, 1, 0), None, Some(Crossed(1))),
            (Remaining(100), at(100, 0, 0), known(1, true), Some(Left(1))),
            (Held(20), at(100, 0, 20), None, None),
            (Held(20), at(100, 0, 21), None, Some(Crossed(1))),
            (Held(20), at(100, 0, 19), known(1, true), None),
            (Held(20), at(100, 0, 18), known(1, true), Some(Left(1))),
            (Held(1), at(1000, 0, 1), known(1, true), None),
            (Held(1), at(1000, 0, -5), known(1, true), Some(Left(1))),
            (Remaining(10), at(0, 0, 0), None, None),
            (Held(20), at(0, 0, 5), None, None),
            (Remaining(10), at(max, i64::MAX, i64::MAX), None, Some(Crossed(1))),
            (Remaining(10), at(u64::MAX, i64::MIN, i64::MIN), None, None),
        ] {
            assert_eq!(step(threshold, &amounts, before), wanted, "{threshold:?} {amounts:?} {before:?}");
        }
    }

    proptest! {
        /// Between two crossings the account was away from the threshold by the margin, and turns are counted one by one.
        #[test]
        fn never_twice_without_coming_back(
            percent in 1_u8..=100,
            held in any::<bool>(),
            amounts in proptest::collection::vec((1_u64..2_000, -100_i64..2_500, -100_i64..2_500), 1..60),
        ) {
            let threshold = if held { Threshold::Held(percent) } else { Threshold::Remaining(percent) };
            let (mut memory, mut turn, mut has_come_back) = (None, 0, true);
            for (ceiling, posted, in_flight) in amounts {
                let now = at(ceiling, posted, in_flight);
                // Judged apart from the code: shares by division of rationals.
                let share = |amount: i64| f64::from(i32::try_from(amount).unwrap()) * 100.0 / f64::from(i32::try_from(ceiling).unwrap());
                let left = share(i64::try_from(ceiling).unwrap() - posted).max(0.0);
                let (limit, back) = (f64::from(percent), f64::from(BACK));
                let is_away = if held {
                    share(in_flight.max(0)) <= (limit - back).max(0.0)
                } else {
                    left >= (limit + back).min(100.0)
                };
                match step(threshold, &now, memory) {
                    Some(Step::Crossed(next)) => {
                        prop_assert!(has_come_back);
                        prop_assert_eq!(next, turn + 1);
                        (turn, has_come_back) = (next, false);
                        memory = known(next, true);
                    }
                    Some(Step::Left(of)) => {
                        prop_assert!(is_away);
                        prop_assert_eq!(of, turn);
                        has_come_back = true;
                        memory = known(of, false);
                    }
                    None => {}
                }
            }
        }
    }
}
