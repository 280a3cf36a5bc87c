//! The rules L1–L15, L17 and L18 as tables. L16 is `policy`'s.

use tollbook_engine::ledger::units::AMOUNT_MAX;
use tollbook_engine::ledger::{End, Measure, Met, Refusal, Weights};
use tollbook_engine::{SEQ_ADJUST, SEQ_END, SEQ_LATE, SEQ_UNBOOKED, Source};

use crate::harness::Factory;
use crate::legs::{D, H, M, MS, S, call, daily, lifetime, rate, rpm, slots, tpm};
use crate::table::{
    Do, Want, adjust, check, failed, grow, never_sent, renew, renew_at_door, settle, settle_attempt,
    settle_learn, settle_old,
};

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

pub fn l07_a_hold_at_the_door_gives_everything_back(factory: Factory) {
    let legs = || [rpm("k:rpm", 10), tpm("k:tpm", 100, 60), daily("t:cost", Measure::Cost, 100, 60)];
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, legs())), Want::Admit),
            (15 * S - 1, Do::Expire(1), Want::NotDue),
            (15 * S - 1, Do::Sweep, Want::Swept(0)),
            // Due holds still count until they are swept.
            (15 * S, Do::Reserve(call(2, legs())), Want::Likely(1)),
            (15 * S, Do::Sweep, Want::Swept(1)),
            (15 * S, Do::Balance("k:rpm"), Want::Is(0, 0)),
            (15 * S, Do::Balance("k:tpm"), Want::Is(0, 0)),
            (15 * S, Do::Balance("t:cost"), Want::Is(0, 0)),
            (15 * S, Do::Journal, Want::Entries(vec![])),
            (15 * S, Do::Expire(1), Want::Ended(End::Expired)),
        ],
    );
}

pub fn l07_a_sent_hold_is_released_or_charged(factory: Factory) {
    let legs = || [rpm("k:rpm", 10), tpm("k:tpm", 100, 60), daily("t:cost", Measure::Cost, 100, 60)];
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, legs())), Want::Admit),
            (5 * S, renew(1), Want::Renewed(vec![0, 60, 60])),
            // `sent` never goes back.
            (10 * S, renew_at_door(1), Want::Renewed(vec![0, 60, 60])),
            (70 * S - 1, Do::Sweep, Want::Swept(0)),
            (70 * S, Do::Sweep, Want::Swept(1)),
            (70 * S, Do::Balance("k:rpm"), Want::Is(0, 0)),
            (70 * S, Do::Balance("k:tpm"), Want::Is(0, 0)),
            (70 * S, Do::Balance("t:cost"), Want::Is(60, 0)),
            (70 * S, Do::Journal, Want::Entries(vec![(1, 1, SEQ_END, Source::Expired, 60)])),
        ],
    );
}

pub fn l07_the_expected_demand_is_charged_not_the_worst(factory: Factory) {
    let leg = daily("t:cost", Measure::Cost, 1000, 10).output(500).expecting(40);
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, [leg])), Want::Holds(vec![510])),
            (0, renew(1), Want::Renewed(vec![510])),
            (60 * S, Do::Sweep, Want::Swept(1)),
            (60 * S, Do::Balance("t:cost"), Want::Is(50, 0)),
        ],
    );
}

pub fn l07_a_due_hold_is_revived_and_an_expired_one_is_not(factory: Factory) {
    let leg = || [tpm("k:tpm", 100, 60)];
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, leg())), Want::Admit),
            (20 * S, renew(1), Want::Renewed(vec![60])),
            (20 * S, Do::Sweep, Want::Swept(0)),
            (80 * S, Do::Sweep, Want::Swept(1)),
            (80 * S, renew(1), Want::RenewEnded(End::Expired)),
            (80 * S, renew(2), Want::RenewUnknown),
        ],
    );
}

pub fn l07_holds_expire_after_a_restart(factory: Factory) {
    let leg = || [tpm("k:tpm", 100, 60)];
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, leg())), Want::Admit),
            (S, Do::Kill, Want::Nothing),
            (S, Do::Balance("k:tpm"), Want::Is(0, 60)),
            (15 * S, Do::Sweep, Want::Swept(1)),
            (15 * S, Do::Balance("k:tpm"), Want::Is(0, 0)),
        ],
    );
}

