//! Events as the log spells them: compact, ours, and fixed.
//!
//! A payload begins with its tag. Tags and codes are on disk: never reuse one; a changed layout gets a new tag, and
//! the old one stays readable (`tests/fixtures`). Holds repeat each other, so a leg is written as its difference to
//! the leg before it.

mod read;
#[cfg(test)]
mod tests;
mod write;

use tollbook_ledger::codes::{ENDS, KINDS, MEASURES, WEIGHTS, code_of, value_of};
use tollbook_ledger::event::HeldLeg;

pub(crate) use read::Arena;
pub(crate) use write::encode;

const RESERVED: u8 = 1;
const DENIED: u8 = 2;
const RENEWED: u8 = 3;
const ENDED: u8 = 4;
const REBOOKED: u8 = 5;
const CORRECTED: u8 = 6;
const ADJUSTED: u8 = 7;
const REPAIRED: u8 = 8;
const PRUNED: u8 = 9;
/// Since plans are booked: with the profile, and estimators of every kind.
const RESERVED_PLANNED: u8 = 10;
const REBOOKED_PLANNED: u8 = 11;
const RENEWED_OUTGROWN: u8 = 12;
const PROGRESSED: u8 = 13;
const CLOCK: u8 = 32;
const ACCOUNT: u8 = 33;
const LIVE: u8 = 34;
const TOMBSTONE: u8 = 35;
const ESTIMATE: u8 = 36;
const ADJUST_KNOWN: u8 = 37;
const ACCOUNT_PLANNED: u8 = 38;
const LIVE_PLANNED: u8 = 39;
const TOMBSTONE_PLANNED: u8 = 40;
const ESTIMATE_PLANNED: u8 = 41;

const RATE: u8 = 1;
const QUOTA: u8 = 2;
const CONCURRENCY: u8 = 3;
const FORECAST: u8 = 4;

/// Bits of a leg's flags.
mod leg {
    pub(super) const AT_WORST: u64 = 1;
    pub(super) const CHARGE: u64 = 1 << 1;
    pub(super) const REFUND_FAILED: u64 = 1 << 2;
    pub(super) const SHADOW_DENIED: u64 = 1 << 3;
    pub(super) const NO_HARD_CEILING: u64 = 1 << 4;
    pub(super) const DECIDED_AS_HELD: u64 = 1 << 5;
    pub(super) const NOTHING_CARRIED: u64 = 1 << 6;
    pub(super) const CAP_AS_BEFORE: u64 = 1 << 7;
    pub(super) const OUTPUT_AS_BEFORE: u64 = 1 << 8;
    pub(super) const BASE_AS_BEFORE: u64 = 1 << 9;
    pub(super) const PER_OUTPUT_AS_BEFORE: u64 = 1 << 10;
    pub(super) const WORST_AS_BEFORE: u64 = 1 << 11;
    pub(super) const HELD_AS_BEFORE: u64 = 1 << 12;
    pub(super) const ALL: u64 = (1 << 13) - 1;
}

/// What the first leg is compared with.
const BEFORE_FIRST: HeldLeg = HeldLeg {
    slot: 0,
    at_worst: false,
    charge: false,
    refund_failed: false,
    shadow_denied: false,
    place: 0,
    base: 0,
    per_output: 0,
    cap: 0,
    worst: 0,
    output: 0,
    held: 0,
    decided: 0,
    carried: 0,
    hard_ceiling: u64::MAX,
};
