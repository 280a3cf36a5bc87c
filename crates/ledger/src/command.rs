//! What callers ask of the book.

use crate::account::{AccountId, Measure, Shape};
use crate::id::{Attempt, LimitId, ReservationId};
use crate::units::Micros;

/// One ceiling tested on a leg's account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    pub id: LimitId,
    /// In the account's unit.
    pub ceiling: u64,
    pub hard: bool,
    /// Written, never enforced, never shown (L17).
    pub shadow: bool,
    /// Post a denied demand too, at most once per bucket (L1, L14). Only on rates: a quota has no bucket to bound it.
    pub count_denied: bool,
    /// What this limit asks the leg to hold.
    pub hold: Hold,
    pub on_expiry: OnExpiry,
}

/// Which demand a limit wants held.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Hold {
    Expected,
    Worst,
}

/// What becomes of a `sent` hold that expires.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum OnExpiry {
    /// Freed, nothing posted.
    Release,
    /// The expected demand is posted.
    Charge,
}

/// How a call is expected to stream; measured by the gateway, used to plan output on forecast accounts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Profile {
    /// Time to the first llm_token, in microseconds.
    pub ttft: Micros,
    /// Microseconds per llm_token; held within [`Profile::PACES`].
    pub pace: Micros,
}

impl Profile {
    /// The paces that are believed: 1 ms to 2 s per llm_token.
    pub const PACES: (Micros, Micros) = (1_000, 2_000_000);

    /// The pace, as far as it is believed.
    #[inline]
    pub fn pace(&self) -> Micros {
        self.pace.clamp(Self::PACES.0, Self::PACES.1)
    }
}

impl Default for Profile {
    /// Before the first sample: 0.3 s to the first llm_token, then 30 ms for each.
    fn default() -> Self {
        Self { ttft: 300_000, pace: 30_000 }
    }
}

/// Digest of key × model (and task tag), or of a model alone for a prior.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EstimatorId(pub u64);

/// Where a leg's expected output comes from. Every kind is bounded by the leg's cap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Estimator {
    /// From what was used before: from `prior` while `own` is young, `first` while that is young too.
    Learned { kind: EstimatorKind, own: EstimatorId, prior: EstimatorId, first: u64 },
    /// The output cap.
    Capped,
    /// A configured number of llm_tokens.
    Constant { output: u64 },
}

/// What an estimator keeps of the outputs it has seen, and what it makes of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum EstimatorKind {
    /// Twice an exponential mean, weight 0.3.
    Ema,
    /// Σ output ÷ Σ calls over the last ten full minutes.
    RecentMean,
    /// The 95th percentile of the last 100; 1.5 × their mean below five samples.
    P95,
    /// Twice an exponential mean, weight 0.05 and sample mean while young; learns too when a stream outgrows it.
    Forecast,
}

/// Up to four consecutive period starts around the engine time of the caller's last reply (L12).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Periods {
    /// Not a quota.
    None,
    /// One period that never ends; its start is 0.
    Lifetime,
    /// Starts in UTC seconds, strictly increasing; period i ends where i + 1 begins, so the last one is only an end.
    Calendar([u64; 4]),
}

/// One account's part of a reservation: amount = ⌈(base + per_output × e) / 1000⌉ for expected output e.
#[derive(Clone, Debug)]
pub struct Leg {
    pub account: AccountId,
    pub measure: Measure,
    pub shape: Shape,
    pub periods: Periods,
    /// Thousandths of the account's unit, independent of the output.
    pub base: u64,
    /// Thousandths of the account's unit per llm_token of output.
    pub per_output: u64,
    /// Output cap of the call in llm_tokens, all choices together.
    pub cap: u64,
    /// Finished worst-case amount in the account's unit.
    pub worst: u64,
    pub estimator: Estimator,
    /// Give `requests` back when the call failed upstream (L6).
    pub refund_failed: bool,
    /// All limits over this account that match the call; at least one, at most [`crate::units::LIMITS_PER_LEG_MAX`].
    pub limits: Vec<Limit>,
}