pub fn l08_a_late_settle_corrects_quotas_only(factory: Factory) {
    let legs = || [tpm("k:tpm", 1000, 100), daily("t:cost", Measure::Cost, 1000, 100)];
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, legs())), Want::Admit),
            (0, renew(1), Want::Renewed(vec![100, 100])),
            (60 * S, Do::Sweep, Want::Swept(1)),
            (M + S, settle(1, [60, 60]), Want::Met(Met::Late)),
            (M + S, Do::Balance("k:tpm"), Want::Is(0, 0)),
            (M + S, Do::Balance("t:cost"), Want::Is(60, 0)),
            (
                M + S,
                Do::Journal,
                Want::Entries(vec![
                    (1, 1, SEQ_END, Source::Expired, 100),
                    (1, 1, SEQ_LATE, Source::Late, -40),
                ]),
            ),
            (M + S, Do::Journal, Want::Entries(vec![])),
        ],
    );
}

pub fn l08_a_late_release_takes_the_charge_back(factory: Factory) {
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, [daily("t:cost", Measure::Cost, 1000, 100)])), Want::Admit),
            (0, renew(1), Want::Renewed(vec![100])),
            (60 * S, Do::Sweep, Want::Swept(1)),
            (M + S, failed(1), Want::Met(Met::Late)),
            (M + S, Do::Balance("t:cost"), Want::Is(0, 0)),
            (
                M + S,
                Do::Journal,
                Want::Entries(vec![
                    (1, 1, SEQ_END, Source::Expired, 100),
                    (1, 1, SEQ_LATE, Source::Late, -100),
                ]),
            ),
        ],
    );
}

pub fn l08_an_unknown_claim_is_unbooked(factory: Factory) {
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, [daily("t:cost", Measure::Cost, 1000, 100)])), Want::Admit),
            (0, renew(1), Want::Renewed(vec![100])),
            (60 * S, Do::Sweep, Want::Swept(1)),
            (60 * S, settle(9, [60]), Want::Met(Met::Unknown)),
            // Half an hour after its end nothing is known of it any more.
            (31 * M, settle(1, [60]), Want::Met(Met::Unknown)),
            (31 * M, Do::Balance("t:cost"), Want::Is(100, 0)),
            (
                31 * M,
                Do::Journal,
                Want::Entries(vec![
                    (1, 1, SEQ_END, Source::Expired, 100),
                    (9, 1, SEQ_UNBOOKED, Source::Unbooked, 0),
                    (1, 1, SEQ_UNBOOKED, Source::Unbooked, 0),
                ]),
            ),
        ],
    );
}

pub fn l08_an_old_settle_is_unbooked(factory: Factory) {
    let leg = || [daily("t:cost", Measure::Cost, 1000, 100)];
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, leg())), Want::Admit),
            (0, settle_old(1, [60], 25 * M + 1), Want::Met(Met::Unknown)),
            (0, Do::Balance("t:cost"), Want::Is(0, 100)),
            (0, settle_old(1, [60], 25 * M), Want::Met(Met::Held)),
            (0, Do::Balance("t:cost"), Want::Is(60, 0)),
            (
                0,
                Do::Journal,
                Want::Entries(vec![
                    (1, 1, SEQ_UNBOOKED, Source::Unbooked, 0),
                    (1, 1, SEQ_END, Source::Settled, 60),
                ]),
            ),
        ],
    );
}

