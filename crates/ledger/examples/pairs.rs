//! Prints how many reserve and settle pairs one core books per second: three levels, each with RPM and TPM windows of
//! 61 × 1 s and a daily quota of llm_tokens.
//!
//! `cargo run --release -p tollbook-ledger --example pairs [seconds]`

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a measuring program")]

use std::time::{Duration, Instant};

use tollbook_ledger::{
    AccountId, Book, Estimator, EstimatorId, Event, Full, Hold, Leg, Limit, LimitId, Log, Measure, OnExpiry,
    Periods, ReservationId, Reserve, SECOND, Settle, Shape, SubjectId, Verdict, Weights,
};

const TENANTS: u64 = 10;
const KEYS: u64 = 100;
const DAY: u64 = 86_400;
const START: u64 = 20_000 * DAY * SECOND;

/// Counts events and drops them.
struct Counting(u64);

impl Log for Counting {
    fn append(&mut self, _event: &Event<'_>) -> Result<(), Full> {
        self.0 += 1;
        Ok(())
    }
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(3);
    let mut calls: Vec<Reserve> = (0..KEYS).map(call).collect();
    let actual = vec![1, 800, 800, 1, 800, 800, 1, 800, 800];
    let mut settle = Settle { id: ReservationId(0), attempt: 0, actual, landed: 0, learn: Some(200) };
    let (mut book, mut log) = (Book::new(), Counting(0));
    let (mut pairs, mut denied, mut now) = (0_u64, 0_u64, START);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(seconds) {
        for reserve in &mut calls {
            pairs += 1;
            now += 1;
            reserve.id = ReservationId(u128::from(pairs));
            settle.id = reserve.id;
            let verdict = book.reserve(now, reserve, &mut log);
            denied += u64::from(!matches!(verdict, Ok(Verdict::Admit(_))));
            denied += u64::from(book.settle(now, &settle, &mut log).is_err());
        }
    }
    let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1);
    let rate = u128::from(pairs) * 1_000_000_000 / u128::from(nanos);
    println!(
        "{rate} pairs/s, {} ns per pair, {pairs} pairs, {denied} refused, {} events",
        nanos / pairs,
        log.0
    );
}

/// One call of a key: tenant, project, key.
fn call(key: u64) -> Reserve {
    let levels = [key % TENANTS, 1_000 + key % (TENANTS * 4), 10_000 + key];
    let estimator = Estimator::Learned {
        kind: tollbook_ledger::EstimatorKind::Ema,
        own: EstimatorId(digest(key)),
        prior: EstimatorId(1),
        first: 500,
    };
    let legs = levels.iter().flat_map(|subject| {
        let rate = Shape::Rate { buckets: 61, width: SECOND, weights: Weights::Whole };
        let leg = |name: u64, measure, shape, periods| Leg {
            account: AccountId { subject: SubjectId(digest(*subject)), name: digest(name) },
            measure,
            shape,
            periods,
            base: if measure == Measure::Requests { 1_000 } else { 600_000 },
            per_output: if measure == Measure::Requests { 0 } else { 1_000 },
            cap: 4_096,
            worst: 5_000,
            estimator,
            refund_failed: false,
            limits: vec![Limit {
                id: LimitId(0),
                ceiling: 1 << 50,
                hard: shape == Shape::Quota,
                shadow: false,
                count_denied: false,
                hold: if shape == Shape::Quota { Hold::Worst } else { Hold::Expected },
                on_expiry: OnExpiry::Release,
            }],
        };
        let day = START / SECOND;
        let days = Periods::Calendar([day - DAY, day, day + DAY, day + 2 * DAY]);
        [
            leg(1, Measure::Requests, rate, Periods::None),
            leg(2, Measure::Tokens, rate, Periods::None),
            leg(3, Measure::Tokens, Shape::Quota, days),
        ]
    });
    Reserve {
        id: ReservationId(0),
        attempt: 0,
        life: 15 * SECOND,
        profile: tollbook_ledger::Profile::default(),
        legs: legs.collect(),
        context: Vec::new(),
    }
}

/// A uniform number, as digests are.
fn digest(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
}
