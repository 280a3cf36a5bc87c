//! The drift check on a real book: every account, whatever else goes on.

use std::sync::Arc;

use tollbook_engine::Verdict;
use tollbook_engine_suite::legs::{L, R, START, account, call, tpm};
use tollbook_engine_suite::{Harness, wait};
use tollbook_jobs::{Drift, DriftFound};
use tollbook_telemetry::Metrics;

fn check(harness: &dyn Harness) -> DriftFound {
    let drift = Drift::new(harness.shared(), Arc::new(Metrics::new()));
    wait(drift.once()).unwrap()
}

fn reserve<const N: usize>(harness: &dyn Harness, id: u128, legs: [L; N]) {
    let call: R = call(id, legs);
    let answer = wait(harness.engine().reserve(&call.at(harness.now()))).unwrap().value;
    assert!(matches!(answer, Verdict::Admit(_)), "{answer:?}");
}

#[test]
fn l10_every_account_of_a_large_shard_is_looked_at() {
    let harness = crate::harness::redis(START);
    let name = |at: usize| format!("k{at}:tpm");
    for call in 0..200_usize {
        let legs = std::array::from_fn::<_, 16, _>(|leg| tpm(&name(16 * call + leg), 1_000, 10));
        reserve(&*harness, call as u128, legs);
    }
    assert_eq!(check(&*harness), DriftFound::default());
    for wrong in 0..8 {
        assert!(harness.corrupt_held(account(&name(400 * wrong + 7)), 500));
    }
    assert_eq!(check(&*harness).differences, 8);
}