pub fn l08_an_adjust_posts_once(factory: Factory) {
    let opens = Do::Adjust { id: 51, account: "t:new", day: crate::legs::START / S, delta: 30, opens: true };
    check(
        factory,
        vec![
            (0, adjust(50, "t:cost", -40), Want::Refused(Refusal::NoSuchQuota)),
            (0, Do::Reserve(call(1, [daily("t:cost", Measure::Cost, 1000, 100)])), Want::Admit),
            (0, settle(1, [100]), Want::Met(Met::Held)),
            (0, adjust(50, "t:cost", -40), Want::Applied(true)),
            (0, adjust(50, "t:cost", -40), Want::Applied(false)),
            (0, Do::Balance("t:cost"), Want::Is(60, 0)),
            (0, Do::Kill, Want::Nothing),
            (0, adjust(50, "t:cost", -40), Want::Applied(false)),
            (0, opens, Want::Applied(true)),
            (0, Do::Balance("t:new"), Want::Is(30, 0)),
            (0, Do::Reserve(call(2, [daily("t:new", Measure::Cost, 100, 71)])), Want::Spent(0, D)),
            (0, Do::Reserve(call(2, [daily("t:new", Measure::Cost, 100, 70)])), Want::Admit),
            (
                0,
                Do::Journal,
                Want::Entries(vec![
                    (1, 1, SEQ_END, Source::Settled, 100),
                    (50, 0, SEQ_ADJUST, Source::Adjusted, -40),
                    (51, 0, SEQ_ADJUST, Source::Adjusted, 30),
                ]),
            ),
        ],
    );
}

pub fn l08_the_journal_waits_for_its_store(factory: Factory) {
    let leg = || [daily("t:cost", Measure::Cost, 1000, 10)];
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, leg())), Want::Admit),
            (0, settle(1, [7]), Want::Met(Met::Held)),
            (0, Do::Reserve(call(2, leg())), Want::Admit),
            (0, failed(2), Want::Met(Met::Held)),
            (0, Do::Reserve(call(3, leg())), Want::Admit),
            (0, never_sent(3), Want::Met(Met::Held)),
            (0, settle(1, [7]), Want::Met(Met::Ended(End::Settled))),
            (0, Do::Kill, Want::Nothing),
            (
                0,
                Do::Journal,
                Want::Entries(vec![
                    (1, 1, SEQ_END, Source::Settled, 7),
                    (2, 1, SEQ_END, Source::Released, 0),
                ]),
            ),
            (0, Do::Restart, Want::Nothing),
            (0, Do::Journal, Want::Entries(vec![])),
        ],
    );
}

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
            (0, Do::Reserve(call(1, [lifetime("t:cost", most, most)])), Want::Holds(vec![most])),
            (0, settle(1, [most + 1]), Want::Refused(Refusal::Amount(0))),
            (0, settle(1, [1, 1]), Want::Refused(Refusal::ActualCount)),
            (0, settle(1, [most]), Want::Met(Met::Held)),
            (0, Do::Balance("t:cost"), Want::Is(most.cast_signed(), 0)),
            (0, Do::Reserve(call(2, [lifetime("t:cost", most, 1)])), Want::Exhausted(0)),
            (0, Do::Reserve(call(2, [])), Want::Refused(Refusal::NoLegs)),
        ],
    );
}

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

pub fn l17_a_shadow_limit_only_watches(factory: Factory) {
    let leg = || rpm("k:rpm", 1).shadow();
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, [leg()])), Want::Admit),
            (0, Do::Reserve(call(2, [leg()])), Want::Admit),
            (0, Do::Reserve(call(3, [leg()])), Want::Admit),
            (0, Do::Balance("k:rpm"), Want::Shadow(3, 0, 2, 2)),
            // A denial by others leaves no trace in it.
            (0, Do::Reserve(call(4, [leg(), rpm("k:zero", 0)])), Want::TooLarge(1)),
            (0, Do::Balance("k:rpm"), Want::Shadow(3, 0, 2, 2)),
        ],
    );
}

pub fn l17_a_shadow_limit_never_binds_beside_an_enforced_one(factory: Factory) {
    let leg = || tpm("k:tpm", 100, 60).also(10).shadow();
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, [leg()])), Want::Holds(vec![60])),
            (0, Do::Balance("k:tpm"), Want::Shadow(0, 60, 1, 60)),
            (0, settle(1, [60]), Want::Met(Met::Held)),
            (0, Do::Reserve(call(2, [leg()])), Want::Firm(0, 61 * S)),
            (0, Do::Balance("k:tpm"), Want::Shadow(60, 0, 1, 60)),
        ],
    );
}

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
