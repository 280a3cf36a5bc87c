//! Random commands over a small world: few accounts of every shape, few ids, ceilings that are soon reached.

use proptest::prelude::*;
use tollbook_ledger::{
    AccountId, Attempt, Estimator, EstimatorId, EstimatorKind, Hold, Leg, Limit, LimitId, Measure, Micros,
    OnExpiry, Periods, Profile, Progress, ReservationId, Reserve, SECOND, Shape, SubjectId, Weights,
};

use crate::desk::T0;

pub(crate) const START: Micros = T0 * SECOND + 17 * SECOND;

/// So many cases, or what `PROPTEST_CASES` says.
pub(crate) fn cases(few: u32) -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = few;
    }
    config.failure_persistence = None;
    config
}

/// The accounts of the world.
pub(crate) const ACCOUNTS: [(Measure, Shape); 12] = [
    (Measure::Requests, Shape::Rate { buckets: 4, width: 2 * SECOND, weights: Weights::Whole }),
    (Measure::Tokens, Shape::Rate { buckets: 3, width: 5 * SECOND, weights: Weights::Whole }),
    (Measure::Tokens, Shape::Rate { buckets: 4, width: 3 * SECOND, weights: Weights::Oldest }),
    (Measure::OutputTokens, Shape::Rate { buckets: 4, width: 3 * SECOND, weights: Weights::Decay }),
    (Measure::Cost, Shape::Quota),
    (Measure::Tokens, Shape::Quota),
    (Measure::Concurrency, Shape::Concurrency),
    (Measure::Requests, Shape::Quota),
    (Measure::Requests, Shape::Rate { buckets: 8, width: SECOND, weights: Weights::Oldest }),
    (Measure::Tokens, Shape::Forecast { window: 5, strict: false }),
    (Measure::OutputTokens, Shape::Forecast { window: 9, strict: true }),
    (Measure::InputTokens, Shape::Forecast { window: 3, strict: true }),
];

/// The forecast accounts among [`ACCOUNTS`].
pub(crate) const FORECASTS: [usize; 3] = [9, 10, 11];

/// Index of the lifetime quota among [`ACCOUNTS`].
pub(crate) const LIFETIME: usize = 5;

pub(crate) fn account(index: usize) -> AccountId {
    let index = u64::try_from(index).unwrap();
    AccountId { subject: SubjectId(index / 3), name: index.wrapping_mul(0x9e37_79b9_7f4a_7c15) }
}

/// One leg, before the time is known.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    pub(crate) account: usize,
    pub(crate) base: u64,
    pub(crate) output: u64,
    pub(crate) cap: u64,
    pub(crate) worst: u64,
    pub(crate) learns: bool,
    pub(crate) refund_failed: bool,
    pub(crate) limits: Vec<Limit>,
}

