//! What settled usage taught about one key × model: how far the built-in estimate is off, and how much is cached.
//!
//! The built-in estimate is taken apart by what it was made of ([`Kinds`]). Each kind has a ratio of its own, and what a
//! provider adds to every call out of sight is one more unknown: a weighted least-squares fit over the calls seen, old
//! ones fading, that starts from ratios of one and nothing added. A call weighs as its size, up to a bound.
//! Invariants: integers only; a ratio lies between its bounds; no single call, however absurd what was reported of it,
//! counts for more than twice or less than half of what was expected of it. Only usage that a provider reported as
//! final teaches. A value kept by the caller; knows no table and no clock.

use crate::count::Kinds;
use tollbook_wire::Usage;

/// Bounds of a kind's ratio, in thousandths.
pub const RATIO_MIN: u64 = 250;
pub const RATIO_MAX: u64 = 4_000;
/// Most llm_tokens that a provider is taken to add to every call.
pub const HIDDEN_MAX: u64 = 1_024;
/// Largest size that a single call weighs, in llm_tokens.
pub const WEIGHT_MAX: u64 = 65_536;
/// What is left of old samples when a new one comes, in thousandths; less when it is off by more than two fifths, so
/// that a change is followed within a few calls.
const KEEP: u64 = 920;
const KEEP_SURPRISED: u64 = 600;
/// llm_tokens that a kind of text starts with, at its first ratio. What is around the text and what is hidden are a few
/// llm_tokens in each call: it takes less to be believed.
const PRIOR: i64 = 100;
const PRIOR_FRAME: i64 = 4;
/// What is hidden is kept as a ratio to this.
const HIDDEN_UNIT: u64 = 16;
/// Sums are kept in this part of an llm_token.
const PART: u64 = 1_024;
/// Ratios are kept in millionths.
const ONE: u64 = 1_000_000;
/// Rounds of the solver; it starts where the last call left it.
const ROUNDS: usize = 6;
/// Unknowns: the five kinds that have a ratio, and what is hidden.
const N: usize = 6;

/// The state of one key × model. The default has seen nothing and corrects nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Learned {
    /// Of pairs of unknowns: Σ weight × estimate × estimate.
    squares: [[u64; N]; N],
    /// Σ weight × estimate × reported.
    products: [u64; N],
    /// How far each ratio is from its first value, in millionths.
    shift: [i64; N],
    reported: u64,
    cached: u64,
    samples: u32,
}

/// An unknown's first value and its bounds, in millionths, and what holds it there.
struct Start {
    first: u64,
    least: u64,
    most: u64,
    prior: i64,
}

/// The last two unknowns are what is around the text, and what is hidden.
fn start(n: usize) -> Start {
    let ratio = Start { first: ONE, least: RATIO_MIN * 1_000, most: RATIO_MAX * 1_000, prior: PRIOR };
    match N - 1 - n.min(N - 1) {
        0 => Start { first: 0, least: 0, most: HIDDEN_MAX / HIDDEN_UNIT * ONE, prior: PRIOR_FRAME },
        1 => Start { prior: PRIOR_FRAME, ..ratio },
        _ => ratio,
    }
}

impl Learned {
    /// The correction of each kind's estimate, in thousandths.
    pub fn ratios(&self) -> Kinds {
        let [ascii, signs, cjk, other, around, _] = self.values().map(|value| value / 1_000);
        Kinds { ascii, signs, cjk, other, around, known: 1_000 }
    }

    /// llm_tokens that every call has beyond what is in its body.
    pub fn hidden(&self) -> u64 {
        let [.., hidden] = self.values();
        scaled(hidden, HIDDEN_UNIT, ONE)
    }

    /// Calls it was taught by.
    pub fn samples(&self) -> u32 {
        self.samples
    }

    /// The share of input that is read from a cache, in thousandths.
    pub fn cached_share(&self) -> u64 {
        if self.reported == 0 { 0 } else { scaled(self.cached, 1_000, self.reported).min(1_000) }
    }

    /// Applies the corrections, rounded up. What is known needs none.
    pub fn correct(&self, estimate: &Kinds) -> u64 {
        let sum = unknowns(estimate)
            .into_iter()
            .zip(self.values())
            .map(|(part, value)| u128::from(part) * u128::from(value))
            .fold(0_u128, u128::saturating_add);
        let corrected = u64::try_from(sum.div_ceil(u128::from(ONE))).unwrap_or(u64::MAX);
        corrected.saturating_add(estimate.known)
    }

