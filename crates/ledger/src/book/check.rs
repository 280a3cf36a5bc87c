//! The shape of commands: what is refused before anything is decided.
//!
//! Invariant: of several refusals the one that comes first in [`Refusal`] wins, then the one of the first leg. A leg
//! that passes has finite amounts: base + per_output × e, for any e up to its cap, is at most 2^53 − 1 thousandths.

use super::Book;
use super::account::Account;
use crate::account::{Measure, Shape};
use crate::command::{Hold, Leg, Periods, Reserve};
use crate::reply::Refusal;
use crate::units::{
    AMOUNT_MAX, BUCKETS_MAX, CONTEXT_MAX, FORECAST_CEILING_MAX, FORECAST_WINDOW_MAX, LEGS_MAX,
    LIMITS_PER_LEG_MAX, WIDTH_MAX,
};

impl Reserve {
    /// What the book refuses whatever stands in it.
    pub fn check(&self) -> Result<(), Refusal> {
        check(self, |_| None)
    }
}

impl Book {
    /// Check a reserve; `slots` gets the slot of each leg's account, if it exists.
    pub(super) fn check(&self, cmd: &Reserve, slots: &mut Vec<Option<u32>>) -> Result<(), Refusal> {
        slots.clear();
        if cmd.legs.len() <= LEGS_MAX {
            slots.extend(cmd.legs.iter().map(|leg| self.accounts.find(leg.account)));
        }
        check(cmd, |index| self.accounts.get(slots.get(index).copied().flatten()?))
    }
}

fn check<'a>(cmd: &Reserve, known: impl Fn(usize) -> Option<&'a Account>) -> Result<(), Refusal> {
    if cmd.legs.is_empty() {
        return Err(Refusal::NoLegs);
    }
    if cmd.legs.len() > LEGS_MAX {
        return Err(Refusal::TooManyLegs);
    }
    // A bit per name: only where it is set already can a leg repeat an account.
    let mut names = 0_u64;
    let mut first = None;
    for (index, leg) in cmd.legs.iter().enumerate() {
        let bit = 1 << ((leg.account.name ^ leg.account.subject.0.rotate_left(7)) % 64);
        let before = if names & bit == 0 { &[] } else { cmd.legs.get(..index).unwrap_or_default() };
        names |= bit;
        if let Some(refusal) = check_leg(index, leg, before, known(index)) {
            first = first.map_or(Some(refusal), |first: Refusal| Some(first.min(refusal)));
        }
    }
    match first {
        Some(refusal) => Err(refusal),
        None if cmd.context.len() > CONTEXT_MAX => Err(Refusal::Context),
        None => Ok(()),
    }
}

fn check_leg(index: usize, leg: &Leg, before: &[Leg], known: Option<&Account>) -> Option<Refusal> {
    if leg.limits.is_empty() || leg.limits.len() > LIMITS_PER_LEG_MAX {
        return Some(Refusal::Limits(index));
    }
    if before.iter().any(|other| other.account == leg.account) {
        return Some(Refusal::RepeatedAccount(index));
    }
    if !amounts_fit(leg) {
        return Some(Refusal::Amount(index));
    }
    let as_known = known.is_none_or(|account| account.measure == leg.measure && account.is(leg.shape));
    (!as_known || !shape_fits(leg)).then_some(Refusal::Shape(index))
}

/// One settled amount per leg, each an amount.
pub(super) fn check_actual(actual: &[u64]) -> Result<(), Refusal> {
    match actual.iter().position(|amount| *amount > AMOUNT_MAX) {
        Some(index) => Err(Refusal::Amount(index)),
        None => Ok(()),
    }
}

fn amounts_fit(leg: &Leg) -> bool {
    let most = leg.per_output.checked_mul(leg.cap).and_then(|most| most.checked_add(leg.base));
    most.is_some_and(|most| most <= AMOUNT_MAX)
        && leg.cap <= AMOUNT_MAX
        && leg.worst <= AMOUNT_MAX
        && leg.limits.iter().all(|limit| limit.ceiling <= AMOUNT_MAX)
}

fn shape_fits(leg: &Leg) -> bool {
    let measure_fits = (leg.measure == Measure::Concurrency) == (leg.shape == Shape::Concurrency);
    let rate_fits = match leg.shape {
        Shape::Rate { buckets, width, .. } => {
            (2..=BUCKETS_MAX).contains(&buckets) && (1..=WIDTH_MAX).contains(&width)
        }
        Shape::Forecast { window, .. } => (1..=FORECAST_WINDOW_MAX).contains(&window) && can_forecast(leg),
        Shape::Quota | Shape::Concurrency => true,
    };
    let periods_fit = match (leg.shape, leg.periods) {
        (Shape::Quota, Periods::Calendar(starts)) => starts.is_sorted_by(|left, right| left < right),
        (Shape::Quota, Periods::Lifetime)
        | (Shape::Rate { .. } | Shape::Forecast { .. } | Shape::Concurrency, Periods::None) => true,
        _ => false,
    };
    measure_fits && rate_fits && periods_fit
}

/// Plans are of llm_tokens and of what is expected; a worst case is held, not planned.
fn can_forecast(leg: &Leg) -> bool {
    matches!(leg.measure, Measure::Tokens | Measure::InputTokens | Measure::OutputTokens)
        && leg
            .limits
            .iter()
            .all(|limit| limit.ceiling <= FORECAST_CEILING_MAX && limit.hold == Hold::Expected)
}
