//! The drift check on a real book: every account, whatever else goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tollbook_engine::ledger::ReleaseWhy;
use tollbook_engine::{Engine, ExpireCall, ReleaseCall, Repair, Verdict};
use tollbook_engine_suite::legs::{L, R, S, SHARD, START, account, call, tpm};
use tollbook_engine_suite::{Harness, wait};
use tollbook_jobs::{Drift, DriftFound};
use tollbook_telemetry::Metrics;

use crate::lost::{World, open};

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

/// Of one subject more is live than one script is told of: it is said so, and the others are checked.
#[test]
fn l10_a_subject_with_more_calls_than_a_script_takes_is_told() {
    let harness = crate::harness::redis(START);
    for call in 0..600_u128 {
        let few = format!("u{}:tpm", call % 40);
        let legs = [tpm("t:tpm", 100_000, 10), tpm(&few, 1_000, 10), tpm(&format!("{few} two"), 1_000, 10)];
        reserve(&*harness, call, legs);
    }
    assert_eq!(check(&*harness), DriftFound { differences: 0, unconfirmed: 1 });
    assert!(harness.corrupt_held(account("t:tpm"), 7));
    assert!(harness.corrupt_held(account("u3:tpm"), 7));
    assert_eq!(check(&*harness), DriftFound { differences: 1, unconfirmed: 1 });
    // Nor is it repaired by a sum that nobody knows.
    let version =
        wait(harness.engine().balances(SHARD, &[account("t:tpm")])).unwrap().value[0].unwrap().version;
    let repair = Repair { shard: SHARD, account: account("t:tpm"), period: 0, version };
    assert!(!wait(harness.engine().repair(&repair)).unwrap().value);
    harness.advance(16 * S);
    while let Some(expired) = due(&*harness) {
        wait(harness.engine().expire(&expired)).unwrap();
    }
    // What is wrong is seen once few enough are live.
    assert_eq!(check(&*harness), DriftFound { differences: 2, unconfirmed: 0 });
}

fn due(harness: &dyn Harness) -> Option<Vec<ExpireCall>> {
    let due = wait(harness.engine().due(SHARD, 100)).unwrap().value;
    let calls: Vec<_> =
        due.into_iter().map(|due| ExpireCall { claim: due.claim, subjects: due.subjects }).collect();
    (!calls.is_empty()).then_some(calls)
}

/// A reservation that is gone altogether is a difference.
#[test]
fn l10_a_reservation_whose_key_is_gone_is_found() {
    let world = World::start();
    let engine = world.gateway("tb");
    open(&engine, 1, false);
    let ask = |id| call(id, [tpm("k:tpm", 1_000, 10)]).at(world.now());
    for id in 1..4 {
        assert!(matches!(crate::lost::reserve(&engine, &ask(id)), Ok(Verdict::Admit(_))));
    }
    world.server.ask(&["DEL", &format!("tb:{{{}}}:r:{:032x}:1", SHARD.0, 2)]);
    let found = wait(engine.drift(SHARD, 0, 100)).unwrap().value;
    assert_eq!((found.differences.len(), found.unconfirmed), (1, 0));
    assert_eq!((found.differences[0].2, found.differences[0].3), (30, 20));
}

/// Calls come and go all the time: a check finds no difference in them, and compares most of it.
#[test]
fn l10_a_check_among_calls_finds_nothing() {
    let harness = crate::harness::redis(START);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3_u128 {
            let (engine, stop, now) = (harness.shared(), &stop, harness.now());
            scope.spawn(move || {
                for call in 0.. {
                    let name = format!("k{}:tpm", call % 50);
                    let legs = [tpm("t:tpm", 100_000, 10), tpm(&name, 100_000, 10)];
                    let asked: R = tollbook_engine_suite::legs::call(1_000_000 * thread + call, legs);
                    let answer = wait(engine.reserve(&asked.at(now))).unwrap().value;
                    let Verdict::Admit(receipt) = answer else { panic!("{answer:?}") };
                    if call % 4 != 0 {
                        let accounts = vec![account("t:tpm"), account(&name)];
                        let why = ReleaseWhy::NeverSent;
                        let release = ReleaseCall { claim: receipt.claim(), accounts, why, entry: None };
                        wait(engine.release(&release)).unwrap();
                    }
                    if stop.load(Ordering::Relaxed) || call == 600 {
                        break;
                    }
                }
            });
        }
        let found: Vec<DriftFound> = (0..20).map(|_| check(&*harness)).collect();
        stop.store(true, Ordering::Relaxed);
        assert!(found.iter().all(|found| found.differences == 0), "{found:?}");
    });
    assert_eq!(check(&*harness), DriftFound::default());
}
