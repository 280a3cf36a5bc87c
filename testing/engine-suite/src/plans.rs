//! Forecast booking through the port: input at the door, output where it lands, plans that die by themselves (design,
//! section 4).

use tollbook_engine::ledger::{EstimatorKind, Met, Micros, Profile};

use crate::harness::Factory;
use crate::legs::{L, R, S, call, forecast, slots};
use crate::table::{Do, Want, check, failed, grow, never_sent, renew, settle_landed};

/// Half a second to the first llm_token, then ten a second.
const EVEN: Profile = Profile { ttft: 500_000, pace: 100_000 };

fn tok(input: u64, output: u64) -> L {
    forecast("k:plan", 1_000).demand(input).output(500).expecting(output)
}

fn planned(id: u128, input: u64, output: u64) -> R {
    call(id, [tok(input, output)]).profile(EVEN)
}

fn book(at: Micros, posted: i64, ahead: i64) -> (Micros, Do, Want) {
    (at, Do::Balance("k:plan"), Want::Is(posted, ahead))
}

fn progress(seq: u64, base: i64, deltas: &[i64]) -> Do {
    Do::Progress { account: "k:plan", gateway: 7, seq, base, deltas: deltas.to_vec() }
}

/// Input is posted at once; output counts in the seconds in which it will stream, and no hold stands for it.
pub fn l05_output_is_planned_into_its_seconds(factory: Factory) {
    check(
        factory,
        vec![
            (0, Do::Reserve(planned(1, 100, 20)), Want::Holds(vec![0])),
            // By the end of the first second 5 of 20 have streamed; the fullest window to come has all of them.
            book(0, 105, 15),
            book(S, 115, 5),
            book(2 * S, 120, 0),
            // The oldest second counts by the part of it still inside, but no more than a sixteenth of all is forgotten.
            book(60 * S, 120, 0),
            book(60 * S + S / 2, 15 + 105 - 120 / 16, 0),
            book(61 * S, 15, 0),
            book(62 * S, 5, 0),
            book(63 * S, 0, 0),
        ],
    );
}

/// A call that fits no window of the next minute is refused, with the second at which it fits.
pub fn l14_a_plan_in_the_way_is_a_firm_wait(factory: Factory) {
    check(
        factory,
        vec![
            (0, Do::Reserve(planned(1, 900, 0)), Want::Admit),
            (S / 2, Do::Reserve(planned(2, 200, 0)), Want::Firm(0, 61 * S)),
            // 1 % is left of a busy account, nothing of an empty one.
            (S / 2, Do::Reserve(planned(3, 95, 0)), Want::Firm(0, 60 * S)),
            (S / 2, Do::Reserve(planned(4, 90, 0)), Want::Admit),
            (S / 2, Do::Reserve(planned(5, 1_001, 0)), Want::TooLarge(0)),
            (61 * S + S / 2, Do::Reserve(planned(2, 200, 0)), Want::Admit),
        ],
    );
}

/// A window that counts its oldest second whole has the input in it for one second more: with it comes what is planned
/// for the last one.
pub fn l01_a_strict_window_keeps_the_door_second(factory: Factory) {
    let late = Profile { ttft: 60 * S, pace: 1_000 };
    let asks = |id, input, output| {
        let leg = forecast("k:plan", 1_000).demand(input).output(output).expecting(output);
        call(id, [leg.strict()]).profile(late)
    };
    check(
        factory,
        vec![
            (0, Do::Reserve(asks(1, 100, 300)), Want::Admit),
            // All of the output comes in the second after the minute.
            (0, Do::Reserve(asks(2, 592, 0)), Want::Firm(0, 61 * S)),
            (0, Do::Reserve(asks(2, 591, 0)), Want::Admit),
            book(60 * S, 991, 0),
            book(61 * S, 300, 0),
        ],
    );
}

/// A call as large as the limit runs on an empty account; the estimate gives way, the input never does.
pub fn l15_the_estimate_gives_way_to_the_limit(factory: Factory) {
    let large = |id, input| call(id, [tok(input, 400)]).profile(EVEN);
    check(
        factory,
        vec![
            (0, Do::Reserve(large(1, 1_000)), Want::Admit),
            (0, never_sent(1), Want::Met(Met::Held)),
            (0, Do::Reserve(large(2, 800)), Want::Admit),
            // 200 are left above its input, in 20 s.
            book(19 * S, 995, 5),
            book(20 * S, 1_000, 0),
        ],
    );
}

