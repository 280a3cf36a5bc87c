//! L14: what a denial promises.

use tollbook_engine::ledger::{Measure, Met, Weights};

use crate::harness::Factory;
use crate::legs::{D, MS, S, call, daily, lifetime, rpm, slots, tpm};
use crate::table::{Do, Want, check, settle};

pub fn l14_never_comes_first_then_the_longest_wait(factory: Factory) {
    check(
        factory,
        vec![
            (
                0,
                Do::Reserve(call(
                    1,
                    [rpm("k:rpm", 1), tpm("k:tpm", 100, 100), daily("t:req", Measure::Requests, 1, 1)],
                )),
                Want::Admit,
            ),
            (0, settle(1, [1, 100, 1]), Want::Met(Met::Held)),
            (30 * S, Do::Reserve(call(2, [rpm("k:rpm", 1), tpm("k:tpm", 100, 1)])), Want::Firm(0, 31 * S)),
            (
                30 * S,
                Do::Reserve(call(2, [rpm("k:rpm", 1), daily("t:req", Measure::Requests, 1, 1)])),
                Want::Spent(1, D - 30 * S),
            ),
            (30 * S, Do::Reserve(call(2, [rpm("k:rpm", 1), tpm("k:tpm", 100, 101)])), Want::TooLarge(1)),
            // Of two limits over one account the lower one binds.
            (30 * S, Do::Reserve(call(2, [tpm("k:tpm", 150, 60).also(100)])), Want::Firm(0, 31 * S)),
        ],
    );
}

pub fn l14_admitted_at_the_promised_instant(factory: Factory) {
    check(
        factory,
        vec![
            (300 * MS, Do::Reserve(call(1, [rpm("k:rpm", 2)])), Want::Admit),
            (20 * S, Do::Reserve(call(2, [rpm("k:rpm", 2)])), Want::Admit),
            (20 * S, Do::Reserve(call(3, [rpm("k:rpm", 2)])), Want::Firm(0, 41 * S)),
            (61 * S - 1, Do::Reserve(call(3, [rpm("k:rpm", 2)])), Want::Firm(0, 1)),
            (61 * S, Do::Reserve(call(3, [rpm("k:rpm", 2)])), Want::Admit),
            (61 * S, Do::Reserve(call(4, [rpm("k:rpm", 2)])), Want::Firm(0, 20 * S)),
        ],
    );
}

pub fn l14_holds_in_the_way_are_likely_waits(factory: Factory) {
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, [tpm("k:tpm", 100, 60), slots("k:slots", 1)])), Want::Admit),
            (0, Do::Reserve(call(2, [tpm("k:tpm", 100, 60)])), Want::Likely(0)),
            (0, Do::Reserve(call(2, [slots("k:slots", 1)])), Want::Likely(0)),
            (0, Do::Reserve(call(3, [daily("t:cost", Measure::Cost, 100, 60)])), Want::Admit),
            (0, Do::Reserve(call(4, [daily("t:cost", Measure::Cost, 100, 60)])), Want::Likely(0)),
            (0, settle(3, [41]), Want::Met(Met::Held)),
            (0, Do::Reserve(call(4, [daily("t:cost", Measure::Cost, 100, 60)])), Want::Spent(0, D)),
            (0, Do::Reserve(call(5, [lifetime("t:life", 100, 101)])), Want::TooLarge(0)),
        ],
    );
}

pub fn l14_weights_are_hinted_exactly(factory: Factory) {
    let leg = || rpm("k:rpm", 1).window(7, 10 * S).weights(Weights::Oldest);
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, [leg()])), Want::Admit),
            (30 * S, Do::Reserve(call(2, [leg()])), Want::Firm(0, 40 * S)),
            (70 * S - 1, Do::Reserve(call(2, [leg()])), Want::Firm(0, 1)),
            (70 * S, Do::Reserve(call(2, [leg()])), Want::Admit),
        ],
    );
}
