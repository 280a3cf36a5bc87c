//! L8: what comes after an expiry, what belongs to nobody, and the journal.

use tollbook_engine::ledger::{End, Measure, Met, Refusal};
use tollbook_engine::{SEQ_ADJUST, SEQ_END, SEQ_LATE, SEQ_UNBOOKED, Source};

use crate::harness::Factory;
use crate::legs::{D, M, S, call, daily, tpm};
use crate::table::{Do, Want, adjust, check, failed, never_sent, renew, settle, settle_old};

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
