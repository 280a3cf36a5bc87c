//! Legs as tests write them.

use tollbook_engine::ReserveCall;
use tollbook_engine::Shard;
use tollbook_engine::ledger::{
    AccountId, Estimator, EstimatorId, EstimatorKind, Hold, Leg, Limit, LimitId, Measure, Micros, OnExpiry,
    Periods, Profile, ReservationId, Reserve, Shape, SubjectId, Weights,
};

/// One millisecond of engine time.
pub const MS: Micros = 1_000;
/// One second of engine time.
pub const S: Micros = 1_000_000;
/// One minute of engine time.
pub const M: Micros = 60 * S;
/// One hour of engine time.
pub const H: Micros = 60 * M;
/// One day of engine time.
pub const D: Micros = 24 * H;
/// Where tables begin: a midnight, UTC.
pub const START: Micros = 20_758 * D;
/// The shard of tables.
pub const SHARD: Shard = Shard(7);

/// An account by a readable name; what stands before the colon is the subject.
pub fn account(name: &str) -> AccountId {
    let subject = name.split(':').next().unwrap_or(name);
    AccountId { subject: SubjectId(digest(subject)), name: digest(name) }
}

/// FNV-1a, spread so that its bits are as even as those of real digests.
fn digest(text: &str) -> u64 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = (hash ^ (hash >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// Where a quota's period starts come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Calendar {
    /// As written in the leg.
    Fixed,
    /// Periods of so many seconds from the epoch on, around the time of the call.
    Every(u64),
}

/// A leg under construction. Amounts are whole units of the account.
#[derive(Clone, Debug)]
pub struct L {
    leg: Leg,
    calendar: Calendar,
}

/// A rolling minute of 61 buckets of one second, soft.
pub fn rate(name: &str, measure: Measure, ceiling: u64) -> L {
    let shape = Shape::Rate { buckets: 61, width: S, weights: Weights::Whole };
    L::new(name, measure, shape, Periods::None, ceiling, false)
}

/// Requests per minute, soft.
pub fn rpm(name: &str, ceiling: u64) -> L {
    rate(name, Measure::Requests, ceiling)
}

/// llm_tokens per minute, soft; `demand` of them are asked for.
pub fn tpm(name: &str, ceiling: u64, demand: u64) -> L {
    rate(name, Measure::Tokens, ceiling).demand(demand)
}

/// llm_tokens per minute, planned.
pub fn forecast(name: &str, ceiling: u64) -> L {
    let shape = Shape::Forecast { window: 60, strict: false };
    L::new(name, Measure::Tokens, shape, Periods::None, ceiling, false).demand(0)
}

impl L {
    /// A forecast account whose oldest second counts whole.
    pub fn strict(mut self) -> Self {
        self.leg.shape = Shape::Forecast { window: 60, strict: true };
        self
    }
}

/// A daily quota, hard: the worst case is held, an expiry charges.
pub fn daily(name: &str, measure: Measure, ceiling: u64, demand: u64) -> L {
    let mut leg = L::new(name, measure, Shape::Quota, Periods::None, ceiling, true).demand(demand);
    leg.calendar = Calendar::Every(D / S);
    leg
}

/// A budget that never renews, hard.
pub fn lifetime(name: &str, ceiling: u64, demand: u64) -> L {
    L::new(name, Measure::Cost, Shape::Quota, Periods::Lifetime, ceiling, true).demand(demand)
}

/// Calls in flight, soft.
pub fn slots(name: &str, ceiling: u64) -> L {
    L::new(name, Measure::Concurrency, Shape::Concurrency, Periods::None, ceiling, false)
}

impl L {
    fn new(name: &str, measure: Measure, shape: Shape, periods: Periods, ceiling: u64, hard: bool) -> Self {
        let limit = Limit {
            id: LimitId(1),
            ceiling,
            hard,
            shadow: false,
            count_denied: false,
            hold: if hard { Hold::Worst } else { Hold::Expected },
            on_expiry: if hard { OnExpiry::Charge } else { OnExpiry::Release },
        };
        let leg = Leg {
            account: account(name),
            measure,
            shape,
            periods,
            base: 1000,
            per_output: 0,
            cap: 0,
            worst: 1,
            estimator: Estimator::Capped,
            refund_failed: false,
            limits: vec![limit],
        };
        Self { leg, calendar: Calendar::Fixed }
    }

    /// Asks for exactly so much.
    pub fn demand(mut self, units: u64) -> Self {
        self.leg.base = units * 1000;
        self.leg.worst = units;
        self
    }

    /// Asks for one unit per llm_token of output besides, up to `cap`.
    pub fn output(mut self, cap: u64) -> Self {
        self.leg.per_output = 1000;
        self.leg.cap = cap;
        self.leg.worst = self.leg.base / 1000 + cap;
        self
    }

    /// Expects so much output.
    pub fn expecting(mut self, output: u64) -> Self {
        self.leg.estimator = Estimator::Constant { output };
        self
    }

    /// Learns what to expect under a name; `first` before the first sample.
    pub fn learning(mut self, own: &str, first: u64) -> Self {
        let (own, prior) = (EstimatorId(digest(own)), EstimatorId(digest("prior")));
        self.leg.estimator = Estimator::Learned { kind: EstimatorKind::Ema, own, prior, first };
        self
    }

    /// Learns in a way of its own.
    pub fn learns(mut self, kind: EstimatorKind, own: &str, first: u64) -> Self {
        let prior = EstimatorId(digest("prior") ^ digest(own));
        self.leg.estimator = Estimator::Learned { kind, own: EstimatorId(digest(own)), prior, first };
        self
    }

    pub fn worst(mut self, units: u64) -> Self {
        self.leg.worst = units;
        self
    }

    /// The last limit is hard.
    pub fn hard(self) -> Self {
        self.last(|limit| limit.hard = true)
    }

    /// The last limit asks for the worst case.
    pub fn holds_worst(self) -> Self {
        self.last(|limit| limit.hold = Hold::Worst)
    }

    /// The last limit asks for the expected demand.
    pub fn holds_expected(self) -> Self {
        self.last(|limit| limit.hold = Hold::Expected)
    }

    pub fn charges(self) -> Self {
        self.last(|limit| limit.on_expiry = OnExpiry::Charge)
    }

    pub fn releases(self) -> Self {
        self.last(|limit| limit.on_expiry = OnExpiry::Release)
    }

    pub fn shadow(self) -> Self {
        self.last(|limit| limit.shadow = true)
    }

    pub fn counts_denied(self) -> Self {
        self.last(|limit| limit.count_denied = true)
    }

    pub fn id(self, id: u32) -> Self {
        self.last(|limit| limit.id = LimitId(id))
    }

    /// A further limit over the same account, like the last but for its ceiling.
    pub fn also(mut self, ceiling: u64) -> Self {
        if let Some(limit) = self.leg.limits.last().copied() {
            self.leg.limits.push(Limit { ceiling, ..limit });
        }
        self
    }

    pub fn refunds_failed(mut self) -> Self {
        self.leg.refund_failed = true;
        self
    }

    pub fn window(mut self, buckets: u8, width: Micros) -> Self {
        self.leg.shape = Shape::Rate { buckets, width, weights: Weights::Whole };
        self
    }

    pub fn weights(mut self, weights: Weights) -> Self {
        if let Shape::Rate { buckets, width, .. } = self.leg.shape {
            self.leg.shape = Shape::Rate { buckets, width, weights };
        }
        self
    }

    /// These period starts, in seconds from the start of the table.
    pub fn periods(mut self, starts: [i64; 4]) -> Self {
        self.calendar = Calendar::Fixed;
        self.leg.periods = Periods::Calendar(starts.map(|start| (START / S).saturating_add_signed(start)));
        self
    }

    /// Periods of so long instead of a day.
    pub fn every(mut self, period: Micros) -> Self {
        self.calendar = Calendar::Every(period / S);
        self
    }

    fn last(mut self, change: impl FnOnce(&mut Limit)) -> Self {
        if let Some(limit) = self.leg.limits.last_mut() {
            change(limit);
        }
        self
    }

    /// The leg as a caller would send it at `now`.
    pub fn at(&self, now: Micros) -> Leg {
        let mut leg = self.leg.clone();
        if let Calendar::Every(seconds) = self.calendar {
            let current = now / S / seconds * seconds;
            leg.periods = Periods::Calendar([
                current.saturating_sub(seconds),
                current,
                current + seconds,
                current + 2 * seconds,
            ]);
        }
        leg
    }
}

/// A reserve under construction.
#[derive(Clone, Debug)]
pub struct R {
    pub id: u128,
    pub attempt: u16,
    pub life: Micros,
    pub legs: Vec<L>,
    pub context: Vec<u8>,
    pub profile: Profile,
}

/// A call with its legs; the first attempt, with the usual life at the door.
pub fn call<const N: usize>(id: u128, legs: [L; N]) -> R {
    R {
        id,
        attempt: 1,
        life: 15 * S,
        legs: legs.into(),
        context: b"context".to_vec(),
        profile: Profile::default(),
    }
}

impl R {
    pub fn attempt(mut self, attempt: u16) -> Self {
        self.attempt = attempt;
        self
    }

    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    pub fn life(mut self, life: Micros) -> Self {
        self.life = life;
        self
    }

    /// The call as a caller would send it at `now`.
    pub fn at(&self, now: Micros) -> ReserveCall {
        let reserve = Reserve {
            id: ReservationId(self.id),
            attempt: self.attempt,
            life: self.life,
            profile: self.profile,
            legs: self.legs.iter().map(|leg| leg.at(now)).collect(),
            context: self.context.clone(),
        };
        ReserveCall { shard: SHARD, reserve, class: 0, waiting: false }
    }
}
