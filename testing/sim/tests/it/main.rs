//! The seeds of CI, and tests of the simulation itself.
//!
//! `TOLLBOOK_SIM_SEEDS` sets how many seeds run in all; without it there are 2,000. A failing seed is made smaller and
//! printed with the command that repeats it.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests: a failure is a panic, and what was covered is printed"
)]

use tollbook_sim::{Knobs, Stats, run, run_seeds, shrink};

/// Seeds in all, unless said otherwise, and the tests that share them.
const SEEDS: u64 = 2_000;
const PARTS: u64 = 5;
/// So many seeds meet every kind of event; fewer may miss one.
const ENOUGH: u64 = 400;

/// Seeds of the real admission.
const REAL_SEEDS: u64 = 250;
/// Counted only with the real admission.
const ONLY_REAL: [&str; 3] = ["calls_journaled", "calls_unbooked", "calls_died"];
/// What its seeds must have met.
const MET_BY_REAL: [&str; 26] = [
    "admits",
    "denied_firm",
    "denied_likely",
    "denied_by_pool",
    "recalendars",
    "repeats",
    "retries",
    "growth_decided",
    "planned",
    "inputs_corrected",
    "progress",
    "progress_repeated",
    "growth_short",
    "stopped_at_limit",
    "overruns",
    "expired_door",
    "expired_sent",
    "late_settles",
    "replies_lost",
    "delivered_twice",
    "journal_full",
    "engine_kills",
    "clock_back",
    "gateway_crashes",
    "gateway_stops",
    "calls_journaled",
];

fn part(number: u64) {
    let asked = std::env::var("TOLLBOOK_SIM_SEEDS").ok().map(|text| text.parse().expect("a number of seeds"));
    let count = asked.unwrap_or(SEEDS).div_ceil(PARTS);
    let stats = run_seeds(number * count, count, false).unwrap_or_else(|failure| panic!("{failure}"));
    print(&stats, number * count, count);
    if count >= ENOUGH {
        let missing: Vec<_> = stats.missing().into_iter().filter(|name| !ONLY_REAL.contains(name)).collect();
        assert_eq!(missing, [""; 0], "a simulation that never met these proves nothing about them");
    }
}

fn print(stats: &Stats, first: u64, count: u64) {
    println!("{count} seeds from {first}");
    for (name, count) in stats.all() {
        println!("{count:>9} {name}");
    }
}

#[test]
fn seeds_of_the_first_part() {
    part(0);
}

#[test]
fn seeds_of_the_second_part() {
    part(1);
}

#[test]
fn seeds_of_the_third_part() {
    part(2);
}

#[test]
fn seeds_of_the_fourth_part() {
    part(3);
}

#[test]
fn seeds_of_the_fifth_part() {
    part(4);
}

#[test]
fn seeds_with_the_real_admission() {
    let stats = run_seeds(0, REAL_SEEDS, true).unwrap_or_else(|failure| panic!("{failure}"));
    print(&stats, 0, REAL_SEEDS);
    let missing = stats.missing();
    let unmet: Vec<_> = MET_BY_REAL.iter().filter(|name| missing.contains(name)).collect();
    assert_eq!(unmet, [&""; 0], "a simulation that never met these proves nothing about them");
}

#[test]
fn a_seed_always_makes_the_same_run() {
    for seed in [3, 42, 1_000_003] {
        let (one, other) = (run(&Knobs::of(seed), true), run(&Knobs::of(seed), true));
        assert!(one.stats.verbs > 50, "seed {seed} made only {} verbs", one.stats.verbs);
        assert_eq!(one.trace, other.trace, "seed {seed}");
        assert_eq!(one.stats, other.stats, "seed {seed}");
    }
}

#[test]
fn a_wrong_amount_is_found_and_the_run_made_smaller() {
    let knobs = Knobs { is_sabotaged: true, ..Knobs::of(7) };
    let failure = run(&knobs, false).failure.expect("a wrong amount is found");
    let small = shrink(knobs.clone(), &failure);
    assert!(run(&small, true).failure.is_some(), "the smaller run fails too");
    assert!(small.calls < knobs.calls && small.without.len() > 10, "{small:?}");
    assert!(small.command().contains("--seed 7 "), "{}", small.command());
}
