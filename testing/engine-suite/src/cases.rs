//! Cases from the field, as far as they are an engine's. Numbers are those of `cases/field-cases.md`.

use tollbook_engine::ledger::{End, Measure, Met, Profile};
use tollbook_engine::{SEQ_END, SEQ_LATE, Source};

use crate::harness::Factory;
use crate::legs::{D, H, L, M, R, S, call, daily, rate, rpm, slots, tpm};
use crate::table::{Do, Row, Want, adjust, check, failed, never_sent, renew, settle};

/// The same call again and again, from `first` on.
fn calls(at: u64, first: u128, count: u128, legs: impl Fn() -> Vec<L>, want: &Want) -> Vec<Row> {
    (first..first + count)
        .map(|id| {
            let call = R {
                id,
                attempt: 1,
                life: 15 * S,
                legs: legs(),
                context: Vec::new(),
                profile: Profile::default(),
            };
            (at, Do::Reserve(call), want.clone())
        })
        .collect()
}

pub fn b003_money_and_llm_tokens_are_held_together(factory: Factory) {
    let legs =
        || vec![daily("k:cost", Measure::Cost, 1_000_000, 7), daily("k:day", Measure::Tokens, 1000, 400)];
    let mut rows = calls(0, 1, 2, legs, &Want::Admit);
    rows.extend(calls(0, 3, 8, legs, &Want::Likely(1)));
    rows.push((0, Do::Balance("k:cost"), Want::Is(0, 14)));
    rows.push((0, Do::Balance("k:day"), Want::Is(0, 800)));
    check(factory, rows);
}

pub fn b005_a_refusal_by_concurrency_costs_no_request(factory: Factory) {
    let legs = || [rpm("k:rpm", 2), slots("k:slots", 1)];
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, legs())), Want::Admit),
            (S, Do::Reserve(call(2, legs())), Want::Likely(1)),
            (2 * S, settle(1, [1, 1]), Want::Met(Met::Held)),
            (3 * S, Do::Reserve(call(3, legs())), Want::Admit),
            (3 * S, Do::Balance("k:rpm"), Want::Is(2, 0)),
            (4 * S, settle(3, [1, 1]), Want::Met(Met::Held)),
            (5 * S, Do::Reserve(call(4, legs())), Want::Firm(0, 56 * S)),
        ],
    );
}

pub fn b006_a_denial_by_one_scope_charges_no_other(factory: Factory) {
    let hourly = |name, ceiling| rpm(name, ceiling).window(61, M);
    let both = || vec![hourly("t:rph", 100), hourly("p:rph", 10)];
    let mut rows = calls(0, 1, 10, both, &Want::Admit);
    rows.extend(calls(0, 11, 50, both, &Want::Firm(1, 61 * M)));
    rows.push((0, Do::Balance("t:rph"), Want::Is(10, 0)));
    rows.extend(calls(0, 100, 90, || vec![hourly("t:rph", 100)], &Want::Admit));
    rows.extend(calls(0, 200, 1, || vec![hourly("t:rph", 100)], &Want::Firm(0, 61 * M)));
    check(factory, rows);
}

pub fn b007_a_raised_limit_helps_at_once(factory: Factory) {
    let hourly = |ceiling| move || vec![rpm("k:rph", ceiling).window(61, M)];
    let mut rows = calls(0, 1, 10, hourly(10), &Want::Admit);
    rows.extend(calls(0, 11, 40, hourly(10), &Want::Firm(0, 61 * M)));
    rows.push((0, Do::Balance("k:rph"), Want::Is(10, 0)));
    rows.extend(calls(0, 100, 10, hourly(20), &Want::Admit));
    rows.extend(calls(0, 110, 1, hourly(20), &Want::Firm(0, 61 * M)));
    rows.push((0, Do::Balance("k:rph"), Want::Is(20, 0)));
    check(factory, rows);
}

pub fn b008_two_limits_over_one_account_cost_once(factory: Factory) {
    let leg = || vec![rpm("p:m:rpm", 10).also(10)];
    let mut rows = calls(0, 1, 10, leg, &Want::Admit);
    rows.push((0, Do::Balance("p:m:rpm"), Want::Is(10, 0)));
    rows.extend(calls(0, 11, 1, leg, &Want::Firm(0, 61 * S)));
    check(factory, rows);
}

