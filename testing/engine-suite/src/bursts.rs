//! Many threads at once: what is admitted is exactly what fits, and no sample ever shows more.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use tollbook_engine::ledger::{Measure, Profile};
use tollbook_engine::{Engine, Verdict};

use crate::harness::{Factory, wait};
use crate::legs::{L, R, S, SHARD, START, account, daily, rpm, slots, tpm};

const REPETITIONS: usize = 200;

/// `threads` threads reserve `each` times at the same instant, again and again on fresh accounts. Exactly `fit` are
/// admitted every time, and held + posted of the account never exceeds `ceiling`.
fn burst(
    factory: Factory,
    threads: usize,
    each: usize,
    fit: usize,
    ceiling: i64,
    leg: impl Fn(&str) -> L + Sync,
) {
    let harness = factory(START);
    let engine = harness.shared();
    let engine: &dyn Engine = &*engine;
    let now = harness.now();
    let name = |repetition: usize| format!("k{repetition}:burst");
    let admitted: Vec<AtomicUsize> = (0..REPETITIONS).map(|_| AtomicUsize::new(0)).collect();
    let (start, current, done) = (Barrier::new(threads), AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut samples = 0_usize;
            while !done.load(Ordering::Acquire) {
                let account = account(&name(current.load(Ordering::Acquire)));
                let balances = wait(engine.balances(SHARD, &[account])).expect("balances answer").value;
                if let Some(balance) = balances[0] {
                    let total = balance.standing.posted + balance.standing.held;
                    assert!(total <= ceiling, "{total} of {ceiling}");
                }
                samples += 1;
                thread::yield_now();
            }
            samples
        });
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (start, current, admitted, leg) = (&start, &current, &admitted, &leg);
                scope.spawn(move || {
                    for (repetition, admitted) in admitted.iter().enumerate() {
                        let call = |n: usize| {
                            let id = (repetition * threads + thread) * each + n;
                            let legs = vec![leg(&name(repetition))];
                            R {
                                id: id as u128,
                                attempt: 1,
                                life: 15 * S,
                                legs,
                                context: Vec::new(),
                                profile: Profile::default(),
                            }
                            .at(now)
                        };
                        let calls: Vec<_> = (0..each).map(call).collect();
                        current.store(repetition, Ordering::Release);
                        start.wait();
                        for call in &calls {
                            let verdict = wait(engine.reserve(call)).expect("reserve answers").value;
                            if matches!(verdict, Verdict::Admit(_)) {
                                admitted.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().expect("a worker ends");
        }
        done.store(true, Ordering::Release);
        assert!(sampler.join().expect("the sampler ends") > 0);
    });
    for (repetition, admitted) in admitted.iter().enumerate() {
        assert_eq!(admitted.load(Ordering::Relaxed), fit, "repetition {repetition}");
    }
}

pub fn l01_200_parallel_calls_against_room_for_10_requests(factory: Factory) {
    burst(factory, 200, 1, 10, 10, |name| rpm(name, 10));
}

pub fn l01_200_parallel_calls_against_room_for_10_slots(factory: Factory) {
    burst(factory, 40, 5, 10, 10, |name| slots(name, 10));
}

pub fn l01_200_parallel_calls_against_room_for_10_estimates(factory: Factory) {
    burst(factory, 20, 10, 10, 1000, |name| tpm(name, 1000, 100));
}

pub fn b001_a_burst_against_a_token_limit(factory: Factory) {
    burst(factory, 5, 1, 1, 100, |name| tpm(name, 100, 60));
}

pub fn b002_a_burst_of_first_calls_against_money(factory: Factory) {
    burst(factory, 4, 5, 1, 1_000_000, |name| daily(name, Measure::Cost, 1_000_000, 900_000));
}
