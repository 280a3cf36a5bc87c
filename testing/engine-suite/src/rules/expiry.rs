//! L7: what becomes of holds that nobody ends.

use tollbook_engine::ledger::{End, Measure, Met};
use tollbook_engine::{SEQ_END, SEQ_LATE, Source};

use crate::harness::Factory;
use crate::legs::{S, call, daily, rpm, tpm};
use crate::table::{Do, Want, check, renew, renew_at_door, settle};

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

pub fn l07_somebody_ends_a_sent_hold_before_it_is_due(factory: Factory) {
    let legs = || [rpm("k:rpm", 10), tpm("k:tpm", 100, 60), daily("t:cost", Measure::Cost, 100, 60)];
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, legs())), Want::Admit),
            // At the door it is about to be sent.
            (0, Do::ExpireNow(1), Want::NotDue),
            (5 * S, renew(1), Want::Renewed(vec![0, 60, 60])),
            (6 * S, Do::ExpireNow(1), Want::Expired),
            (6 * S, Do::ExpireNow(1), Want::Ended(End::Expired)),
            // What is freed and what is charged is as at any expiry.
            (6 * S, Do::Balance("k:rpm"), Want::Is(1, 0)),
            (6 * S, Do::Balance("k:tpm"), Want::Is(0, 0)),
            (6 * S, Do::Balance("t:cost"), Want::Is(60, 0)),
            (6 * S, renew(1), Want::RenewEnded(End::Expired)),
            // The call went on, and is booked when it ends.
            (9 * S, settle(1, [1, 70, 80]), Want::Met(Met::Late)),
            (9 * S, Do::Balance("t:cost"), Want::Is(80, 0)),
            (9 * S, settle(1, [1, 70, 80]), Want::Met(Met::Ended(End::Corrected))),
            (9 * S, Do::Kill, Want::Nothing),
            (9 * S, Do::Balance("t:cost"), Want::Is(80, 0)),
            (
                9 * S,
                Do::Journal,
                Want::Entries(vec![(1, 1, SEQ_END, Source::Expired, 60), (1, 1, SEQ_LATE, Source::Late, 20)]),
            ),
        ],
    );
}
