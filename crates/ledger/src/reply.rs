//! What the book answers.

use crate::account::{AccountId, Measure, Shape};
use crate::id::{Attempt, LimitId, ReservationId};
use crate::units::Micros;

/// The answer to a reserve or a rebook.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    Admit(Receipt),
    /// The same (id, attempt) has ended; it must not be dispatched.
    Ended(End),
    /// The same (id, attempt) with other legs; the index of the first that differs.
    Conflict(usize),
    /// No period start of some quota leg contains the engine's time; ask again with starts around `now`.
    Recalendar,
    Deny(Denial),
}

/// Proof of an admitted reservation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Receipt {
    pub id: ReservationId,
    pub attempt: Attempt,
    /// Engine time of the admission.
    pub now: Micros,
    pub legs: Vec<LegReceipt>,
}

/// One leg of a receipt; amounts in the account's unit, taken after the hold was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LegReceipt {
    pub account: AccountId,
    /// Quota: start of the period named, UTC seconds. Rate: bucket number at the door. Concurrency: 0.
    pub place: u64,
    pub expected: u64,
    pub held: u64,
    /// Output llm_tokens the expected amount was computed from.
    pub output: u64,
    /// Smallest ceiling among the enforced limits; among the shadow ones if none is enforced.
    pub ceiling: u64,
    /// Posted in the window or period, this call's `requests` (and input on a forecast account) included.
    pub posted: i64,
    /// All live holds on the account, this one included; of a forecast account, what its fullest window to come has more
    /// than `posted`.
    pub held_total: i64,
    /// Time until the account is empty if nothing else comes; `Micros::MAX` for lifetime.
    pub reset: Micros,
    /// A shadow limit of this leg would have denied (L17).
    pub shadow_denied: bool,
}

/// A limit is reached. Not an error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Denial {
    pub binding: Binding,
    /// True when waiting exactly `binding`'s time admits if nothing else happens (L14).
    pub firm: bool,
    /// Room per leg: smallest over its enforced limits of ceiling − posted − held, at least 0.
    pub room: Vec<u64>,
    /// Holds in this shard that are due; the caller expires them and asks once more (L7).
    pub due: Vec<Due>,
}

/// The limit that decided: `never` first, else the longest wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    pub limit: LimitId,
    pub leg: usize,
    pub hard: bool,
    pub kind: DenyKind,
    pub ceiling: u64,
    pub posted: i64,
    pub held: i64,
    pub demand: u64,
    /// Time until the account is empty if nothing else comes.
    pub reset: Micros,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DenyKind {
    /// The demand is above the ceiling.
    TooLarge,
    /// A lifetime quota is spent.
    Exhausted,
    /// A calendar quota is spent (posted + demand > ceiling); room comes with the next period.
    Spent(Wait),
    /// Room comes with time, or when live holds end.
    Busy(Wait),
}

/// How long until the demand fits. `firm`: with live holds unchanged it fits exactly then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    pub after: Micros,
    pub firm: bool,
}

/// A due hold told to a denied caller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Due {
    pub id: ReservationId,
    pub attempt: Attempt,
}

/// How a reservation ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum End {
    Settled,
    Released,
    Expired,
    /// Expired, then closed by one late settle or late release (L8).
    Corrected,
    /// Replaced by the next attempt (L18).
    Rebooked,
}

/// The state a claim met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Met {
    /// It was held; this claim ended it.
    Held,
    /// It had expired; this claim was the one correction (L8).
    Late,
    /// It had ended; nothing changed.
    Ended(End),
    /// The id is unknown or forgotten; nothing changed (L8: an `unbooked` entry).
    Unknown,
}

/// The answer to a settle or release.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settled {
    pub before: Met,
    /// Per leg: what was posted above the amount last decided; 0 where nothing was posted.
    pub overrun: Vec<u64>,
    /// What the attempt has charged to quotas as this claim leaves it, `requests` posted at the door included; for a
    /// late claim the difference to what expiry charged. Zeros are left out.
    pub posted: Vec<Posted>,
    /// Engine time of the admission; 0 when unknown.
    pub admitted: Micros,
}

