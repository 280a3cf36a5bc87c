//! L12 and L13: the engine owns time, and amounts are bounded.

use tollbook_engine::ledger::units::AMOUNT_MAX;
use tollbook_engine::ledger::{Measure, Met, Refusal};

use crate::harness::Factory;
use crate::legs::{D, H, S, call, daily, lifetime, rpm, tpm};
use crate::table::{Do, Want, check, settle};

pub fn l12_the_engine_names_the_period(factory: Factory) {
    let day = i64::try_from(D / S).unwrap_or(i64::MAX);
    let around = |from: i64| {
        daily("t:cost", Measure::Cost, 100, 60).periods([from, from + day, from + 2 * day, from + 3 * day])
    };
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, [around(day)])), Want::Recalendar),
            (0, Do::Reserve(call(1, [around(-4 * day)])), Want::Recalendar),
            (0, Do::Balance("t:cost"), Want::NoAccount),
            (0, Do::Reserve(call(1, [around(-day)])), Want::Admit),
            // The last start is only an end.
            (2 * D, Do::Reserve(call(2, [around(-day)])), Want::Recalendar),
            (2 * D, Do::Reserve(call(2, [around(0)])), Want::Admit),
            (2 * D, Do::Balance("t:cost"), Want::Is(0, 60)),
        ],
    );
}

pub fn l12_a_period_is_never_opened_twice(factory: Factory) {
    let leg = |demand| [daily("t:cost", Measure::Cost, 100, demand)];
    check(
        factory,
        vec![
            (D - S, Do::Reserve(call(1, leg(60))), Want::Admit),
            (D - S, settle(1, [60]), Want::Met(Met::Held)),
            (D + S, Do::Reserve(call(2, leg(70))), Want::Admit),
            (D + S, settle(2, [70]), Want::Met(Met::Held)),
            // Back before midnight: the newest day goes on, the old one is not spent again.
            (D + S, Do::StepBack(5 * S), Want::Nothing),
            (D - 4 * S, Do::Reserve(call(3, leg(31))), Want::Spent(0, D + 4 * S)),
            (D - 4 * S, Do::Reserve(call(3, leg(30))), Want::Admit),
        ],
    );
}

pub fn l12_a_small_step_back_stands_still(factory: Factory) {
    check(
        factory,
        vec![
            (10 * S, Do::Reserve(call(1, [rpm("k:rpm", 2)])), Want::Admit),
            (10 * S, Do::StepBack(5 * S), Want::Nothing),
            (5 * S, Do::Reserve(call(2, [rpm("k:rpm", 2)])), Want::Admit),
            (5 * S, Do::Balance("k:rpm"), Want::Is(2, 0)),
            (70 * S, Do::Balance("k:rpm"), Want::Is(2, 0)),
            (71 * S, Do::Balance("k:rpm"), Want::Is(0, 0)),
        ],
    );
}

pub fn l12_a_large_step_back_restarts_the_ring(factory: Factory) {
    check(
        factory,
        vec![
            (2 * H, Do::Reserve(call(1, [rpm("k:rpm", 2)])), Want::Admit),
            (2 * H, Do::StepBack(H), Want::Nothing),
            // What is posted stays, in the bucket of the new now.
            (H, Do::Reserve(call(2, [rpm("k:rpm", 2)])), Want::Admit),
            (H, Do::Balance("k:rpm"), Want::Is(2, 0)),
            (H, Do::Reserve(call(3, [rpm("k:rpm", 2)])), Want::Firm(0, 61 * S)),
            (H + 61 * S, Do::Balance("k:rpm"), Want::Is(0, 0)),
        ],
    );
}

pub fn l12_a_start_before_the_last_time_is_a_step_back(factory: Factory) {
    let leg = || [tpm("k:tpm", 100, 60)];
    check(
        factory,
        vec![
            (2 * H, Do::Reserve(call(1, leg())), Want::Admit),
            (2 * H, Do::StepBack(H), Want::Nothing),
            (H, Do::Restart, Want::Nothing),
            (H, Do::Tick, Want::Nothing),
            (H, Do::Balance("k:tpm"), Want::Is(0, 60)),
            // The hold lives out its life and not an hour more.
            (H + 61 * S, Do::Sweep, Want::Swept(1)),
            (H + 61 * S, Do::Balance("k:tpm"), Want::Is(0, 0)),
        ],
    );
}

pub fn l13_amounts_are_bounded_at_the_edge(factory: Factory) {
    let most = AMOUNT_MAX;
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, [tpm("k:tpm", most + 1, 1)])), Want::Refused(Refusal::Amount(0))),
            (
                0,
                Do::Reserve(call(1, [tpm("k:tpm", most, 1).worst(most + 1)])),
                Want::Refused(Refusal::Amount(0)),
            ),
            (
                0,
                Do::Reserve(call(1, [tpm("k:tpm", most, 1).output(most)])),
                Want::Refused(Refusal::Amount(0)),
            ),
            // Thousandths are amounts too.
            (
                0,
                Do::Reserve(call(1, [tpm("k:tpm", most, most / 1000 + 1)])),
                Want::Refused(Refusal::Amount(0)),
            ),
            (0, Do::Reserve(call(1, [lifetime("t:cost", most, 1).worst(most)])), Want::Holds(vec![most])),
            (0, settle(1, [most + 1]), Want::Refused(Refusal::Amount(0))),
            (0, settle(1, [1, 1]), Want::Refused(Refusal::ActualCount)),
            (0, settle(1, [most]), Want::Met(Met::Held)),
            (0, Do::Balance("t:cost"), Want::Is(most.cast_signed(), 0)),
            (0, Do::Reserve(call(2, [lifetime("t:cost", most, 1)])), Want::Exhausted(0)),
            (0, Do::Reserve(call(2, [])), Want::Refused(Refusal::NoLegs)),
        ],
    );
}
