//! The quick way: how much of the differential run takes it, so that it is proven, and what it leaves to the long one.

use tollbook_engine::Verdict;
use tollbook_engine::ledger::Measure;
use tollbook_engine_redis::{Counts, RESERVES, SETTLES};
use tollbook_engine_suite::legs::{call, daily, tpm};
use tollbook_engine_suite::lockstep;

use crate::lost::{World, open, reserve};

#[test]
fn the_differential_run_takes_the_quick_way() {
    lockstep::usual_commands_answer_as_the_model_does(crate::harness::redis);
    let share = |counts: &Counts| {
        let (quick, all) = counts.read();
        assert!(all >= 100, "{counts:?}");
        quick * 100 / all
    };
    let (reserves, settles) = (share(&RESERVES), share(&SETTLES));
    assert!(reserves >= 70 && settles >= 70, "{RESERVES:?}: {reserves} %, {SETTLES:?}: {settles} %");
}

/// What the quick way has read is not read a second time where it leaves: a denial is decided in one more step of Lua.
#[test]
fn a_denial_reads_once() {
    let world = World::start();
    let engine = world.gateway("tb");
    open(&engine, 1, false);
    let ask = |id| {
        let legs = [tpm("k:tpm", 100, 60).learning("k:m", 40), daily("k:day", Measure::Tokens, 1_000, 60)];
        call(id, legs).at(world.now())
    };
    assert!(matches!(reserve(&engine, &ask(1)), Ok(Verdict::Admit(_))));
    world.server.ask(&["CONFIG", "RESETSTAT"]);
    assert!(matches!(reserve(&engine, &ask(2)), Ok(Verdict::Deny { .. })));
    let stats = world.server.ask(&["INFO", "commandstats"]).text();
    let calls = |name: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
    };
    assert_eq!((calls("hmget"), calls("hget"), calls("evalsha")), (1, 0, 1), "{stats}");
}