/// An amount posted to one quota period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Posted {
    pub account: AccountId,
    pub period: u64,
    pub amount: i64,
}

/// The answer to one renewal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Renewed {
    /// Alive; what every leg now holds.
    Held(Vec<u64>),
    /// Alive, but hard legs (by index) had no room to grow; nothing grew on hard legs (L9).
    Short(Vec<usize>),
    Ended(End),
    Unknown,
}

/// The answer to one expiry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Expired {
    /// `posted` as in [`Settled`].
    Expired {
        posted: Vec<Posted>,
        context: Vec<u8>,
        admitted: Micros,
        /// False: it expired at the door and everything was given back; no entry is written.
        sent: bool,
    },
    NotDue,
    Ended(End),
    Unknown,
}

/// A command against the rules, in the order in which they win. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
pub enum Refusal {
    #[error("no leg")]
    NoLegs,
    #[error("more than {} legs", crate::units::LEGS_MAX)]
    TooManyLegs,
    #[error("leg {0} has no limit or too many")]
    Limits(usize),
    #[error("leg {0} repeats an account")]
    RepeatedAccount(usize),
    #[error("leg {0} has an amount above 2^53 - 1")]
    Amount(usize),
    #[error("leg {0} has a shape or periods that cannot be")]
    Shape(usize),
    #[error("context is longer than {} bytes", crate::units::CONTEXT_MAX)]
    Context,
    #[error("one amount per leg is needed")]
    ActualCount,
    /// Rebook: the next attempt is not above the one that ended.
    #[error("the next attempt is not above the ended one")]
    Attempt,
    #[error("the account does not exist or is no quota")]
    NoSuchQuota,
    /// Progress: too many accounts or seconds, or a difference above 2^53 − 1; the index of the batch.
    #[error("batch {0} of progress is too long or has an amount above 2^53 - 1")]
    Progress(usize),
    /// The caller's log took no event; nothing was changed.
    #[error("the log is full")]
    LogFull,
}

/// One account as it stands; of a quota, the newest period if it has not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Balance {
    pub account: AccountId,
    pub measure: Measure,
    pub shape: Shape,
    /// Start and end in UTC seconds; `None`: no quota, or no period has been opened since the last one ended.
    pub period: Option<(u64, u64)>,
    pub posted: i64,
    pub held: i64,
    /// Live reservations with a leg on the account.
    pub live_holds: u32,
    /// Time until the account is empty if nothing else comes; `Micros::MAX` for lifetime.
    pub reset: Micros,
    pub shadow_denied: u64,
    pub shadow_demand: u64,
    /// Changes with every write to `held`.
    pub version: u32,
}

/// `held` of one account or period differs from the sum of its live holds (L10).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drift {
    pub account: AccountId,
    /// Quota: start of the period; else 0.
    pub period: u64,
    pub held: i64,
    pub sum: i64,
    /// The account's version when this was seen; `repair` does nothing under another one.
    pub version: u32,
}

/// What one call of `prune` forgot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PruneCount {
    pub tombstones: u32,
    pub adjusts: u32,
    pub estimators: u32,
    pub accounts: u32,
}

/// Things that should not happen, counted since the book was made. Not part of its state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Alarms {
    /// Decisions that met a negative `held` (L11).
    pub negative_held: u64,
    /// Rings restarted because the clock stepped back by more than two windows (L12).
    pub ring_restarts: u64,
    /// Events stamped before the one they follow.
    pub clock_steps_back: u64,
    /// Claims for ids not known (L8).
    pub unknown_claims: u64,
    /// Postings to periods that had been dropped.
    pub dropped_postings: u64,
    /// Requests that could not be given back in full (L6).
    pub dropped_refunds: u64,
    /// Progress for accounts that are not known, or for seconds that have left or are too far ahead, in the account's unit.
    pub progress_outside: u64,
    /// Progress that would have made a second negative, in the account's unit.
    pub progress_below: u64,
    /// Batches of progress that had been applied before.
    pub progress_repeated: u64,
    /// Amounts cut at 2^53 − 1.
    pub saturated: u64,
    /// Events that did not fit the book.
    pub misfits: u64,
}
