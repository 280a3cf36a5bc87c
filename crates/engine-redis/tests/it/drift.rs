//! The drift check on a real book: every account, whatever else goes on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollbook_engine::ledger::{ReleaseWhy, Reserve};
use tollbook_engine::{Engine, ExpireCall, ReleaseCall, Repair, ReserveCall, Verdict};
use tollbook_engine_redis::{Link, Options, RedisEngine};
use tollbook_engine_suite::legs::{L, R, S, SHARD, START, account, call, tpm};
use tollbook_engine_suite::{Harness, wait};
use tollbook_jobs::{Drift, DriftFound};
use tollbook_redis_world::{Plan, wait_for};
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

/// Of one subject more is live than one script is told of: it is looked at in steps, as the others are, and repaired.
#[test]
fn l10_a_subject_with_more_calls_than_a_script_takes_is_compared() {
    let harness = crate::harness::redis(START);
    for call in 0..1_300_u128 {
        let few = format!("u{}:tpm", call % 40);
        let legs = [
            tpm("t:tpm", 100_000, 10),
            tpm("t:other", 100_000, 3),
            tpm(&few, 1_000, 10),
            tpm(&format!("{few} two"), 1_000, 10),
        ];
        reserve(&*harness, call, legs);
    }
    assert_eq!(check(&*harness), DriftFound::default());
    assert!(harness.corrupt_held(account("t:tpm"), 7));
    assert!(harness.corrupt_held(account("u3:tpm"), 7));
    assert_eq!(check(&*harness), DriftFound { differences: 2, unconfirmed: 0 });
    let balance = |name| wait(harness.engine().balances(SHARD, &[account(name)])).unwrap().value[0].unwrap();
    let repair = |version| {
        let repair = Repair { shard: SHARD, account: account("t:tpm"), period: 0, version };
        wait(harness.engine().repair(&repair)).unwrap().value
    };
    // Not by a sum of another time.
    assert!(!repair(balance("t:tpm").version + 1));
    assert!(repair(balance("t:tpm").version));
    assert_eq!(balance("t:tpm").standing.held, 13_000);
    assert_eq!(check(&*harness), DriftFound { differences: 1, unconfirmed: 0 });
    harness.advance(16 * S);
    while let Some(expired) = due(&*harness) {
        wait(harness.engine().expire(&expired)).unwrap();
    }
    assert_eq!(check(&*harness), DriftFound { differences: 1, unconfirmed: 0 });
}

/// Calls come and go on an account that very many hold something of: what is wrong is found all the same, and nothing else.
#[test]
fn l10_a_busy_account_with_many_calls_is_compared() {
    let server = Plan::redis().start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let inside = runtime.enter();
    let options = Options { deadline: Duration::from_secs(10), ..Options::parse(&server.url()).unwrap() };
    let engine = RedisEngine::new(Link::open(&options).unwrap(), "tb");
    drop(inside);
    assert!(wait_for(Duration::from_secs(10), || wait(engine.due(SHARD, 1)).ok()).is_some());
    let busy = || [tpm("t:tpm", 1_000_000, 10), tpm("t:quiet", 1_000_000, 1)];
    let ask = |id: u128| {
        let asked: R = call(id, busy());
        let asked = ReserveCall { reserve: Reserve { life: 600 * S, ..asked.at(1).reserve }, ..asked.at(1) };
        let answer = wait(engine.reserve(&asked)).unwrap().value;
        let Verdict::Admit(receipt) = answer else { panic!("{answer:?}") };
        receipt
    };
    let mut kept: Vec<_> = (0..1_500).map(ask).collect();
    let (stop, turn) = (AtomicBool::new(false), Mutex::new(()));
    let look = || wait(engine.drift(SHARD, 0, 1_000)).unwrap().value;
    std::thread::scope(|scope| {
        let changes = scope.spawn(|| {
            let mut changes = 0_u64;
            for id in 1_500.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let _turn = turn.lock().unwrap();
                kept.push(ask(id));
                let ended = kept.remove(usize::try_from(id * 7 % 1_400).unwrap());
                let accounts = vec![account("t:tpm"), account("t:quiet")];
                let why = ReleaseWhy::NeverSent;
                let release = ReleaseCall { claim: ended.claim(), accounts, why, entry: None };
                wait(engine.release(&release)).unwrap();
                changes += 2;
            }
            changes
        });
        let (mut compared, looks) = (0, 12);
        for _ in 0..looks {
            let found = look();
            assert!(found.differences.is_empty(), "{:?}", found.differences);
            compared += u64::from(found.unconfirmed == 0);
        }
        assert!(compared >= looks / 2, "{compared} of {looks}");
        // 500 too much, in the midst of it: told with that amount, however held has changed since.
        let nobody = turn.lock().unwrap();
        let held = wait(engine.balances(SHARD, &[account("t:quiet")])).unwrap().value[0].unwrap();
        wait(engine.corrupt_held(SHARD, account("t:quiet"), held.standing.held + 500)).unwrap();
        drop(nobody);
        let found = (0..looks).map(|_| look()).find(|found| !found.differences.is_empty());
        let found = found.expect("it is found");
        let (wrong, _, held, sum, _) = found.differences[0];
        assert_eq!(wrong, account("t:quiet"));
        assert_eq!(held - sum, 500);
        stop.store(true, Ordering::Relaxed);
        let changes = changes.join().unwrap();
        println!("{changes} changes, {compared} of {looks} looks compared all");
        assert!(changes > looks, "nothing went on");
    });
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
