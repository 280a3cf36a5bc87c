//! L18: from one target to the next.

use tollbook_engine::ledger::{End, Measure, Met};
use tollbook_engine::{SEQ_END, Source};

use crate::harness::Factory;
use crate::legs::{D, S, call, daily, rate, rpm, tpm};
use crate::table::{Do, Want, check, settle, settle_attempt};

pub fn l18_rebook_keeps_the_difference(factory: Factory) {
    let legs = |demand| [rpm("k:rpm", 10), tpm("k:tpm", 100, demand)];
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, legs(60))), Want::Admit),
            (S, Do::Rebook(None, call(1, legs(80)).attempt(2)), Want::Holds(vec![0, 80])),
            (S, Do::Balance("k:rpm"), Want::Is(1, 0)),
            (S, Do::Balance("k:tpm"), Want::Is(0, 80)),
            // A repeat of the same step gets the same answer.
            (S, Do::Rebook(None, call(1, legs(80)).attempt(2)), Want::Holds(vec![0, 80])),
            (S, settle(1, [1, 60]), Want::Met(Met::Ended(End::Rebooked))),
            (2 * S, settle_attempt(1, 2, [1, 70]), Want::Overruns(vec![0, 0])),
            (2 * S, Do::Balance("k:tpm"), Want::Is(70, 0)),
            (2 * S, Do::Balance("k:rpm"), Want::Is(1, 0)),
        ],
    );
}

pub fn l18_a_denied_rebook_writes_nothing(factory: Factory) {
    let legs = |demand| [rpm("k:rpm", 10), tpm("k:tpm", 100, demand)];
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, legs(60))), Want::Admit),
            (S, Do::Rebook(None, call(1, legs(101)).attempt(2)), Want::TooLarge(1)),
            (S, Do::Balance("k:tpm"), Want::Is(0, 60)),
            (S, Do::Journal, Want::Entries(vec![])),
            (2 * S, settle(1, [1, 50]), Want::Met(Met::Held)),
            (2 * S, Do::Balance("k:tpm"), Want::Is(50, 0)),
        ],
    );
}

pub fn l18_the_ended_attempt_posts_what_it_used(factory: Factory) {
    let legs = |demand| [tpm("k:tpm", 100, demand), daily("t:cost", Measure::Cost, 100, demand)];
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, legs(60))), Want::Admit),
            // 30 used and 80 wanted are more than 100.
            (S, Do::Rebook(Some(vec![30, 30]), call(1, legs(80)).attempt(2)), Want::Spent(1, D - S)),
            (S, Do::Rebook(Some(vec![30, 30]), call(1, legs(70)).attempt(2)), Want::Holds(vec![70, 70])),
            (S, Do::Balance("k:tpm"), Want::Is(30, 70)),
            (S, Do::Balance("t:cost"), Want::Is(30, 70)),
            (S, settle_attempt(1, 2, [70, 70]), Want::Met(Met::Held)),
            (
                S,
                Do::Journal,
                Want::Entries(vec![
                    (1, 1, SEQ_END, Source::Rebooked, 30),
                    (1, 2, SEQ_END, Source::Settled, 70),
                ]),
            ),
        ],
    );
}

pub fn l18_a_period_that_was_named_is_kept(factory: Factory) {
    let leg = |demand| [daily("t:cost", Measure::Cost, 100, demand)];
    check(
        factory,
        vec![
            (D - S, Do::Reserve(call(1, leg(60))), Want::Admit),
            (D + S, Do::Rebook(None, call(1, leg(70)).attempt(2)), Want::Holds(vec![70])),
            (D + S, Do::Reserve(call(2, leg(100))), Want::Holds(vec![100])),
            (D + 2 * S, settle_attempt(1, 2, [65]), Want::Met(Met::Held)),
            (D + 2 * S, Do::Balance("t:cost"), Want::Is(0, 100)),
        ],
    );
}

pub fn l18_requests_carried_over_can_still_be_given_back(factory: Factory) {
    let legs = || [rpm("k:rpm", 10), rate("k:out", Measure::OutputTokens, 100).demand(10)];
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, legs())), Want::Admit),
            (S, Do::Rebook(None, call(1, legs()).attempt(2)), Want::Admit),
            (
                S,
                Do::Release { id: 1, attempt: 2, why: tollbook_engine::ledger::ReleaseWhy::NeverSent },
                Want::Met(Met::Held),
            ),
            (S, Do::Balance("k:rpm"), Want::Is(0, 0)),
            (S, Do::Balance("k:out"), Want::Is(0, 0)),
        ],
    );
}