pub fn b009_llm_tokens_are_counted_as_such(factory: Factory) {
    let leg = |demand| [tpm("k:tph", 400, demand).window(61, M)];
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, leg(90))), Want::Admit),
            (0, settle(1, [150]), Want::Overruns(vec![60])),
            (0, Do::Balance("k:tph"), Want::Is(150, 0)),
            (0, Do::Reserve(call(2, leg(90))), Want::Admit),
            (0, settle(2, [150]), Want::Overruns(vec![60])),
            (0, Do::Balance("k:tph"), Want::Is(300, 0)),
            (0, Do::Reserve(call(3, leg(101))), Want::Firm(0, 61 * M)),
            (0, Do::Reserve(call(3, leg(100))), Want::Admit),
        ],
    );
}

pub fn b010_one_call_above_the_whole_limit_is_told_never(factory: Factory) {
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, [tpm("k:tpm", 100, 16_000)])), Want::TooLarge(0)),
            (0, Do::Balance("k:tpm"), Want::NoAccount),
        ],
    );
}

pub fn b011_exactly_the_limit_is_admitted(factory: Factory) {
    let mut rows = calls(0, 1, 10, || vec![rpm("k:rpm", 10)], &Want::Admit);
    rows.extend(calls(0, 11, 1, || vec![rpm("k:rpm", 10)], &Want::Firm(0, 61 * S)));
    // Again after the state has been read back from the disk.
    rows.push((0, Do::Restart, Want::Nothing));
    rows.extend(calls(0, 11, 1, || vec![rpm("k:rpm", 10)], &Want::Firm(0, 61 * S)));
    rows.extend(calls(0, 20, 1, || vec![tpm("k:tpm", 10, 10)], &Want::Admit));
    rows.extend(calls(0, 21, 1, || vec![tpm("k:tpm", 10, 1)], &Want::Likely(0)));
    check(factory, rows);
}

pub fn b016_aborted_calls_leave_no_money_held(factory: Factory) {
    let leg = || [daily("k:cost", Measure::Cost, 10_000_000, 1_000_000)];
    let mut rows = Vec::new();
    for id in 1..=50 {
        rows.push((0, Do::Reserve(call(id, leg())), Want::Admit));
        rows.push((0, renew(id), Want::Renewed(vec![1_000_000])));
        rows.push((0, failed(id), Want::Met(Met::Held)));
    }
    rows.push((0, Do::Balance("k:cost"), Want::Is(0, 0)));
    rows.push((0, Do::Reserve(call(99, leg())), Want::Admit));
    check(factory, rows);
}

pub fn b020_failed_calls_lock_no_slot(factory: Factory) {
    let leg = || [slots("k:slots", 10)];
    let mut rows = Vec::new();
    for batch in 0..5 {
        let ids = batch * 10 + 1..=batch * 10 + 10;
        rows.extend(ids.clone().map(|id| (0, Do::Reserve(call(id, leg())), Want::Admit)));
        rows.extend(ids.clone().map(|id| (0, renew(id), Want::Renewed(vec![1]))));
        rows.push((0, Do::Reserve(call(999, leg())), Want::Likely(0)));
        rows.extend(ids.map(|id| (0, failed(id), Want::Met(Met::Held))));
    }
    rows.push((0, Do::Balance("k:slots"), Want::Is(0, 0)));
    rows.push((0, Do::Reserve(call(1000, leg())), Want::Admit));
    check(factory, rows);
}

pub fn b021_holds_of_a_dead_gateway_expire_one_by_one(factory: Factory) {
    let leg = || vec![slots("k:slots", 4)];
    let mut rows = calls(0, 1, 3, leg, &Want::Admit);
    // New traffic renews nothing of theirs.
    for second in 1..15 {
        let id = u128::from(second) + 100;
        rows.extend(calls(second * S, id, 1, leg, &Want::Admit));
        rows.push((second * S, settle(id, [0]), Want::Met(Met::Held)));
    }
    rows.push((14 * S, Do::Balance("k:slots"), Want::Is(0, 3)));
    rows.push((15 * S, Do::Sweep, Want::Swept(3)));
    rows.push((15 * S, Do::Balance("k:slots"), Want::Is(0, 0)));
    check(factory, rows);
}