impl Demand {
    pub(crate) fn leg(&self, now: Micros) -> Leg {
        let (measure, shape) = ACCOUNTS[self.account];
        let counts_calls = matches!(measure, Measure::Requests | Measure::Concurrency);
        let start = now / SECOND / 60 * 60;
        let periods = match shape {
            Shape::Quota if self.account == LIFETIME => Periods::Lifetime,
            Shape::Quota => Periods::Calendar([start - 60, start, start + 60, start + 120]),
            _ => Periods::None,
        };
        // 0: no price at all, free if there is no worst case either; 1: the output alone has one.
        let (base, per_output) = match self.base {
            0 => (0, 0),
            1 => (0, 900),
            base => (base * 700, 900),
        };
        let (number, kind) = [
            (0, EstimatorKind::Ema),
            (1, EstimatorKind::Forecast),
            (2, EstimatorKind::P95),
            (3, EstimatorKind::RecentMean),
        ][usize::try_from(self.worst % 4).unwrap()];
        let (own, prior) = (EstimatorId(self.base % 3 + 10 * number), EstimatorId(7 + 10 * number));
        let forecasts = matches!(shape, Shape::Forecast { .. });
        Leg {
            account: account(self.account),
            measure,
            shape,
            periods,
            base: if counts_calls { 1_000 } else { base },
            per_output: if counts_calls { 0 } else { per_output },
            cap: self.cap,
            worst: if counts_calls { 1 } else { self.worst },
            estimator: if self.learns {
                Estimator::Learned { kind, own, prior, first: self.output }
            } else {
                Estimator::Constant { output: self.output }
            },
            refund_failed: self.refund_failed,
            // A plan is of what is expected.
            limits: (self.limits.iter())
                .map(|limit| Limit { hold: if forecasts { Hold::Expected } else { limit.hold }, ..*limit })
                .collect(),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Reserve { id: u128, attempt: Attempt, life: u64, demands: Vec<Demand> },
    Rebook { id: u128, attempt: Attempt, used: Option<Vec<u64>>, demands: Vec<Demand> },
    Renew { id: u128, attempt: Attempt, life: u64, sent: bool, output: Option<u64>, outgrown: Option<u64> },
    Settle { id: u128, attempt: Attempt, actual: Vec<u64>, learn: Option<u64> },
    Release { id: u128, attempt: Attempt, never: bool },
    Expire { id: u128, attempt: Attempt },
    ExpireDue,
    Progress { gateway: u64, account: usize, seq: u64, back: u64, deltas: Vec<i64> },
    Adjust { id: u128, account: usize, back: u64, delta: i64, open: bool },
}

pub(crate) fn reserve(now: Micros, id: u128, attempt: Attempt, life: u64, demands: &[Demand]) -> Reserve {
    Reserve {
        id: ReservationId(id),
        attempt,
        life: life * SECOND,
        profile: profile(id),
        legs: demands.iter().map(|demand| demand.leg(now)).collect(),
        context: format!("{id}/{attempt}").into_bytes(),
    }
}

/// Calls of one id stream alike: some at once and fast, some late and slowly.
pub(crate) fn profile(id: u128) -> Profile {
    let id = u64::try_from(id).unwrap();
    Profile { ttft: id % 4 * 700_000, pace: 1 + id % 5 * 90_000 }
}

pub(crate) fn progress(now: Micros, step: (u64, usize, u64, u64), deltas: &[i64]) -> Progress {
    let (gateway, index, seq, back) = step;
    let base_second = (now / SECOND).saturating_sub(back);
    Progress { gateway, account: account(index), seq, base_second, deltas: deltas.to_vec() }
}

fn limit(flags: bool) -> impl Strategy<Value = Limit> {
    let ceilings = prop_oneof![Just(0_u64), 1_u64..4, 20_u64..200];
    (ceilings, any::<bool>(), 0_u8..16, any::<bool>(), any::<bool>()).prop_map(
        move |(ceiling, hard, rare, worst, charge)| Limit {
            id: LimitId(u32::try_from(ceiling).unwrap()),
            ceiling,
            hard,
            shadow: flags && rare % 5 == 0,
            count_denied: flags && rare % 7 == 1,
            hold: if worst && rare % 2 == 0 { Hold::Worst } else { Hold::Expected },
            on_expiry: if charge { OnExpiry::Charge } else { OnExpiry::Release },
        },
    )
}

fn demand(flags: bool) -> impl Strategy<Value = Demand> {
    let limits = prop::collection::vec(limit(flags), 1..4);
    let base = || prop_oneof![1 => Just(0_u64), 1 => Just(1_u64), 8 => 2_u64..60];
    let worst = || prop_oneof![1 => Just(0_u64), 2 => 0_u64..90];
    (0..ACCOUNTS.len(), base(), 0_u64..60, 0_u64..90, worst(), any::<bool>(), any::<bool>(), limits).prop_map(
        |(account, base, output, cap, worst, learns, refund_failed, limits)| Demand {
            account,
            base,
            output,
            cap,
            worst,
            learns,
            refund_failed,
            limits,
        },
    )
}

/// Legs of different accounts. Without `flags`: no shadow and no counted denial.
pub(crate) fn demands(flags: bool) -> impl Strategy<Value = Vec<Demand>> {
    prop::collection::vec(demand(flags), 1..6).prop_map(|mut demands| {
        let mut seen = Vec::new();
        demands.retain(|demand| {
            !seen.contains(&demand.account) && {
                seen.push(demand.account);
                true
            }
        });
        demands
    })
}

/// A pause in microseconds and what happens then.
pub(crate) fn step() -> impl Strategy<Value = (Micros, Step)> {
    let (id, attempt) = (1_u128..6, 0_u16..2);
    let amounts = || prop::collection::vec(0_u64..80, 6);
    let what = prop_oneof![
        8 => (id.clone(), attempt.clone(), 1_u64..30, demands(true))
            .prop_map(|(id, attempt, life, demands)| Step::Reserve { id, attempt, life, demands }),
        3 => (id.clone(), 1_u16..3, prop::option::of(amounts()), demands(true))
            .prop_map(|(id, attempt, used, demands)| Step::Rebook { id, attempt, used, demands }),
        3 => (id.clone(), attempt.clone(), 0_u64..40, any::<bool>(), prop::option::of(0_u64..120), prop::option::of(0_u64..200))
            .prop_map(|(id, attempt, life, sent, output, outgrown)| Step::Renew { id, attempt, life, sent, output, outgrown }),
        3 => (1_u64..3, prop::sample::select(&FORECASTS[..]), 1_u64..40, 0_u64..12, prop::collection::vec(-30_i64..30, 0..20))
            .prop_map(|(gateway, account, seq, back, deltas)| Step::Progress { gateway, account, seq, back, deltas }),
        5 => (id.clone(), attempt.clone(), amounts(), prop::option::of(0_u64..70))
            .prop_map(|(id, attempt, actual, learn)| Step::Settle { id, attempt, actual, learn }),
        2 => (id.clone(), attempt.clone(), any::<bool>())
            .prop_map(|(id, attempt, never)| Step::Release { id, attempt, never }),
        1 => (id.clone(), attempt).prop_map(|(id, attempt)| Step::Expire { id, attempt }),
        2 => Just(Step::ExpireDue),
        1 => (id, prop_oneof![Just(4_usize), Just(5), Just(7)], 0_u64..3, -60_i64..60, any::<bool>())
            .prop_map(|(id, account, back, delta, open)| Step::Adjust { id, account, back, delta, open }),
    ];
    (pause(), what)
}

pub(crate) fn pause() -> impl Strategy<Value = Micros> {
    prop_oneof![
        4 => Just(0_u64),
        4 => 1_u64..SECOND,
        4 => (1_u64..8).prop_map(|n| n * SECOND),
        2 => 8 * SECOND..40 * SECOND,
        1 => 100 * SECOND..400 * SECOND,
    ]
}