/// Settle corrects the input in the second that took it; the plan is the gateway's.
pub fn l04_settle_corrects_the_input_in_its_second(factory: Factory) {
    check(
        factory,
        vec![
            (0, Do::Reserve(planned(1, 100, 20)), Want::Admit),
            (0, renew(1), Want::Renewed(vec![0])),
            (10 * S, settle_landed(1, [150], 20), Want::Met(Met::Held)),
            book(10 * S, 150, 0),
            (10 * S, Do::Reserve(planned(2, 50, 0)), Want::Admit),
            // What was posted above what was decided is an overrun, as anywhere.
            (11 * S, settle_landed(2, [60], 0), Want::Overruns(vec![10])),
            book(11 * S, 210, 0),
            // The door's second leaves with its correction.
            book(61 * S, 75, 0),
        ],
    );
}

/// What never left gives its input back, and so does a failure; a call that was sent and lapsed has landed its input.
pub fn l06_l07_input_goes_back_unless_it_was_sent(factory: Factory) {
    check(
        factory,
        vec![
            (0, Do::Reserve(planned(1, 100, 0)), Want::Admit),
            (0, Do::Reserve(planned(2, 200, 0)), Want::Admit),
            (0, Do::Reserve(planned(3, 300, 0)), Want::Admit),
            (0, Do::Reserve(planned(4, 50, 0)), Want::Admit),
            (S, never_sent(1), Want::Met(Met::Held)),
            (S, failed(2), Want::Met(Met::Held)),
            (S, renew(3), Want::Renewed(vec![0])),
            book(S, 350, 0),
            // The fourth was never sent: it lapses at the door and gives its input back.
            (16 * S, Do::Sweep, Want::Swept(1)),
            book(16 * S, 300, 0),
            (59 * S, Do::Balance("k:plan"), Want::Is(300, 0)),
            (61 * S + 1, Do::Sweep, Want::Swept(1)),
            (61 * S + 1, settle_landed(3, [300], 0), Want::Met(Met::Late)),
        ],
    );
}

/// Facts replace the plan second by second; a batch is applied once, and one with an older number never.
pub fn progress_replaces_plan_by_fact_once(factory: Factory) {
    check(
        factory,
        vec![
            (0, Do::Reserve(planned(1, 100, 20)), Want::Admit),
            // Two seconds on it has streamed 4 instead of 15, and goes on at 4 a second.
            (2 * S, progress(1, 0, &[-3, -8, -1, 4, 4, 4]), Want::Nothing),
            book(2 * S, 100 + 2 + 2 + 4, 12),
            (2 * S, progress(1, 0, &[-3, -8, -1, 4, 4, 4]), Want::Nothing),
            (2 * S, progress(0, 0, &[900]), Want::Nothing),
            book(2 * S, 108, 12),
            // It ends: the gateway's next batch takes back what is left.
            (4 * S, settle_landed(1, [112], 12), Want::Met(Met::Held)),
            (4 * S, progress(2, 5, &[-4]), Want::Nothing),
            book(4 * S, 116, 0),
            // No second goes below zero, and what has left or is too far ahead changes nothing.
            (4 * S, progress(3, 4, &[-900]), Want::Nothing),
            book(4 * S, 112, 0),
            (4 * S, progress(4, -100, &[50]), Want::Nothing),
            (4 * S, progress(5, 66, &[50]), Want::Nothing),
            book(5 * S, 112, 0),
        ],
    );
}

/// Plans, facts and the number of the last batch are there after a kill; a dead gateway's plan is gone in two minutes.
pub fn plans_survive_a_kill_and_die_by_themselves(factory: Factory) {
    check(
        factory,
        vec![
            (0, Do::Reserve(planned(1, 100, 400)), Want::Admit),
            (2 * S, progress(1, 0, &[2, 1]), Want::Nothing),
            (2 * S, Do::Kill, Want::Nothing),
            (2 * S, progress(1, 0, &[2, 1]), Want::Nothing),
            book(2 * S, 128, 375),
            (2 * S, Do::Restart, Want::Nothing),
            book(2 * S, 128, 375),
            book(122 * S, 0, 0),
        ],
    );
}