pub fn b023_a_slot_is_taken_until_the_end(factory: Factory) {
    let leg = || [slots("k:slots", 2)];
    let mut rows =
        vec![(0, Do::Reserve(call(1, leg())), Want::Admit), (0, Do::Reserve(call(2, leg())), Want::Admit)];
    for second in 1..=10 {
        rows.push((second * S, renew(1), Want::Renewed(vec![1])));
        rows.push((second * S, renew(2), Want::Renewed(vec![1])));
        rows.push((second * S, Do::Reserve(call(3, leg())), Want::Likely(0)));
    }
    rows.push((10 * S, settle(1, [0]), Want::Met(Met::Held)));
    rows.push((10 * S, Do::Reserve(call(3, leg())), Want::Admit));
    check(factory, rows);
}

pub fn b024_a_settled_stream_gives_the_rest_back(factory: Factory) {
    let leg = || [daily("k:day", Measure::Tokens, 10_000, 4000)];
    let mut rows = Vec::new();
    for id in 1..=20 {
        rows.push((0, Do::Reserve(call(id, leg())), Want::Admit));
        rows.push((0, settle(id, [100]), Want::Met(Met::Held)));
    }
    rows.push((0, Do::Balance("k:day"), Want::Is(2000, 0)));
    check(factory, rows);
}

pub fn b025_of_two_endings_one_counts(factory: Factory) {
    let leg = || [daily("k:day", Measure::Tokens, 10_000, 400)];
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, leg())), Want::Admit),
            (S, settle(1, [150]), Want::Met(Met::Held)),
            (S, failed(1), Want::Met(Met::Ended(End::Settled))),
            (S, never_sent(1), Want::Met(Met::Ended(End::Settled))),
            (S, settle(1, [150]), Want::Met(Met::Ended(End::Settled))),
            (S, Do::Balance("k:day"), Want::Is(150, 0)),
            (S, Do::Journal, Want::Entries(vec![(1, 1, SEQ_END, Source::Settled, 150)])),
        ],
    );
}

pub fn b028_orphan_holds_are_gone_after_expiry_and_sweep(factory: Factory) {
    let leg = || vec![daily("k:day", Measure::Tokens, 10_000, 1000)];
    let mut rows = calls(0, 1, 5, leg, &Want::Holds(vec![1000]));
    rows.extend((1..=5).map(|id| (0, renew(id), Want::Renewed(vec![1000]))));
    rows.push((S, Do::Kill, Want::Nothing));
    rows.push((S, Do::Balance("k:day"), Want::Is(0, 5000)));
    rows.push((61 * S, Do::Sweep, Want::Swept(5)));
    rows.push((61 * S, Do::Balance("k:day"), Want::Is(5000, 0)));
    let entries = (1..=5).map(|id| (id, 1, SEQ_END, Source::Expired, 1000)).collect();
    rows.push((61 * S, Do::Journal, Want::EntriesInAnyOrder(entries)));
    check(factory, rows);
}

pub fn b030_a_reset_stays_and_holds_settle_after_it(factory: Factory) {
    let leg = |demand| [daily("k:cost", Measure::Cost, 1000, demand)];
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, leg(700))), Want::Admit),
            (0, settle(1, [700]), Want::Met(Met::Held)),
            (0, Do::Reserve(call(2, leg(200))), Want::Admit),
            (0, adjust(77, "k:cost", -700), Want::Applied(true)),
            (0, Do::Kill, Want::Nothing),
            (0, Do::Balance("k:cost"), Want::Is(0, 200)),
            (0, settle(2, [150]), Want::Met(Met::Held)),
            (0, Do::Reserve(call(3, leg(10))), Want::Admit),
            (0, settle(3, [10]), Want::Met(Met::Held)),
            (0, Do::Balance("k:cost"), Want::Is(160, 0)),
        ],
    );
}

pub fn b031_a_hold_that_expires_under_a_running_call(factory: Factory) {
    let leg = || [daily("k:day", Measure::Tokens, 1000, 400)];
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, leg()).life(5 * S)), Want::Admit),
            (0, renew(1), Want::Renewed(vec![400])),
            (60 * S, Do::Sweep, Want::Swept(1)),
            (68 * S, Do::Reserve(call(2, leg())), Want::Admit),
            (72 * S, settle(1, [300]), Want::Met(Met::Late)),
            (72 * S, settle(1, [300]), Want::Met(Met::Ended(End::Corrected))),
            (72 * S, Do::Balance("k:day"), Want::Is(300, 400)),
            (
                72 * S,
                Do::Journal,
                Want::Entries(vec![
                    (1, 1, SEQ_END, Source::Expired, 400),
                    (1, 1, SEQ_LATE, Source::Late, -100),
                ]),
            ),
        ],
    );
}

