//! Faults of gateways, of the servers of their book and of the way between, with load running: afterwards nothing is held,
//! the journal is what the provider recorded, no hard limit was passed, and every call had a documented answer in time.
//!
//! A row for each fault: where the book is kept, what happens, for how long, how it is healed, and whom it may refuse.
//! How often each is repeated: `TOLLBOOK_FAULT_REPEATS`, each time with another seed.

mod check;
mod servers;
mod world;

use std::time::Duration;

use tollbook_e2e::load::pause_until;
use tollbook_e2e::random::{Random, seed};
use tollbook_redis_world::Mode;

use servers::Place;
use world::{Fault, World, play};

const REPEATS_VARIABLE: &str = "TOLLBOOK_FAULT_REPEATS";
const ALL: &[&str] = &["*"];
/// Between two strokes of a fault that is many.
const STROKE: Duration = Duration::from_millis(150);
const STROKES: usize = 8;

/// Loses nothing, refuses nobody, lasts no time; rows say what differs.
const CALM: Fault = Fault {
    name: "",
    place: Place::Durable,
    inject: |_| {},
    lasts: Duration::ZERO,
    heal: |_| {},
    refuses: &[],
    short_lives: false,
    forgets_rates: false,
};

fn test(fault: Fault) {
    let repeats = std::env::var(REPEATS_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    for repeat in 0..repeats {
        let mut random = Random::new(seed(11).wrapping_add(repeat));
        let story = play(fault, &mut random);
        let figures = story.judge();
        story.print(&figures);
        assert!(figures.served > 100, "there was no load: {figures:?}");
    }
}

/// Does it again and again, under load.
fn strokes(mut strike: impl FnMut()) {
    for _ in 0..STROKES {
        strike();
        pause_until(std::time::Instant::now() + STROKE);
    }
}

fn told(server: &tollbook_redis_world::Server, words: &[&str]) {
    let reply = server.ask(words);
    assert!(!reply.is_error(), "{words:?}: {}", reply.text());
}

#[test]
fn a_gateway_is_killed() {
    test(Fault {
        name: "kill -9 of a gateway",
        inject: |world| world.gateway_is_killed(1),
        lasts: Duration::from_millis(500),
        heal: |world| world.gateway_starts_again(1),
        short_lives: true,
        ..CALM
    });
}

#[test]
fn a_gateway_stands_still() {
    test(Fault {
        name: "SIGSTOP of a gateway for 5 s",
        inject: |world| world.gateway_stands_still(1),
        lasts: Duration::from_secs(5),
        heal: |world| world.gateway_goes_on(1),
        ..CALM
    });
}

#[test]
fn the_server_is_killed() {
    test(Fault {
        name: "kill -9 of the server, restart with its append-only file",
        inject: |world| world.servers.one_mut().kill(),
        lasts: Duration::from_secs(1),
        heal: |world| world.servers.one_mut().start_again(),
        refuses: ALL,
        ..CALM
    });
}

#[test]
fn b196_the_server_stands_still() {
    test(Fault {
        name: "SIGSTOP of the server for 5 s",
        inject: |world| world.servers.one().freeze(),
        lasts: Duration::from_secs(5),
        heal: |world| world.servers.one().thaw(),
        refuses: ALL,
        ..CALM
    });
}

/// Nothing is lost on the way: the new primary has what the old one acknowledged.
#[test]
fn b195_another_server_becomes_primary() {
    test(Fault {
        name: "failover by Sentinel, the replica has everything",
        place: Place::Sentinels,
        inject: |world| world.servers.primary_steps_down(),
        refuses: ALL,
        ..CALM
    });
}

#[test]
fn slots_of_a_cluster_move() {
    test(Fault {
        name: "slots of a cluster move",
        place: Place::Cluster,
        inject: |world| world.servers.slots_move(),
        refuses: ALL,
        ..CALM
    });
}

#[test]
fn connections_are_cut() {
    test(Fault {
        name: "connections cut, again and again",
        place: Place::Wired,
        inject: |world| strokes(|| world.servers.wire().cut()),
        refuses: ALL,
        ..CALM
    });
}

/// What was swallowed arrives late, when the gateways have long given it up.
#[test]
fn connections_lead_nowhere() {
    test(Fault {
        name: "connections blackholed for 3 s",
        place: Place::Wired,
        inject: |world| world.servers.wire().set(Mode::Hole),
        lasts: Duration::from_secs(3),
        heal: |world| world.servers.wire().set(Mode::Pass),
        refuses: ALL,
        ..CALM
    });
}

/// Everything is applied, and nobody is told.
#[test]
fn answers_are_lost() {
    fn healed(world: &mut World) {
        world.servers.wire().cut();
        world.servers.wire().set(Mode::Pass);
    }
    test(Fault {
        name: "answers lost for 2 s, then connections cut",
        place: Place::Wired,
        inject: |world| world.servers.wire().set(Mode::MuteAnswers),
        lasts: Duration::from_secs(2),
        heal: healed,
        refuses: ALL,
        ..CALM
    });
}

/// No call notices.
#[test]
fn b193_scripts_are_forgotten() {
    test(Fault {
        name: "SCRIPT FLUSH, again and again",
        inject: |world| strokes(|| told(world.servers.one(), &["SCRIPT", "FLUSH"])),
        ..CALM
    });
}

#[test]
fn b201_a_script_has_no_end() {
    test(Fault {
        name: "BUSY with somebody's script for 2 s",
        inject: |world| world.servers.runs_a_script_without_end(),
        lasts: Duration::from_secs(2),
        heal: |world| world.servers.script_is_ended(),
        refuses: ALL,
        ..CALM
    });
}

#[test]
fn b202_memory_is_full() {
    test(Fault {
        name: "maxmemory reached",
        inject: |world| told(world.servers.one(), &["CONFIG", "SET", "maxmemory", "1"]),
        lasts: Duration::from_secs(2),
        heal: |world| told(world.servers.one(), &["CONFIG", "SET", "maxmemory", "0"]),
        refuses: ALL,
        ..CALM
    });
}

#[test]
fn the_server_takes_no_writes() {
    test(Fault {
        name: "READONLY",
        inject: |world| told(world.servers.one(), &["REPLICAOF", "127.0.0.1", "1"]),
        lasts: Duration::from_secs(2),
        heal: |world| told(world.servers.one(), &["REPLICAOF", "NO", "ONE"]),
        refuses: ALL,
        ..CALM
    });
}

/// Whoever is not counted there does not notice; the foreign value is still there afterwards.
#[test]
fn b213_a_shard_is_not_ours() {
    test(Fault {
        name: "wrong type in the key of a shard",
        inject: World::victim_is_replaced,
        lasts: Duration::from_secs(2),
        heal: World::victim_is_given_back,
        refuses: &["victim"],
        ..CALM
    });
}

/// The gateways notice, and set it up again from the journal and from the calls they know.
#[test]
fn b203_everything_is_flushed() {
    test(Fault {
        name: "FLUSHALL",
        inject: |world| told(world.servers.one(), &["FLUSHALL"]),
        refuses: ALL,
        forgets_rates: true,
        ..CALM
    });
}

#[test]
fn the_server_comes_back_empty() {
    test(Fault {
        name: "kill -9 of the server, restart without persistence",
        place: Place::Volatile,
        inject: |world| world.servers.one_mut().kill(),
        lasts: Duration::from_secs(1),
        heal: |world| world.servers.one_mut().start_again(),
        refuses: ALL,
        forgets_rates: true,
        ..CALM
    });
}

/// The new primary lacks the last half second.
#[test]
fn another_server_becomes_primary_and_lacks_the_tail() {
    test(Fault {
        name: "failover by Sentinel, the replica lacks 0.5 s of writes",
        place: Place::Sentinels,
        inject: |world| world.servers.replica_hears_nothing(),
        lasts: Duration::from_millis(500),
        heal: |world| world.servers.primary_dies(),
        refuses: ALL,
        forgets_rates: true,
        ..CALM
    });
}