    /// The correction of images and other things around the text.
    pub fn correct_around(&self, around: u64) -> u64 {
        let [.., ratio, _] = self.values();
        scaled(around, ratio, ONE)
    }

    /// Learns from a call: its built-in estimate before correction, and what the provider counted.
    pub fn learn(&mut self, estimate: &Kinds, usage: &Usage) {
        if !usage.complete || !usage.input_reported || usage.split_estimated || usage.input == 0 {
            return;
        }
        let known_apart = usage.input.saturating_sub(estimate.known);
        let estimate = Kinds { known: 0, ..*estimate };
        let size = estimate.total();
        if size == 0 {
            return;
        }
        let expected = self.correct(&estimate);
        let reported = known_apart.clamp(expected / 2, expected.saturating_mul(2));
        let surprised = reported.abs_diff(expected) > expected / 5 * 2;
        let keep = if surprised { KEEP_SURPRISED } else { KEEP };
        let weight = size.min(WEIGHT_MAX);
        let values = unknowns(&estimate);
        for ((row, product), value) in self.squares.iter_mut().zip(&mut self.products).zip(values) {
            // A call weighs as its size: ÷ size² × weight, half of it here and half in each product.
            let share = scaled(value, weight.saturating_mul(PART), size);
            for (cell, other) in row.iter_mut().zip(values) {
                *cell = scaled(*cell, keep, 1_000).saturating_add(scaled(share, other, size));
            }
            *product = scaled(*product, keep, 1_000).saturating_add(scaled(share, reported, size));
        }
        let cached = scaled(usage.cached.min(usage.input), weight, usage.input);
        self.reported = scaled(self.reported, keep, 1_000).saturating_add(weight);
        self.cached = scaled(self.cached, keep, 1_000).saturating_add(cached);
        self.samples = self.samples.saturating_add(1);
        self.solve();
    }

    /// Each unknown in turn gets its best value while the others stand; bounded, so the best within the bounds is found.
    ///
    /// Sums are at most 2^33 and values 2^26, so no product comes near what an integer holds; saturating all the same.
    fn solve(&mut self) {
        let mut values = self.values().map(signed);
        for _ in 0..ROUNDS {
            for turn in 0..N {
                let (Some(row), Some(product)) = (self.squares.get(turn), self.products.get(turn)) else {
                    return;
                };
                let own = row.get(turn).copied().unwrap_or(0);
                if own == 0 {
                    // never seen: it stays where it is
                    continue;
                }
                let start = start(turn);
                let first = signed(start.first);
                // what the other unknowns and this one's first value leave unexplained
                let mut left = signed(*product).saturating_mul(signed(ONE));
                for (n, (cell, value)) in row.iter().zip(values).enumerate() {
                    let value = if n == turn { first } else { value };
                    left = left.saturating_sub(signed(*cell).saturating_mul(value));
                }
                let own = signed(own).saturating_add(start.prior.saturating_mul(signed(PART)));
                let value = first.saturating_add(left.checked_div(own).unwrap_or(0));
                let value = value.clamp(signed(start.least), signed(start.most));
                if let (Some(slot), Some(kept)) = (values.get_mut(turn), self.shift.get_mut(turn)) {
                    *slot = value;
                    *kept = value.saturating_sub(first);
                }
            }
        }
    }

    /// In millionths; the bounds keep them positive.
    fn values(&self) -> [u64; N] {
        let mut values = [0; N];
        for (n, (value, shift)) in values.iter_mut().zip(self.shift).enumerate() {
            *value = start(n).first.saturating_add_signed(shift);
        }
        values
    }
}

/// What each unknown multiplies. A bare text has no chat template, so nothing is hidden in one either.
fn unknowns(kinds: &Kinds) -> [u64; N] {
    let hidden = if kinds.around > 0 { HIDDEN_UNIT } else { 0 };
    [kinds.ascii, kinds.signs, kinds.cjk, kinds.other, kinds.around, hidden]
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// `amount` × `by` ÷ `of`, rounded down; in the short integer wherever the product has room there.
fn scaled(amount: u64, by: u64, of: u64) -> u64 {
    if let Some(product) = amount.checked_mul(by) {
        return product / of.max(1);
    }
    let product = u128::from(amount) * u128::from(by) / u128::from(of.max(1));
    u64::try_from(product).unwrap_or(u64::MAX)
}
