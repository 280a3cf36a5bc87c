//! Decided effects, as the log keeps them.
//!
//! Invariants: one verb appends at most one event, openings of accounts and periods included, so a verb is atomic in
//! the log. An event holds what was decided, never what was asked: applying it needs no limit and can not fail, and a
//! book is the fold of its events. Accounts are named by slot; the event that fills a slot comes before any that uses it.
//! An event that does not fit the book (only a damaged log has one) changes nothing and is counted.
//!
//! The variants under "snapshot" are rows of a dump: folding them into a new book gives an equal one.

use crate::account::{AccountId, Measure, Shape};
use crate::command::{EstimatorId, EstimatorKind, Profile};
use crate::id::{Attempt, ReservationId};
use crate::reply::End;
use crate::units::Micros;

/// Where events go before they are applied.
pub trait Log {
    /// Keep one event. On `Full` the verb answers `Refusal::LogFull` and changes nothing.
    fn append(&mut self, event: &Event<'_>) -> Result<(), Full>;
}

/// The log takes no more events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the log is full")]
pub struct Full;

/// One decided effect, or one row of a snapshot. `now` is engine time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// A reserve was admitted.
    Reserved(Reserved<'a>),
    /// A denial whose demand is counted (`count_denied`); other denials leave no event.
    Denied {
        now: Micros,
        posts: &'a [DeniedPost],
    },
    /// A renewal.
    Renewed(RenewedTo<'a>),
    /// A settle, release or expiry of a live reservation.
    Ended(Ended<'a>),
    /// A rebook: one attempt ended, the next one reserved.
    Rebooked {
        ended: Ended<'a>,
        reserved: Reserved<'a>,
    },
    /// The one late settle or release of an expired reservation (L8).
    Corrected(Corrected<'a>),
    /// A signed difference posted to a quota.
    Adjusted(Adjusted),
    /// `held` of one account or quota period, set to the confirmed sum of its live holds (L10).
    Repaired {
        now: Micros,
        slot: u32,
        period: u64,
        held: i64,
    },
    /// Plans replaced by facts on forecast accounts; batches that were known already are left out.
    Progressed {
        now: Micros,
        batches: &'a [Batch],
        /// Differences of the batches, one after the other.
        deltas: &'a [i64],
    },
    /// Things forgotten.
    Pruned(Pruned<'a>),

    // Snapshot: rows of a dump, in this order.
    /// First row.
    Clock(ClockRow),
    Account(AccountRow<'a>),
    Live(LiveRow<'a>),
    Tombstone(TombstoneRow<'a>),
    Estimate(EstimateRow<'a>),
    AdjustKnown {
        id: u128,
        applied: Micros,
    },
}

/// A new account and the free slot it fills.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened {
    pub slot: u32,
    pub account: AccountId,
    pub measure: Measure,
    pub shape: Shape,
}

/// A period opened on a quota account; seconds UTC, `end` is `u64::MAX` for lifetime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeriodOpened {
    pub slot: u32,
    pub start: u64,
    pub end: u64,
}

/// One hold, or one posting of `requests`, as the reservation remembers it (L5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldLeg {
    pub slot: u32,
    /// Held at the worst case, so it never grows (L9).
    pub at_worst: bool,
    /// Post the expected demand when a `sent` hold expires (L7).
    pub charge: bool,
    /// Give `requests` back when the call failed upstream (L6).
    pub refund_failed: bool,
    /// A shadow limit would have denied (L17).
    pub shadow_denied: bool,
    /// Quota: start of the period named. Rate: bucket number at the door. Concurrency: 0.
    pub place: u64,
    pub base: u64,
    pub per_output: u64,
    pub cap: u64,
    pub worst: u64,
    /// Expected output; the expected amount is ⌈(base + per_output × output) / 1000⌉.
    pub output: u64,
    /// What the account holds for this leg; 0 for `requests`.
    pub held: u64,
    /// The amount last decided. For `requests`: what is posted for this call, at `place`.
    pub decided: u64,
    /// The part of a `requests` leg's `decided` that an earlier attempt had posted already (L18).
    pub carried: u64,
    /// The smallest ceiling of an enforced hard limit, against which growth is decided; `u64::MAX`: none.
    pub hard_ceiling: u64,
}

/// The estimators of a call: its own, and the prior it was young under.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Learner {
    pub own: EstimatorId,
    pub prior: EstimatorId,
    pub kind: EstimatorKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserved<'a> {
    pub now: Micros,
    pub id: ReservationId,
    pub attempt: Attempt,
    /// When the hold may be swept, on the book's steady clock (`Book::steady`).
    pub due: Micros,
    /// How output is planned on forecast accounts.
    pub profile: Profile,
    pub context: &'a [u8],
    pub opened: &'a [Opened],
    pub periods: &'a [PeriodOpened],
    /// Each once.
    pub learners: &'a [Learner],
    pub legs: &'a [HeldLeg],
}

/// A denied demand posted to the bucket of `now`; 0 only restarts a ring that the clock left far ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeniedPost {
    pub slot: u32,
    pub amount: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RenewedTo<'a> {
    pub now: Micros,
    pub id: ReservationId,
    pub attempt: Attempt,
    /// On the book's steady clock.
    pub due: Micros,
    pub sent: bool,
    /// Learned by the call's forecast estimators.
    pub outgrown: Option<u64>,
    /// Legs that grew.
    pub grown: &'a [Grown],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grown {
    /// Index of the reservation's leg.
    pub leg: u8,
    pub output: u64,
    pub held: u64,
    pub decided: u64,
}

/// A live reservation's end: every hold is freed, `posted` is posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended<'a> {
    pub now: Micros,
    pub id: ReservationId,
    pub attempt: Attempt,
    pub end: End,
    /// One amount per leg. Positive: to the current bucket or the named period. Negative: `requests` given back to the
    /// bucket or period that took them.
    pub posted: &'a [i64],
    /// True output for the estimators.
    pub learned: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corrected<'a> {
    pub now: Micros,
    pub id: ReservationId,
    pub attempt: Attempt,
    /// One amount per [`QuotaLeg`] of the tombstone.
    pub posted: &'a [i64],
    pub learned: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Adjusted {
    pub now: Micros,
    pub id: u128,
    pub opened: Option<Opened>,
    pub period_opened: Option<PeriodOpened>,
    pub slot: u32,
    pub period: u64,
    pub delta: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pruned<'a> {
    pub now: Micros,
    /// So many tombstones, oldest first.
    pub tombstones: u32,
    /// So many remembered adjust ids, oldest first.
    pub adjusts: u32,
    pub estimators: &'a [EstimatorId],
    /// Slots of accounts closed.
    pub accounts: &'a [u32],
    /// Slots of quota accounts that drop every period past its retention but the newest.
    pub trimmed: &'a [u32],
}

/// The clock of a book, and the number of account slots that follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockRow {
    /// Engine time of the last event.
    pub seen: Micros,
    /// By how much engine time has stepped back, in all.
    pub behind: Micros,
    pub slots: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccountRow<'a> {
    pub opened: Opened,
    /// Rate and concurrency; quotas hold per period.
    pub held: i64,
    /// Live legs on the account.
    pub live: u32,
    pub version: u32,
    /// Mean time a hold lives.
    pub mean_hold: Micros,
    /// Last use, on the book's steady clock.
    pub used: Micros,
    pub shadow_denied: u64,
    pub shadow_demand: u64,
    /// One more than the last bucket in which a denial was posted; 0: none.
    pub denied_bucket: u64,
    /// Rate: number of the newest bucket. Forecast: the last second written.
    pub newest: u64,
    /// Rate: amounts of the buckets, newest first. Forecast: amounts per second, from the oldest kept one on, planned ones
    /// included. The rest is zero.
    pub buckets: &'a [u64],
    /// Forecast: the last batch of each gateway.
    pub gateways: &'a [GatewayRow],
    /// Quota: oldest first.
    pub periods: &'a [PeriodRow],
}

/// One gateway's differences to one forecast account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    pub slot: u32,
    pub gateway: u64,
    pub seq: u64,
    pub base_second: u64,
    /// How many of the event's differences are this batch's, one for each second.
    pub seconds: u8,
}

/// The last batch of progress that a gateway sent for an account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GatewayRow {
    pub gateway: u64,
    pub seq: u64,
    /// On the book's steady clock.
    pub heard: Micros,
}

/// One kept period of a quota account; seconds UTC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeriodRow {
    pub start: u64,
    pub end: u64,
    pub posted: i64,
    pub held: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveRow<'a> {
    pub id: ReservationId,
    pub attempt: Attempt,
    /// Engine time of the admission.
    pub admitted: Micros,
    /// On the book's steady clock.
    pub due: Micros,
    pub sent: bool,
    pub context: &'a [u8],
    pub learners: &'a [Learner],
    pub legs: &'a [HeldLeg],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TombstoneRow<'a> {
    pub id: ReservationId,
    pub attempt: Attempt,
    pub end: End,
    pub admitted: Micros,
    /// When it ended, on the book's steady clock.
    pub ended: Micros,
    /// How many legs the reservation had.
    pub legs: u8,
    /// What a late claim needs; only of expired ones.
    pub learners: &'a [Learner],
    pub quotas: &'a [QuotaLeg],
}

/// What a tombstone remembers of one quota leg.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotaLeg {
    pub account: AccountId,
    /// Index of the reservation's leg.
    pub leg: u8,
    /// It counts `requests`.
    pub requests: bool,
    pub refund_failed: bool,
    pub period: u64,
    /// What the reservation has posted there.
    pub charged: u64,
    pub decided: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EstimateRow<'a> {
    pub id: EstimatorId,
    pub kind: EstimatorKind,
    /// `Ema`, `Forecast`: samples.
    pub n: u64,
    /// `Ema`, `Forecast`: mean × 1000.
    pub m: u64,
    /// `P95`: the last outputs, oldest first. `RecentMean`: minute, outputs and calls, three numbers for each minute.
    pub samples: &'a [u64],
    /// Last sample, on the book's steady clock.
    pub used: Micros,
}
