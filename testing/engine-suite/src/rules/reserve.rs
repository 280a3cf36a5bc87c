//! L1 and L2: all legs or none, and a repeat gets the first answer.

use tollbook_engine::ledger::{End, Measure, Met};

use crate::harness::Factory;
use crate::legs::{D, M, MS, S, call, daily, rpm, tpm};
use crate::table::{Do, Want, check, never_sent, settle};

pub fn l01_all_legs_or_none(factory: Factory) {
    let legs = || [rpm("k:rpm", 10), tpm("k:tpm", 100, 60), daily("t:cost", Measure::Cost, 1000, 5)];
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, legs())), Want::Holds(vec![0, 60, 5])),
            (0, Do::Reserve(call(2, legs())), Want::Likely(1)),
            (0, Do::Balance("k:rpm"), Want::Is(1, 0)),
            (0, Do::Balance("k:tpm"), Want::Is(0, 60)),
            (0, Do::Balance("t:cost"), Want::Is(0, 5)),
            (S, never_sent(1), Want::Met(Met::Held)),
            (S, Do::Balance("k:rpm"), Want::Is(0, 0)),
            (S, Do::Reserve(call(2, legs())), Want::Admit),
        ],
    );
}

pub fn l01_what_is_free_has_room_on_a_spent_account(factory: Factory) {
    let legs = |demand| [daily("t:cost", Measure::Cost, 100, demand), tpm("k:tpm", 100, demand)];
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, legs(60))), Want::Admit),
            (0, settle(1, [250, 250]), Want::Met(Met::Held)),
            (0, Do::Reserve(call(2, legs(1))), Want::Spent(0, D)),
            (0, Do::Reserve(call(3, legs(0))), Want::Holds(vec![0, 0])),
            (0, settle(3, [0, 0]), Want::Met(Met::Held)),
            (0, Do::Balance("t:cost"), Want::Is(250, 0)),
            // An output that may cost something asks for nothing yet; nothing says that it stays free.
            (0, Do::Reserve(call(4, [tpm("k:tpm", 100, 0).output(50).expecting(0)])), Want::Firm(0, 61 * S)),
        ],
    );
}

pub fn l01_a_denial_opens_no_account(factory: Factory) {
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, [rpm("k:new", 10), rpm("k:zero", 0)])), Want::TooLarge(1)),
            (0, Do::Balance("k:new"), Want::NoAccount),
            (0, Do::Balance("k:zero"), Want::NoAccount),
        ],
    );
}

pub fn l01_a_limit_may_count_denials(factory: Factory) {
    let leg = || tpm("k:tpm", 100, 60).counts_denied();
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, [leg()])), Want::Admit),
            (0, Do::Reserve(call(2, [leg()])), Want::Likely(0)),
            (0, Do::Balance("k:tpm"), Want::Is(60, 60)),
            // At most one denial per bucket is posted, so that a client in a loop does not lock itself out for ever.
            (500 * MS, Do::Reserve(call(3, [leg()])), Want::Likely(0)),
            (500 * MS, Do::Balance("k:tpm"), Want::Is(60, 60)),
            (S, Do::Reserve(call(4, [leg()])), Want::Likely(0)),
            (S, Do::Balance("k:tpm"), Want::Is(120, 60)),
        ],
    );
}

pub fn l02_a_repeat_gets_the_first_answer(factory: Factory) {
    let legs = |ceiling| [rpm("k:rpm", ceiling), tpm("k:tpm", 100, 60)];
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, legs(1))), Want::Holds(vec![0, 60])),
            (S, Do::Reserve(call(1, legs(1))), Want::Holds(vec![0, 60])),
            // Ceilings are no part of what identifies a call.
            (S, Do::Reserve(call(1, legs(0))), Want::Holds(vec![0, 60])),
            (S, Do::Balance("k:rpm"), Want::Is(1, 0)),
            (S, Do::Balance("k:tpm"), Want::Is(0, 60)),
            (S, Do::Reserve(call(1, [rpm("k:rpm", 1), tpm("k:tpm", 100, 61)])), Want::Conflict(1)),
            (S, Do::Reserve(call(1, [rpm("k:other", 1), tpm("k:tpm", 100, 60)])), Want::Conflict(0)),
            (S, Do::Reserve(call(1, [rpm("k:rpm", 1)])), Want::Conflict(1)),
            (2 * S, settle(1, [1, 10]), Want::Met(Met::Held)),
            (3 * S, Do::Reserve(call(1, legs(1))), Want::Ended(End::Settled)),
            (30 * M, Do::Reserve(call(1, legs(1))), Want::Ended(End::Settled)),
            // Forgotten half an hour after its end.
            (30 * M + 2 * S, Do::Reserve(call(1, legs(1))), Want::Admit),
        ],
    );
}

pub fn l02_a_denied_id_is_decided_anew(factory: Factory) {
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, [rpm("k:rpm", 1)])), Want::Admit),
            (0, Do::Reserve(call(2, [rpm("k:rpm", 1)])), Want::Firm(0, 61 * S)),
            (0, Do::Reserve(call(2, [rpm("k:rpm", 2)])), Want::Admit),
        ],
    );
}

pub fn l02_memory_of_an_end_survives_a_restart(factory: Factory) {
    let legs = || [tpm("k:tpm", 100, 60)];
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, legs())), Want::Admit),
            (0, settle(1, [10]), Want::Met(Met::Held)),
            (0, Do::Reserve(call(2, legs())), Want::Holds(vec![60])),
            (S, Do::Restart, Want::Nothing),
            (S, Do::Reserve(call(1, legs())), Want::Ended(End::Settled)),
            (S, Do::Reserve(call(2, legs())), Want::Holds(vec![60])),
            (S, Do::Balance("k:tpm"), Want::Is(10, 60)),
            (2 * S, Do::Kill, Want::Nothing),
            (2 * S, Do::Reserve(call(1, legs())), Want::Ended(End::Settled)),
            (2 * S, settle(2, [20]), Want::Met(Met::Held)),
            (2 * S, Do::Balance("k:tpm"), Want::Is(30, 0)),
        ],
    );
}
