//! One rule: as an operator writes it (draft), and as it is enforced.
//!
//! Invariants of a [`Limit`]: it passed validation; everything an operator may leave out is decided. Absent or null
//! ceiling = no limit, 0 = nothing passes, negative = refused (B223).

use crate::calendar::{Anchor, PeriodRule};
use crate::meter::MeterPair;
use crate::subject::Scope;
use std::sync::Arc;
use tollbook_ledger::{Hold, Measure, Micros, OnExpiry, Shape, Weights};

/// Longest name of a limit, in bytes.
pub const LIMIT_NAME_MAX: usize = 128;
/// Largest ceiling of an account that counts cost: 9.0 million currency units, in nano-currency (L13).
pub const COST_CEILING_MAX: u64 = 9_000_000_000_000_000;
/// Largest ceiling of a rate with weights, whose sums are weighed in 64 bits (L13).
pub const WEIGHTED_CEILING_MAX: u64 = 9_000_000_000;
/// Shortest and longest rate window, in seconds.
pub const WINDOW_MIN_S: u32 = 1;
pub const WINDOW_MAX_S: u32 = 24 * 3600;
/// A hold factor of one.
pub const FACTOR_ONE: u32 = 1000;
/// Smallest and largest hold factor, in thousandths; a hard limit takes none below one.
pub const FACTOR_MIN: u32 = 100;
pub const FACTOR_MAX: u32 = 10_000;
/// Largest constant estimate, in llm_tokens.
pub const CONSTANT_MAX: u64 = 10_000_000;

/// Soft limits shape traffic; hard limits are not to be overdrawn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Strictness {
    Soft,
    Hard,
}

/// What a limit does while the engine is away.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum WhenAway {
    /// Admit, and count that it was.
    Open,
    /// A local window of ceiling ÷ gateways.
    Local,
    /// 503.
    Closed,
}

/// How llm_tokens of a rate are booked while a call runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Booking {
    /// The whole demand is held until the call ends.
    Held,
    /// Planned into the seconds in which it will stream.
    Forecast,
}

/// When a provider counts a call against its own limit on us.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ChargeAt {
    /// The whole call as it is admitted, by the cap it asked for.
    Start,
    /// llm_tokens as they stream.
    Stream,
}

/// Where a quota starts from when it is added in mid-period (L16).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Opening {
    FromJournal,
    Zero,
}

/// Where the expected output of a call comes from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum EstimatorChoice {
    /// Twice an exponential mean per key × model, weight 0.3.
    Ema,
    /// The mean of the last ten full minutes.
    RecentMean,
    /// The 95th percentile of the last hundred calls.
    P95,
    /// Twice a slow mean, moved too by a stream that outgrows it; the default where output is planned.
    Forecast,
    /// The output cap.
    Capped,
    /// A fixed number of llm_tokens.
    Constant(u64),
}

/// A raise as an operator writes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RaiseDraft {
    /// In the ceiling's unit.
    pub by: i128,
    /// UTC seconds.
    pub until: u64,
}

/// What is on top of a ceiling until an instant (B227).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Raise {
    pub by: u64,
    /// UTC seconds; from then on the ceiling holds alone.
    pub until: u64,
}

/// A limit as an operator writes it. Numbers are untrusted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitDraft {
    /// Names the limit in verdicts and in its history; made up from scope, measure and shape when absent.
    pub name: Option<String>,
    pub scope: Scope,
    /// Only calls of this model (its id, not an alias).
    pub model: Option<String>,
    pub measure: Measure,
    pub shape: ShapeDraft,
    /// In the account's unit, nano-currency for cost; absent = no limit.
    pub ceiling: Option<i128>,
    /// What is on top of the ceiling for a while.
    pub raise: Option<RaiseDraft>,
    pub strictness: Option<Strictness>,
    pub hold: Option<Hold>,
    pub on_expiry: Option<OnExpiry>,
    pub when_away: Option<WhenAway>,
    pub meter: Option<MeterPair>,
    pub hold_factor_thousandths: Option<i64>,
    pub estimator: Option<EstimatorChoice>,
    pub shadow: bool,
    pub count_denied: bool,
    pub refund_failed: bool,
    pub opening: Option<Opening>,
    pub booking: Option<Booking>,
    /// Forecast: the oldest second counts whole, so that no placed burst passes the ceiling.
    pub strict: Option<bool>,
    /// Of a pool's rate on llm_tokens: how its provider counts.
    pub charge: Option<ChargeAt>,
    /// Where it is written, for people; part of no definition.
    pub origin: Option<Arc<str>>,
}