impl Leg {
    /// A busy forecast account leaves a part of its ceiling for what is not known: input until it is settled, pace until it
    /// is seen. A strict one needs none, unless it counts output.
    #[inline]
    pub(crate) fn spares(&self) -> bool {
        match self.shape {
            Shape::Forecast { strict, .. } => !strict || self.measure != Measure::InputTokens,
            Shape::Rate { .. } | Shape::Quota | Shape::Concurrency => false,
        }
    }

    /// The call can cost this account nothing: its model's price is 0, or it has no output where only output counts.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.base == 0 && self.worst == 0 && (self.per_output == 0 || self.cap == 0)
    }
}

/// Hold the demand of one call on every leg, all or nothing (L1).
#[derive(Clone, Debug)]
pub struct Reserve {
    pub id: ReservationId,
    pub attempt: Attempt,
    pub life: Micros,
    pub profile: Profile,
    pub legs: Vec<Leg>,
    /// What `expire` needs to write a journal entry; opaque here, at most [`crate::units::CONTEXT_MAX`] bytes.
    pub context: Vec<u8>,
}

/// Extend the life of one live reservation, and grow it (L7, L9).
#[derive(Clone, Copy, Debug)]
pub struct Renew {
    pub id: ReservationId,
    pub attempt: Attempt,
    pub life: Micros,
    /// The call left the gateway; the first such renewal makes the reservation `sent`.
    pub sent: bool,
    /// The output now expected in all, if it outgrew the estimate.
    pub growth: Growth,
    /// A stream outgrew its forecast: the output now expected. Estimators of that kind move their mean by it at once.
    pub outgrown: Option<u64>,
}

/// What a renewal says of the call's output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Growth {
    Unchanged,
    /// llm_tokens now expected in all.
    Output(u64),
}

/// End an attempt with the truth (L3, L4, L5, L8).
#[derive(Clone, Debug)]
pub struct Settle {
    pub id: ReservationId,
    pub attempt: Attempt,
    /// One finished amount per leg, in the order of the reservation's legs.
    pub actual: Vec<u64>,
    /// Output llm_tokens that landed, reported or metered; the rest of an amount on a forecast account is input.
    pub landed: u64,
    /// True output to learn from; only what a provider reported.
    pub learn: Option<u64>,
}

/// End an attempt without usage (L3, L6, L8).
#[derive(Clone, Copy, Debug)]
pub struct Release {
    pub id: ReservationId,
    pub attempt: Attempt,
    pub why: ReleaseWhy,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReleaseWhy {
    /// The call never left the gateway: `requests` are given back.
    NeverSent,
    /// The provider refused: `requests` are kept unless the leg says `refund_failed`.
    Failed,
}

/// Expire one reservation if it is due (L7).
#[derive(Clone, Copy, Debug)]
pub struct ExpireOne {
    pub id: ReservationId,
    pub attempt: Attempt,
}

/// End attempt n and decide attempt n + 1 in one step (L18).
#[derive(Clone, Debug)]
pub struct Rebook {
    pub ended: Attempt,
    /// What attempt n used, one amount per leg of it; `None` posts nothing.
    pub actual: Option<Vec<u64>>,
    /// Output llm_tokens of attempt n that landed.
    pub landed: u64,
    /// Attempt n + 1; same id.
    pub reserve: Reserve,
}

/// Facts that replace plans on one forecast account: what one gateway's streams really did, and will do, summed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The gateway's random id of this start.
    pub gateway: u64,
    pub account: AccountId,
    /// Larger than in the gateway's batch before; a batch that is not is taken as done and changes nothing.
    pub seq: u64,
    /// Engine time in seconds of the first difference.
    pub base_second: u64,
    /// Differences per second, at most [`crate::units::PROGRESS_SECONDS_MAX`].
    pub deltas: Vec<i64>,
}

/// Post a signed difference to a quota, once per `id` (L8, L16).
#[derive(Clone, Copy, Debug)]
pub struct Adjust {
    pub id: u128,
    pub account: AccountId,
    /// Start of the period, UTC seconds; 0 for lifetime.
    pub period: u64,
    pub delta: i64,
    /// Opens the account and the period if they do not exist yet (opening totals of a new quota, L16).
    pub opening: Option<Opening>,
}

/// What `adjust` needs to open a quota's period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    pub measure: Measure,
    /// End of the period, UTC seconds; `u64::MAX` for lifetime.
    pub end: u64,
}