pub fn b031_a_renewed_hold_is_seen_and_settles(factory: Factory) {
    let leg = || [daily("k:day", Measure::Tokens, 500, 400)];
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, leg()).life(5 * S)), Want::Admit),
            (4 * S, renew(1), Want::Renewed(vec![400])),
            (8 * S, Do::Sweep, Want::Swept(0)),
            (8 * S, Do::Reserve(call(2, leg())), Want::Likely(0)),
            (12 * S, settle(1, [300]), Want::Met(Met::Held)),
            (12 * S, Do::Balance("k:day"), Want::Is(300, 0)),
        ],
    );
}

pub fn b087_money_adds_up_to_the_last_unit(factory: Factory) {
    let leg = |nano| [daily("k:cost", Measure::Cost, 1_000_000_000, nano)];
    let mut rows = Vec::new();
    for id in 1..=10 {
        rows.push((0, Do::Reserve(call(id, leg(100_000_000))), Want::Admit));
        rows.push((0, settle(id, [100_000_000]), Want::Met(Met::Held)));
    }
    rows.push((0, Do::Balance("k:cost"), Want::Is(1_000_000_000, 0)));
    rows.push((0, Do::Reserve(call(11, leg(1))), Want::Spent(0, D)));
    let entries = (1..=10).map(|id| (id, 1, SEQ_END, Source::Settled, 100_000_000)).collect();
    rows.push((0, Do::Journal, Want::Entries(entries)));
    check(factory, rows);
}

pub fn b088_the_smallest_charges_count(factory: Factory) {
    let leg = |nano| [daily("k:cost", Measure::Cost, 3_000_000_000, nano)];
    let mut rows = Vec::new();
    for id in 1..=1000 {
        rows.push((0, Do::Reserve(call(id, leg(3_000_000))), Want::Admit));
        rows.push((0, settle(id, [3_000_000]), Want::Met(Met::Held)));
    }
    rows.push((0, Do::Reserve(call(1001, leg(3_000_000))), Want::Spent(0, D)));
    rows.push((0, Do::Reserve(call(2000, [daily("k:small", Measure::Cost, 10, 1)])), Want::Admit));
    rows.push((0, settle(2000, [1]), Want::Met(Met::Held)));
    rows.push((0, Do::Balance("k:small"), Want::Is(1, 0)));
    check(factory, rows);
}

pub fn b181_two_counters_roll_over_by_themselves(factory: Factory) {
    let minute = |name, measure, ceiling, demand| daily(name, measure, ceiling, demand).every(M);
    let legs =
        |demand| [minute("k:rpm", Measure::Requests, 500, 1), minute("k:tpm", Measure::Tokens, 200, demand)];
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, legs(150))), Want::Admit),
            (0, settle(1, [1, 150]), Want::Met(Met::Held)),
            (M, Do::Reserve(call(2, legs(100))), Want::Admit),
            (M, settle(2, [1, 100]), Want::Met(Met::Held)),
            (M, Do::Balance("k:tpm"), Want::Is(100, 0)),
            (M, Do::Balance("k:rpm"), Want::Is(1, 0)),
        ],
    );
}

pub fn b182_steady_traffic_under_the_limit_is_never_refused(factory: Factory) {
    let mut rows = Vec::new();
    for second in 0..300_u64 {
        let id = u128::from(second) + 1;
        rows.push((second * S, Do::Reserve(call(id, [tpm("k:tpm", 600, 5)])), Want::Admit));
        rows.push((second * S, settle(id, [5]), Want::Met(Met::Held)));
    }
    rows.push((299 * S, Do::Balance("k:tpm"), Want::Is(305, 0)));
    check(factory, rows);
}

pub fn b183_a_budget_does_not_refill(factory: Factory) {
    let leg = || [daily("k:cost", Measure::Cost, 1_000_000_000, 100_000_000)];
    let mut rows = Vec::new();
    for n in 0..10_u64 {
        let id = u128::from(n) + 1;
        rows.push((n * 12 * M, Do::Reserve(call(id, leg())), Want::Admit));
        rows.push((n * 12 * M, settle(id, [100_000_000]), Want::Met(Met::Held)));
        let posted = i64::try_from(n).unwrap_or(0) * 100_000_000 + 100_000_000;
        rows.push((n * 12 * M, Do::Balance("k:cost"), Want::Is(posted, 0)));
    }
    rows.push((2 * H, Do::Reserve(call(11, leg())), Want::Spent(0, 22 * H)));
    check(factory, rows);
}

