//! What a caller may know of its limits: the tightest soft limit per measure.
//!
//! Taken from a receipt or a denial, never looked up again. Shadow limits never appear (L17).

use tollbook_ledger::{Measure, Micros};

use crate::away::Degraded;

/// One limit as it stands. In the account's unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Figure {
    pub ceiling: u64,
    pub remaining: u64,
    /// Time until the account is empty if nothing else comes.
    pub reset: Micros,
    /// The window, for policies; 0 for a quota.
    pub window: Micros,
}

/// The tightest soft limit (smallest remaining ÷ ceiling) of each measure that clients are told of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    pub requests: Option<Figure>,
    pub llm_tokens: Option<Figure>,
    pub input_llm_tokens: Option<Figure>,
    pub output_llm_tokens: Option<Figure>,
    /// The book was away when this was decided, and how it was decided all the same.
    pub degraded: Option<Degraded>,
}

impl Figures {
    /// Takes a soft limit's standing into account.
    pub fn take(&mut self, measure: Measure, figure: Figure) {
        let slot = match measure {
            Measure::Requests => &mut self.requests,
            Measure::Tokens => &mut self.llm_tokens,
            Measure::InputTokens => &mut self.input_llm_tokens,
            Measure::OutputTokens => &mut self.output_llm_tokens,
            Measure::Cost | Measure::Concurrency => return,
        };
        if slot.is_none_or(|held| figure.is_tighter_than(&held)) {
            *slot = Some(figure);
        }
    }
}

impl Figure {
    /// ceiling − posted − held, at least 0.
    pub fn new(ceiling: u64, posted: i64, held: i64, reset: Micros, window: Micros) -> Self {
        let used = u64::try_from(posted.saturating_add(held.max(0))).unwrap_or(0);
        Self { ceiling, remaining: ceiling.saturating_sub(used), reset, window }
    }

    fn is_tighter_than(&self, other: &Self) -> bool {
        let ours = u128::from(self.remaining) * u128::from(other.ceiling);
        let theirs = u128::from(other.remaining) * u128::from(self.ceiling);
        ours < theirs || (ours == theirs && self.ceiling < other.ceiling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_by_share_is_told() {
        let mut figures = Figures::default();
        figures.take(Measure::Requests, Figure::new(100, 50, 0, 0, 0));
        figures.take(Measure::Requests, Figure::new(10, 4, 0, 0, 0));
        figures.take(Measure::Requests, Figure::new(1000, 900, 50, 0, 0));
        assert_eq!(figures.requests.unwrap().ceiling, 1000);
        figures.take(Measure::Requests, Figure::new(0, 0, 0, 0, 0));
        assert_eq!(figures.requests.unwrap().remaining, 0);
    }

    #[test]
    fn overdrawn_is_zero_and_credit_is_the_ceiling() {
        assert_eq!(Figure::new(10, 15, 0, 0, 0).remaining, 0);
        assert_eq!(Figure::new(10, -5, 0, 0, 0).remaining, 10);
        assert_eq!(Figure::new(10, 2, -3, 0, 0).remaining, 8);
    }
}
