//! L9 and L15: holds that grow, and estimates that learn.

use tollbook_engine::ledger::{Measure, Met};

use crate::harness::Factory;
use crate::legs::{S, call, daily, tpm};
use crate::table::{Do, Want, check, grow, never_sent, settle, settle_learn};

pub fn l09_soft_limits_grow_without_question(factory: Factory) {
    let leg = || tpm("k:tpm", 100, 10).output(1000).expecting(20);
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, [leg()])), Want::Holds(vec![30])),
            (S, grow(1, 500), Want::Renewed(vec![510])),
            (S, Do::Balance("k:tpm"), Want::Is(0, 510)),
            // Never less, never above the cap.
            (S, grow(1, 100), Want::Renewed(vec![510])),
            (S, grow(1, 5000), Want::Renewed(vec![1010])),
            (S, Do::Reserve(call(2, [leg()])), Want::Likely(0)),
            // Forced growth was never decided, so it is an overrun.
            (2 * S, settle(1, [1010]), Want::Overruns(vec![980])),
        ],
    );
}

pub fn l09_hard_limits_grow_as_decided(factory: Factory) {
    let hard = |name| daily(name, Measure::Cost, 100, 10).output(1000).expecting(20).holds_expected();
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, [hard("t:a"), hard("t:b")])), Want::Holds(vec![30, 30])),
            (0, Do::Reserve(call(2, [hard("t:b")])), Want::Holds(vec![30])),
            (S, grow(1, 50), Want::Renewed(vec![60, 60])),
            // No room on one of them: none of them grows.
            (S, grow(1, 70), Want::Short(vec![1])),
            (S, Do::Balance("t:a"), Want::Is(0, 60)),
            (S, Do::Balance("t:b"), Want::Is(0, 90)),
            (S, never_sent(2), Want::Met(Met::Held)),
            (S, grow(1, 70), Want::Renewed(vec![80, 80])),
            (2 * S, settle(1, [80, 81]), Want::Overruns(vec![0, 1])),
        ],
    );
}

pub fn l09_a_hold_at_the_worst_case_never_grows(factory: Factory) {
    let leg = daily("t:cost", Measure::Cost, 2000, 10).output(1000).expecting(20);
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, [leg])), Want::Holds(vec![1010])),
            (S, grow(1, 900), Want::Renewed(vec![1010])),
            (S, Do::Balance("t:cost"), Want::Is(0, 1010)),
        ],
    );
}

pub fn l15_a_small_soft_limit_runs_one_call(factory: Factory) {
    let small = || tpm("k:tpm", 100, 40).output(1000);
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, [small()])), Want::Holds(vec![100])),
            // What is left never shrinks an estimate.
            (0, Do::Reserve(call(2, [small()])), Want::Likely(0)),
            (0, settle(1, [50]), Want::Met(Met::Held)),
            (0, Do::Reserve(call(2, [small()])), Want::Firm(0, 61 * S)),
            // A hard limit does not shrink it either.
            (
                0,
                Do::Reserve(call(3, [daily("t:cost", Measure::Cost, 100, 40).output(1000).holds_expected()])),
                Want::TooLarge(0),
            ),
        ],
    );
}

pub fn l15_estimates_learn_from_settled_output(factory: Factory) {
    let leg = || tpm("k:tpm", 100_000, 10).output(4000).learning("k:m", 256);
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, [leg()])), Want::Holds(vec![266])),
            (0, settle_learn(1, [110], 100), Want::Met(Met::Held)),
            (0, Do::Reserve(call(2, [leg()])), Want::Holds(vec![210])),
            (0, Do::Kill, Want::Nothing),
            // A settle without a report teaches nothing; what was learnt survives.
            (0, settle(2, [4010]), Want::Met(Met::Held)),
            (0, Do::Reserve(call(3, [leg()])), Want::Holds(vec![210])),
        ],
    );
}
