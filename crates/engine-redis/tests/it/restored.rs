//! What a rebuild writes: once, no more than was lost, and nothing that stops the next verb.

use tollbook_engine::ledger::{AMOUNT_MAX, End, Expired, Measure, Met};
use tollbook_engine::{
    Cursor, Engine, ExpireCall, PeriodSum, Receipt, Recovery, ReserveCall, RestoreCall, RestoredState,
    Verdict,
};
use tollbook_engine_redis::RedisEngine;
use tollbook_engine_suite::legs::{D, H, L, M, S, SHARD, START, account, call, daily, slots, tpm};
use tollbook_engine_suite::wait;

use crate::lost::{World, balance, begins, open, reserve, settle};

fn admitted<const N: usize>(
    world: &World,
    engine: &RedisEngine,
    id: u128,
    legs: [L; N],
) -> (ReserveCall, Receipt) {
    let asked = call(id, legs).life(10 * M).at(world.now());
    match reserve(engine, &asked) {
        Ok(Verdict::Admit(receipt)) => (asked, receipt),
        other => panic!("{other:?}"),
    }
}

fn restore(engine: &RedisEngine, (asked, receipt): &(ReserveCall, Receipt), state: RestoredState) {
    let call = RestoreCall { asked: asked.clone(), receipt: receipt.clone(), age: 0, state };
    wait(engine.restore(&call)).unwrap();
}

/// An end whose amounts are in the sums.
fn in_sums() -> RestoredState {
    RestoredState::Ended { how: End::Settled, posted: None, landed: 0, age: 0, entry: None }
}

/// Posted, held and live.
fn figures(engine: &RedisEngine, name: &str) -> (i64, i64, u64) {
    let found = balance(engine, account(name)).unwrap();
    (found.standing.posted, found.standing.held, found.live_holds)
}

#[test]
fn a_voucher_that_comes_after_its_end_is_forgotten_holds_nothing() {
    let world = World::start();
    let engine = world.gateway("tb");
    open(&engine, 1, false);
    let call = admitted(&world, &engine, 1, [tpm("k:tpm", 100, 10), slots("k:slots", 5)]);
    assert_eq!(settle(&engine, &call.1, &[10, 0]), Met::Held);
    // No verb remembers it any more, its key is still there.
    world.advance(31 * M);
    for state in [RestoredState::Held { sent: true }, in_sums()] {
        restore(&engine, &call, state);
        assert_eq!(figures(&engine, "k:slots"), (0, 0, 0));
    }
}

#[test]
fn an_end_that_is_in_the_sums_only_frees_what_is_held() {
    let world = World::start();
    let engine = world.gateway("tb");
    open(&engine, 1, false);
    let legs = || {
        [
            tpm("k:tpm", 100, 10),
            daily("k:day", Measure::Tokens, 1_000, 100),
            daily("k:dayr", Measure::Requests, 1_000, 1),
        ]
    };
    let call = admitted(&world, &engine, 1, legs());
    assert_eq!((figures(&engine, "k:day"), figures(&engine, "k:dayr")), ((0, 100, 1), (1, 0, 1)));
    for _ in 0..2 {
        restore(&engine, &call, in_sums());
        assert_eq!((figures(&engine, "k:tpm"), figures(&engine, "k:day")), ((0, 0, 0), (0, 0, 0)));
        assert_eq!(figures(&engine, "k:dayr"), (1, 0, 0), "what was posted at the door stays");
    }
    assert!(matches!(reserve(&engine, &call.0), Ok(Verdict::Ended(End::Settled))));
    assert_eq!(wait(engine.due(SHARD, 10)).unwrap().value, []);
    // One that expired here has been charged, and stays so.
    let call = admitted(&world, &engine, 2, legs());
    restore(&engine, &call, RestoredState::Held { sent: true });
    world.advance(11 * M);
    let expire = [ExpireCall { claim: call.1.claim(), subjects: Vec::new() }];
    let expired = wait(engine.expire(&expire)).unwrap().value;
    assert!(matches!(expired[0], Expired::Expired { .. }), "{expired:?}");
    let before = ["k:day", "k:dayr"].map(|name| figures(&engine, name));
    restore(&engine, &call, in_sums());
    assert_eq!(["k:day", "k:dayr"].map(|name| figures(&engine, name)), before);
    assert!(wait(engine.journal_read(SHARD, Cursor(0), 100)).unwrap().value.len() <= 1);
}

#[test]
fn sums_of_a_period_that_is_long_over_are_written() {
    let world = World::start();
    let engine = world.gateway("tb");
    assert!(begins(&engine, 1, true));
    engine.expect(SHARD, 1);
    world.advance(12 * H);
    let sum = |days: u64, posted: i64| PeriodSum {
        account: account("k:day"),
        measure: Measure::Tokens,
        period: (START - days * D) / S,
        end: (START + D - days * D) / S,
        posted,
    };
    let sums = [sum(0, 70), sum(1, 60), sum(2, 50), sum(9, 40)];
    for _ in 0..2 {
        assert!(wait(engine.post(SHARD, 1, &sums)).unwrap().value);
    }
    // A call of a period that is over by now, too.
    let asked = call(1, [daily("k:day", Measure::Tokens, 1_000, 100)]).life(10 * M).at(world.now());
    assert!(wait(engine.open(SHARD, 1)).unwrap().value);
    assert!(matches!(reserve(&engine, &asked), Ok(Verdict::Admit(_))));
    assert_eq!(figures(&engine, "k:day"), (70, 100, 1));
}

#[test]
fn a_sum_beyond_every_amount_is_the_largest() {
    let world = World::start();
    let engine = world.gateway("tb");
    assert!(begins(&engine, 1, true));
    engine.expect(SHARD, 1);
    let sum = |name: &str, posted: i64| PeriodSum {
        account: account(name),
        measure: Measure::Cost,
        period: START / S,
        end: (START + D) / S,
        posted,
    };
    let sums = [sum("k:most", i64::MAX), sum("k:least", i64::MIN), sum("k:rest", AMOUNT_MAX.cast_signed())];
    assert!(wait(engine.post(SHARD, 1, &sums)).unwrap().value);
    assert!(wait(engine.open(SHARD, 1)).unwrap().value);
    let most = AMOUNT_MAX.cast_signed();
    for (name, posted) in [("k:most", most), ("k:least", -most), ("k:rest", most)] {
        assert_eq!(figures(&engine, name).0, posted, "{name}");
    }
}
