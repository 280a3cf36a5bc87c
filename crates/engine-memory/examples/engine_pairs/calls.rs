//! The calls that are measured: a thousand keys of fifty tenants, nine legs each.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tollbook_engine::ledger::{
    AccountId, Estimator, EstimatorId, Hold, Leg, Limit, LimitId, Measure, Micros, OnExpiry, Periods,
    ReservationId, Reserve, Shape, SubjectId, Weights,
};
use tollbook_engine::{Claim, ReserveCall, SettleCall, Shard};

pub(crate) const TENANTS: u64 = 50;
pub(crate) const KEYS: u64 = 1_000;
const DAY: u64 = 86_400;

/// The answer of a verb that is ready at once.
pub(crate) fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => unreachable!("mapped verbs answer at once"),
    }
}

/// Ends a call; the body of the entry is made anew, as a gateway does.
pub(crate) fn settle(reserve: &ReserveCall) -> SettleCall {
    SettleCall {
        claim: Claim { shard: reserve.shard, id: reserve.reserve.id, attempt: 0 },
        accounts: Vec::new(),
        actual: vec![1, 800, 800, 1, 800, 800, 1, 800, 800],
        landed: 200,
        learn: Some(200),
        entry: vec![b'x'; 300],
        age: 0,
    }
}

/// One call of a key: tenant, project, key.
pub(crate) fn call(key: u64, now: Micros) -> ReserveCall {
    let today = now / 1_000_000 / DAY * DAY;
    let tenant = key % TENANTS;
    let levels = [tenant, 1_000 + key % (TENANTS * 4), 10_000 + key];
    let legs = levels.into_iter().flat_map(|subject| {
        let leg = |name: u64, measure, shape, periods| {
            let account = AccountId { subject: SubjectId(mix(subject)), name: mix(name) };
            leg(account, measure, shape, periods)
        };
        let minute = Shape::Rate { buckets: 61, width: 1_000_000, weights: Weights::Whole };
        let days = Periods::Calendar([today - DAY, today, today + DAY, today + 2 * DAY]);
        [
            leg(1, Measure::Requests, minute, Periods::None),
            leg(2, Measure::Tokens, minute, Periods::None),
            leg(3, Measure::Tokens, Shape::Quota, days),
        ]
    });
    let reserve = Reserve {
        id: ReservationId(0),
        attempt: 0,
        life: 15_000_000,
        profile: tollbook_ledger::Profile::default(),
        legs: legs.collect(),
        context: vec![b'c'; 120],
    };
    let shard = Shard(u8::try_from(tenant).unwrap());
    ReserveCall { shard, reserve, class: 0, waiting: false }
}

fn leg(account: AccountId, measure: Measure, shape: Shape, periods: Periods) -> Leg {
    let limit = Limit {
        id: LimitId(1),
        ceiling: 1 << 50,
        hard: shape == Shape::Quota,
        shadow: false,
        count_denied: false,
        hold: Hold::Expected,
        on_expiry: OnExpiry::Release,
    };
    let requests = measure == Measure::Requests;
    Leg {
        account,
        measure,
        shape,
        periods,
        base: if requests { 1_000 } else { 600_000 },
        per_output: if requests { 0 } else { 1_000 },
        cap: 4_096,
        worst: if requests { 1 } else { 4_696 },
        estimator: Estimator::Learned {
            kind: tollbook_ledger::EstimatorKind::Ema,
            own: EstimatorId(account.subject.0),
            prior: EstimatorId(1),
            first: 256,
        },
        refund_failed: false,
        limits: vec![limit],
    }
}

/// Digests are uniform; so are these.
fn mix(value: u64) -> u64 {
    let mixed = (value ^ 0x9e37_79b9).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 31)
}