pub fn b184_time_never_goes_back_for_a_window(factory: Factory) {
    let leg = || vec![rate("k:rps", Measure::Requests, 150).window(2, S)];
    let mut rows = calls(10 * S + 900_000, 1, 150, leg, &Want::Admit);
    rows.push((10 * S + 900_000, Do::StepBack(S), Want::Nothing));
    // No promise beyond the window while the clock is behind.
    rows.extend(calls(9 * S + 900_000, 200, 1, leg, &Want::Likely(0)));
    rows.extend(calls(11 * S, 201, 1, leg, &Want::Firm(0, S)));
    rows.extend(calls(12 * S, 202, 150, leg, &Want::Admit));
    check(factory, rows);
}

pub fn b185_a_clock_that_jumps_back_and_forth(factory: Factory) {
    let leg = || vec![rpm("k:rpm", 10), daily("k:day", Measure::Requests, 20, 1)];
    let mut rows = calls(5 * H, 1, 3, leg, &Want::Admit);
    rows.push((5 * H, Do::StepBack(2 * H), Want::Nothing));
    rows.extend(calls(3 * H, 4, 7, leg, &Want::Admit));
    rows.push((3 * H, Do::Balance("k:rpm"), Want::Is(10, 0)));
    rows.extend(calls(3 * H, 11, 1, leg, &Want::Firm(0, 61 * S)));
    // A day ahead and back: the new day is not given twice, nothing is negative.
    rows.extend(calls(27 * H, 20, 1, leg, &Want::Admit));
    rows.push((27 * H, Do::StepBack(24 * H), Want::Nothing));
    rows.extend(calls(3 * H, 21, 1, leg, &Want::Admit));
    rows.push((3 * H, Do::Balance("k:day"), Want::Is(2, 0)));
    check(factory, rows);
}

pub fn b187_a_call_that_crosses_midnight(factory: Factory) {
    let leg = |demand| [daily("k:cost", Measure::Cost, 1000, demand)];
    check(
        factory,
        vec![
            (D - 2 * S, Do::Reserve(call(1, leg(400))), Want::Admit),
            (D + S, Do::Reserve(call(2, leg(1000))), Want::Admit),
            (D + S, never_sent(2), Want::Met(Met::Held)),
            (D + 5 * S, settle(1, [350]), Want::Met(Met::Held)),
            (D + 5 * S, Do::Balance("k:cost"), Want::Is(0, 0)),
            (D + 5 * S, Do::Journal, Want::Entries(vec![(1, 1, SEQ_END, Source::Settled, 350)])),
        ],
    );
}

/// Used amounts are kept, not what was left of an old limit; another window is another account.
pub fn b211_a_changed_limit_meets_what_was_used(factory: Factory) {
    let rate = |ceiling, demand| [tpm("k:tpm", ceiling, demand)];
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, rate(1_000, 300))), Want::Admit),
            (0, settle(1, [300]), Want::Met(Met::Held)),
            (S, Do::Reserve(call(2, rate(200, 1))), Want::Firm(0, 60 * S)),
            (S, Do::Reserve(call(3, rate(2_000, 1_701))), Want::Firm(0, 60 * S)),
            (S, Do::Reserve(call(4, rate(2_000, 1_700))), Want::Admit),
            (
                S,
                Do::Reserve(call(5, [tpm("k:tpm of five minutes", 300, 300).window(61, 5 * S)])),
                Want::Admit,
            ),
            (S, Do::Balance("k:tpm"), Want::Is(300, 1_700)),
        ],
    );
}

pub fn b189_a_new_day_needs_no_job(factory: Factory) {
    let leg = || vec![daily("k:day", Measure::Requests, 3, 1)];
    let mut rows = calls(D - S, 1, 3, leg, &Want::Admit);
    rows.extend(calls(D - S, 4, 1, leg, &Want::Spent(0, S)));
    rows.push((D - S, Do::Kill, Want::Nothing));
    rows.extend(calls(D - 1, 4, 1, leg, &Want::Spent(0, 1)));
    rows.extend(calls(D, 5, 3, leg, &Want::Admit));
    check(factory, rows);
}
