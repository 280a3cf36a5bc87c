//! L3 to L6: one end, the truth in full, where it was named, and requests.

use tollbook_engine::ledger::{End, Measure, Met};

use crate::harness::Factory;
use crate::legs::{D, M, MS, S, call, daily, rpm, tpm};
use crate::table::{Do, Want, check, failed, never_sent, renew, settle};

pub fn l03_the_first_claim_wins(factory: Factory) {
    let leg = || [tpm("k:tpm", 1000, 60)];
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, leg())), Want::Admit),
            (0, settle(1, [10]), Want::Met(Met::Held)),
            (0, settle(1, [99]), Want::Met(Met::Ended(End::Settled))),
            (0, failed(1), Want::Met(Met::Ended(End::Settled))),
            (0, Do::Expire(1), Want::Ended(End::Settled)),
            (0, Do::Balance("k:tpm"), Want::Is(10, 0)),
            (0, Do::Reserve(call(2, leg())), Want::Admit),
            (0, failed(2), Want::Met(Met::Held)),
            (0, settle(2, [99]), Want::Met(Met::Ended(End::Released))),
            (0, Do::Balance("k:tpm"), Want::Is(10, 0)),
        ],
    );
}

pub fn l03_an_expired_one_is_corrected_once(factory: Factory) {
    let leg = || [daily("t:cost", Measure::Cost, 1000, 100)];
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, leg())), Want::Admit),
            (S, renew(1), Want::Renewed(vec![100])),
            (61 * S, Do::Sweep, Want::Swept(1)),
            (61 * S, Do::Balance("t:cost"), Want::Is(100, 0)),
            (62 * S, settle(1, [70]), Want::Met(Met::Late)),
            (62 * S, Do::Balance("t:cost"), Want::Is(70, 0)),
            (63 * S, settle(1, [90]), Want::Met(Met::Ended(End::Corrected))),
            (63 * S, failed(1), Want::Met(Met::Ended(End::Corrected))),
            (63 * S, Do::Balance("t:cost"), Want::Is(70, 0)),
        ],
    );
}

pub fn l04_settle_posts_in_full(factory: Factory) {
    check(
        factory,
        vec![
            (
                0,
                Do::Reserve(call(1, [tpm("k:tpm", 100, 50), daily("t:cost", Measure::Cost, 100, 50)])),
                Want::Admit,
            ),
            (0, settle(1, [500, 700]), Want::Overruns(vec![450, 650])),
            (0, Do::Balance("k:tpm"), Want::Is(500, 0)),
            (0, Do::Balance("t:cost"), Want::Is(700, 0)),
            (0, Do::Reserve(call(2, [tpm("k:tpm", 100, 1)])), Want::Firm(0, 61 * S)),
            (0, Do::Reserve(call(3, [daily("t:cost", Measure::Cost, 100, 1)])), Want::Spent(0, D)),
        ],
    );
}

pub fn l05_usage_lands_where_the_hold_was_named(factory: Factory) {
    check(
        factory,
        vec![
            (
                0,
                Do::Reserve(call(1, [tpm("k:tpm", 100, 50), daily("t:cost", Measure::Cost, 100, 50)])),
                Want::Admit,
            ),
            (0, renew(1), Want::Renewed(vec![50, 50])),
            (30 * S, settle(1, [50, 40]), Want::Met(Met::Held)),
            // A rate: the bucket of the moment it was settled.
            (90 * S + 999 * MS, Do::Balance("k:tpm"), Want::Is(50, 0)),
            (91 * S, Do::Balance("k:tpm"), Want::Is(0, 0)),
            (91 * S, Do::Balance("t:cost"), Want::Is(40, 0)),
        ],
    );
}

pub fn l05_a_period_that_is_over_takes_its_bills(factory: Factory) {
    let leg = |demand| [daily("t:cost", Measure::Cost, 1000, demand)];
    check(
        factory,
        vec![
            (D - 2 * S, Do::Reserve(call(1, leg(400))), Want::Admit),
            (D + S, Do::Reserve(call(2, leg(1000))), Want::Admit),
            (D + 2 * S, settle(1, [350]), Want::Met(Met::Held)),
            (D + 2 * S, Do::Balance("t:cost"), Want::Is(0, 1000)),
            (D + 2 * S, Do::Reserve(call(3, leg(1))), Want::Likely(0)),
        ],
    );
}

pub fn l06_requests_are_posted_at_the_door(factory: Factory) {
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, [rpm("k:rpm", 10)])), Want::Admit),
            (0, Do::Reserve(call(2, [rpm("k:rpm", 10)])), Want::Admit),
            (0, Do::Balance("k:rpm"), Want::Is(2, 0)),
            (S, never_sent(1), Want::Met(Met::Held)),
            (S, Do::Balance("k:rpm"), Want::Is(1, 0)),
            (S, failed(2), Want::Met(Met::Held)),
            (S, Do::Balance("k:rpm"), Want::Is(1, 0)),
            (S, Do::Reserve(call(3, [rpm("k:rpm", 10).refunds_failed()])), Want::Admit),
            (S, failed(3), Want::Met(Met::Held)),
            (S, Do::Balance("k:rpm"), Want::Is(1, 0)),
            (S, Do::Reserve(call(4, [rpm("k:rpm", 10)])), Want::Admit),
            (S, settle(4, [1]), Want::Met(Met::Held)),
            (S, Do::Balance("k:rpm"), Want::Is(2, 0)),
        ],
    );
}

pub fn l06_what_left_the_ring_is_not_given_back(factory: Factory) {
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, [rpm("k:rpm", 10)]).life(10 * M)), Want::Admit),
            (61 * S, Do::Reserve(call(2, [rpm("k:rpm", 10)])), Want::Admit),
            (61 * S, never_sent(1), Want::Met(Met::Held)),
            (61 * S, Do::Balance("k:rpm"), Want::Is(1, 0)),
        ],
    );
}

pub fn l06_requests_of_a_quota_go_back_to_their_day(factory: Factory) {
    let leg = || [daily("k:day", Measure::Requests, 10, 1)];
    check(
        factory,
        vec![
            (D - S, Do::Reserve(call(1, leg())), Want::Admit),
            (D - S, Do::Balance("k:day"), Want::Is(1, 0)),
            (D, Do::Reserve(call(2, leg())), Want::Admit),
            (D, never_sent(1), Want::Met(Met::Held)),
            (D, Do::Balance("k:day"), Want::Is(1, 0)),
        ],
    );
}
