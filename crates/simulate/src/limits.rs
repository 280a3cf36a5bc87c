//! Which limit the calls of a trace are offered to: one number, or one that the trace's own demand sets.

use tollbook_ledger::{AMOUNT_MAX, Micros};

use crate::counts::index;
use crate::judge::Counted;
use crate::offer::Offer;

/// The window that every limit here covers.
pub const WINDOW: Micros = 60_000_000;

/// How a ceiling is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ceiling {
    /// llm_tokens per 60 s.
    Limit(u64),
    /// The demand is so many thousandths of the limit.
    Load(u64),
}

/// Ceilings of the accounts that a trace is booked on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    per_key: bool,
    /// One per key, or one for all.
    ceilings: Vec<u64>,
}

/// A load needs a trace that lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("all calls arrive at one instant: a load cannot be computed, give a limit")]
pub struct NoSpan;

impl Limits {
    /// With a load per key, each key's limit comes from its own demand over the whole trace, and is never below its
    /// largest call: such a key could not be served at all.
    pub fn of(offer: &Offer, ceiling: Ceiling, per_key: bool, counted: Counted) -> Result<Self, NoSpan> {
        let accounts = if per_key { offer.keys.len().max(1) } else { 1 };
        let load = match ceiling {
            // As it was given: whoever takes it from outside says what is too much.
            Ceiling::Limit(limit) => return Ok(Self { per_key, ceilings: vec![limit; accounts] }),
            Ceiling::Load(load) => u128::from(load.max(1)),
        };
        let span = u128::from(offer.span());
        if span == 0 {
            return Err(NoSpan);
        }
        let mut demand = vec![(0_u128, 0_u64); accounts];
        for call in &offer.calls {
            let uses = counted.of(call.input, call.output);
            let account = if per_key { index(u64::from(call.key)) } else { 0 };
            if let Some((sum, largest)) = demand.get_mut(account) {
                *sum += u128::from(uses);
                *largest = uses.max(*largest);
            }
        }
        let limit = |(sum, largest): (u128, u64)| {
            let rate = sum.saturating_mul(u128::from(WINDOW)).saturating_mul(1000) / (span * load);
            let least = if per_key { largest } else { 1 };
            u64::try_from(rate).unwrap_or(AMOUNT_MAX).clamp(least.max(1), AMOUNT_MAX)
        };
        Ok(Self { per_key, ceilings: demand.into_iter().map(limit).collect() })
    }

    /// The account of a key.
    pub fn account(&self, key: u32) -> u32 {
        if self.per_key { key } else { 0 }
    }

    /// The ceiling of an account.
    pub fn ceiling(&self, account: u32) -> u64 {
        self.ceilings.get(index(u64::from(account))).copied().unwrap_or(0)
    }

    /// Of all accounts.
    pub fn ceilings(&self) -> &[u64] {
        &self.ceilings
    }

    pub fn per_key(&self) -> bool {
        self.per_key
    }
}
