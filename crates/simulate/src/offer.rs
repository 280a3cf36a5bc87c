//! A trace as it is offered to a limit: with the pace, the delay and the cap that no trace tells.
//!
//! The same trace, habits and seed give the same calls, whatever limit they are offered to.

use tollbook_ledger::{Micros, SECOND};

use crate::random::Random;
use crate::trace::Trace;

/// Longest time to the first llm_token.
pub const FIRST_MAX: Micros = 600 * SECOND;
/// Slowest pace per llm_token.
pub const PACE_MAX: Micros = SECOND;

/// What a trace does not tell of its calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Habits {
    pub seed: u64,
    /// From the call's start to its first llm_token.
    pub first: Micros,
    /// Time per llm_token of output, uniform by call.
    pub pace: (Micros, Micros),
    /// What half of the calls send as `max_tokens`, unless the trace tells. A call that has used more did not send it.
    pub max_tokens: u64,
    /// Arrivals are moved later by up to this much: for traces whose times are coarse.
    pub spread: Micros,
}

impl Default for Habits {
    fn default() -> Self {
        Self { seed: 1, first: 300_000, pace: (20_000, 40_000), max_tokens: 4_096, spread: 0 }
    }
}

/// One call, whole: what it asks for, what it will use, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    pub arrival: Micros,
    pub input: u64,
    pub output: u64,
    /// Index into [`Offer::keys`].
    pub key: u32,
    pub max_tokens: Option<u64>,
    pub first: Micros,
    pub pace: Micros,
}

/// Calls in the order of their arrival.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offer {
    pub name: String,
    pub calls: Vec<Call>,
    pub keys: Vec<String>,
}

const PACES: u64 = 1;
const CAPS: u64 = 2;
const SPREADS: u64 = 3;

/// Gives every call of a trace what the trace does not tell.
pub fn offer(trace: &Trace, habits: &Habits) -> Offer {
    let mut paces = Random::new(habits.seed, PACES);
    let mut caps = Random::new(habits.seed, CAPS);
    let mut spreads = Random::new(habits.seed, SPREADS);
    let mut calls: Vec<Call> = trace
        .rows
        .iter()
        .map(|row| {
            let sends = caps.coin() && row.output <= habits.max_tokens;
            Call {
                arrival: row.arrival.saturating_add(spreads.below(habits.spread)),
                input: row.input,
                output: row.output,
                key: row.key,
                max_tokens: if trace.knows_caps {
                    row.max_tokens
                } else {
                    sends.then_some(habits.max_tokens)
                },
                first: habits.first,
                pace: paces.between(habits.pace.0, habits.pace.1),
            }
        })
        .collect();
    calls.sort_by_key(|call| call.arrival);
    Offer { name: trace.name.clone(), calls, keys: trace.keys.clone() }
}

impl Offer {
    /// From the first arrival to the last.
    pub fn span(&self) -> Micros {
        let first = self.calls.first().map_or(0, |call| call.arrival);
        self.calls.last().map_or(0, |call| call.arrival).saturating_sub(first)
    }
}

impl Call {
    /// When the last llm_token has landed, or would have.
    pub fn end(&self) -> Micros {
        let streaming = self.pace.saturating_mul(self.output.saturating_sub(1));
        self.arrival.saturating_add(self.first).saturating_add(streaming)
    }

    /// llm_tokens of output that have landed at a time after the arrival.
    pub fn streamed(&self, now: Micros) -> u64 {
        match now.checked_sub(self.arrival.saturating_add(self.first)) {
            None => 0,
            Some(_) if self.pace == 0 => self.output,
            Some(since) => (since / self.pace).saturating_add(1).min(self.output),
        }
    }
}