/// A stream that outgrows its forecast is learned from before it ends.
pub fn a_stream_that_outgrows_its_forecast_teaches_the_next_call(factory: Factory) {
    let learning = |id| {
        let leg = forecast("k:plan", 100_000).output(50_000).learns(EstimatorKind::Forecast, "k", 500);
        call(id, [leg]).profile(EVEN)
    };
    check(
        factory,
        vec![
            (0, Do::Reserve(learning(1)), Want::Admit),
            (1, Do::Expected(1), Want::Outputs(vec![500])),
            (S, Do::Outgrown(1, 4_000), Want::Renewed(vec![0])),
            (S, Do::Reserve(learning(2)), Want::Admit),
            // The prior has heard of it: twice the mean.
            (S, Do::Expected(2), Want::Outputs(vec![8_000])),
            (2 * S, settle_landed(2, [300], 300).learning(300), Want::Met(Met::Held)),
            (2 * S, Do::Reserve(learning(3)), Want::Admit),
            (2 * S, Do::Expected(3), Want::Outputs(vec![600])),
        ],
    );
}

/// The estimators of the papers, through the port.
pub fn every_estimator_learns_its_way(factory: Factory) {
    let asks = |id: u128, kind, name: &'static str| {
        call(
            id,
            [slots("k:slots", 1_000), forecast("k:plan", 1_000_000).output(9_000).learns(kind, name, 77)],
        )
    };
    let learned = |id, output| settle_landed(id, [0, output], output).learning(output);
    let mut rows = vec![(0, Do::Reserve(asks(1, EstimatorKind::P95, "p95")), Want::Admit)];
    for (id, output) in [(1, 10), (2, 20), (3, 30), (4, 40), (5, 50)] {
        if id > 1 {
            rows.push((0, Do::Reserve(asks(id, EstimatorKind::P95, "p95")), Want::Admit));
        }
        rows.push((0, learned(id, output), Want::Met(Met::Held)));
    }
    rows.extend([
        (0, Do::Reserve(asks(6, EstimatorKind::P95, "p95")), Want::Admit),
        (0, Do::Expected(6), Want::Outputs(vec![0, 50])),
        (0, Do::Reserve(asks(7, EstimatorKind::RecentMean, "mean")), Want::Admit),
        (0, Do::Expected(7), Want::Outputs(vec![0, 77])),
        (0, learned(7, 100), Want::Met(Met::Held)),
        (0, Do::Reserve(asks(8, EstimatorKind::RecentMean, "mean")), Want::Admit),
        (0, learned(8, 201), Want::Met(Met::Held)),
        (0, Do::Reserve(asks(9, EstimatorKind::RecentMean, "mean")), Want::Admit),
        // The minute is not full.
        (0, Do::Expected(9), Want::Outputs(vec![0, 77])),
        (60 * S, Do::Kill, Want::Nothing),
        (60 * S, Do::Reserve(asks(10, EstimatorKind::RecentMean, "mean")), Want::Admit),
        (60 * S, Do::Expected(10), Want::Outputs(vec![0, 150])),
        (60 * S, Do::Reserve(asks(11, EstimatorKind::P95, "p95")), Want::Admit),
        (60 * S, Do::Expected(11), Want::Outputs(vec![0, 50])),
    ]);
    check(factory, rows);
}

/// On a soft limit growth is no question, and a plan is not a hold that could grow.
pub fn l09_a_plan_does_not_grow_by_renewal(factory: Factory) {
    check(
        factory,
        vec![
            (0, Do::Reserve(planned(1, 100, 20)), Want::Admit),
            (S, grow(1, 400), Want::Renewed(vec![0])),
            book(2 * S, 120, 0),
        ],
    );
}

/// A clock that goes far back restarts the account: what was in the window stays, plans go.
pub fn l12_a_step_back_keeps_what_landed(factory: Factory) {
    check(
        factory,
        vec![
            (200 * S, Do::Reserve(planned(1, 100, 400)), Want::Admit),
            (201 * S, Do::StepBack(20 * S), Want::Nothing),
            book(181 * S, 105, 395),
            (181 * S, Do::StepBack(150 * S), Want::Nothing),
            (31 * S, Do::Reserve(planned(2, 1, 0)), Want::Admit),
            book(31 * S, 106, 0),
        ],
    );
}