impl LimitDraft {
    /// A draft with nothing but what it must have.
    pub fn new(scope: Scope, measure: Measure, shape: ShapeDraft, ceiling: i128) -> Self {
        Self {
            name: None,
            scope,
            model: None,
            measure,
            shape,
            ceiling: Some(ceiling),
            raise: None,
            strictness: None,
            hold: None,
            on_expiry: None,
            when_away: None,
            meter: None,
            hold_factor_thousandths: None,
            estimator: None,
            shadow: false,
            count_denied: false,
            refund_failed: false,
            opening: None,
            booking: None,
            strict: None,
            charge: None,
            origin: None,
        }
    }
}

/// A shape as an operator writes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ShapeDraft {
    Rate { window_s: i64, bucket_s: Option<i64>, weights: Option<Weights> },
    Quota { period: PeriodKind, zone: Option<String>, anchor: Option<Anchor> },
    Concurrency,
}

/// The length of a quota's period.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PeriodKind {
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Lifetime,
}

/// A limit as it is enforced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limit {
    pub name: String,
    pub scope: Scope,
    pub model: Option<String>,
    pub measure: Measure,
    pub form: Form,
    pub ceiling: u64,
    pub raise: Option<Raise>,
    pub strictness: Strictness,
    pub hold: Hold,
    pub on_expiry: OnExpiry,
    pub when_away: WhenAway,
    /// Of accounts that count llm_tokens; [`MeterPair::PLAIN`] and unused elsewhere.
    pub meter: MeterPair,
    pub hold_factor_thousandths: u32,
    /// `None`: the default.
    pub estimator: Option<EstimatorChoice>,
    pub shadow: bool,
    pub count_denied: bool,
    pub refund_failed: bool,
    pub opening: Opening,
    /// Where it is written, for people; part of no definition.
    pub origin: Option<Arc<str>>,
}

/// A shape with everything decided.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Form {
    /// Booked as held.
    Rate {
        window_s: u32,
        bucket_s: u32,
        weights: Weights,
    },
    /// A rate whose output is planned.
    Forecast {
        window_s: u8,
        strict: bool,
    },
    Quota(PeriodRule),
    Concurrency,
}

impl Limit {
    /// Whether both say the same, wherever they are written: that is no part of a definition, and no history has it.
    pub(crate) fn says(&self, other: &Self) -> bool {
        let anywhere = |limit: &Self| Self { origin: None, ..limit.clone() };
        anywhere(self) == anywhere(other)
    }

    /// The ceiling at an instant (UTC seconds).
    pub fn ceiling_at(&self, now: u64) -> u64 {
        let raise = self.raise.filter(|raise| now < raise.until);
        raise.map_or(self.ceiling, |raise| self.ceiling.saturating_add(raise.by))
    }
}

impl Form {
    /// The estimator of a limit that names none.
    pub fn estimator(&self) -> EstimatorChoice {
        match self {
            Self::Forecast { .. } => EstimatorChoice::Forecast,
            Self::Rate { .. } | Self::Quota(_) | Self::Concurrency => EstimatorChoice::Ema,
        }
    }

    /// The ledger's shape.
    pub fn shape(&self) -> Shape {
        match self {
            Self::Rate { window_s, bucket_s, weights } => Shape::Rate {
                buckets: u8::try_from(buckets(*window_s, *bucket_s)).unwrap_or(u8::MAX),
                width: Micros::from(*bucket_s) * tollbook_ledger::units::SECOND,
                weights: *weights,
            },
            Self::Forecast { window_s, strict } => Shape::Forecast { window: *window_s, strict: *strict },
            Self::Quota(_) => Shape::Quota,
            Self::Concurrency => Shape::Concurrency,
        }
    }
}

/// Buckets of a ring: the window's, and one for the oldest, which is counted whole.
pub(crate) fn buckets(window_s: u32, bucket_s: u32) -> u32 {
    window_s.div_ceil(bucket_s.max(1)) + 1
}

/// Bucket width when none is given: a sixtieth of the window, at least a second.
pub(crate) fn default_bucket_s(window_s: u32) -> u32 {
    window_s.div_ceil(60).max(1)
}
