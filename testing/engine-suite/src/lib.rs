//! The conformance suite of the engine port: written once, run over every engine.
//!
//! An engine's own tests bring a [`Factory`] and call [`engine_suite!`], which stamps every case as a test of theirs.
//! Cases named `l<nn>_…` prove a rule of the ledger, cases named `b<nnn>_…` a case from the field. They go through the
//! port alone; what an engine cannot do (put its time back, be killed) its harness answers with false or skips.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a library of tests: a failure is a panic"
)]

pub mod bursts;
pub mod cases;
pub mod faults;
mod harness;
pub mod legs;
pub mod lockstep;
pub mod plans;
pub mod random;
pub mod rules;
pub mod table;

pub use harness::{Factory, Harness, wait};

/// Stamps the cases of one module as tests.
#[doc(hidden)]
#[macro_export]
macro_rules! engine_suite_cases {
    (together $factory:expr, $module:ident: $($case:ident)+) => {
        #[test]
        fn $module() {
            $(
                std::println!(stringify!($case));
                $crate::$module::$case($factory);
            )+
        }
    };
    (each $factory:expr, $module:ident: $($case:ident)+) => {
        mod $module {
            use super::*;
            $(
                #[test]
                fn $case() {
                    $crate::$module::$case($factory);
                }
            )+
        }
    };
}

/// Stamps the comparison with the pure ledger; a short one where cases run together.
#[doc(hidden)]
#[macro_export]
macro_rules! engine_suite_lockstep {
    (together $factory:ident) => {
        $crate::engine_suite_cases!(together $factory, lockstep: a_short_run_answers_as_the_model_does);
    };
    (each $factory:ident) => {
        $crate::engine_suite_cases!(each $factory, lockstep:
            random_commands_answer_as_the_model_does
            random_commands_with_kills_answer_as_the_model_does
            l14_firm_hints_are_kept
            ids_are_used_in_full
        );
    };
}

/// Stamps every case of the suite as a test against the engines that a factory makes; `together`: a test for each module,
/// where what a test's process needs takes long to start.
#[macro_export]
macro_rules! engine_suite {
    ($factory:ident) => {
        $crate::engine_suite!(each $factory);
    };
    ($stamp:ident $factory:ident) => {
        $crate::engine_suite_cases!($stamp $factory, rules:
            l01_all_legs_or_none
            l01_what_is_free_has_room_on_a_spent_account
            l01_a_denial_opens_no_account
            l01_a_limit_may_count_denials
            l02_a_repeat_gets_the_first_answer
            l02_a_denied_id_is_decided_anew
            l02_memory_of_an_end_survives_a_restart
            l03_the_first_claim_wins
            l03_an_expired_one_is_corrected_once
            l04_settle_posts_in_full
            l05_usage_lands_where_the_hold_was_named
            l05_a_period_that_is_over_takes_its_bills
            l06_requests_are_posted_at_the_door
            l06_what_left_the_ring_is_not_given_back
            l06_requests_of_a_quota_go_back_to_their_day
            l07_a_hold_at_the_door_gives_everything_back
            l07_a_sent_hold_is_released_or_charged
            l07_the_expected_demand_is_charged_not_the_worst
            l07_a_due_hold_is_revived_and_an_expired_one_is_not
            l07_holds_expire_after_a_restart
            l07_somebody_ends_a_sent_hold_before_it_is_due
            l08_a_late_settle_corrects_quotas_only
            l08_a_late_release_takes_the_charge_back
            l08_an_unknown_claim_is_unbooked
            l08_an_old_settle_is_unbooked
            l08_an_adjust_posts_once
            l08_the_journal_waits_for_its_store
            l09_soft_limits_grow_without_question
            l09_hard_limits_grow_as_decided
            l09_a_hold_at_the_worst_case_never_grows
            l12_the_engine_names_the_period
            l12_a_period_is_never_opened_twice
            l12_a_small_step_back_stands_still
            l12_a_large_step_back_restarts_the_ring
            l12_a_start_before_the_last_time_is_a_step_back
            l13_amounts_are_bounded_at_the_edge
            l14_never_comes_first_then_the_longest_wait
            l14_admitted_at_the_promised_instant
            l14_holds_in_the_way_are_likely_waits
            l14_weights_are_hinted_exactly
            l15_a_small_soft_limit_runs_one_call
            l15_estimates_learn_from_settled_output
            l17_a_shadow_limit_only_watches
            l17_a_shadow_limit_never_binds_beside_an_enforced_one
            l18_rebook_keeps_the_difference
            l18_a_denied_rebook_writes_nothing
            l18_the_ended_attempt_posts_what_it_used
            l18_a_period_that_was_named_is_kept
            l18_requests_carried_over_can_still_be_given_back
        );
        $crate::engine_suite_cases!($stamp $factory, cases:
            b003_money_and_llm_tokens_are_held_together
            b005_a_refusal_by_concurrency_costs_no_request
            b006_a_denial_by_one_scope_charges_no_other
            b007_a_raised_limit_helps_at_once
            b008_two_limits_over_one_account_cost_once
            b009_llm_tokens_are_counted_as_such
            b010_one_call_above_the_whole_limit_is_told_never
            b011_exactly_the_limit_is_admitted
            b016_aborted_calls_leave_no_money_held
            b020_failed_calls_lock_no_slot
            b021_holds_of_a_dead_gateway_expire_one_by_one
            b023_a_slot_is_taken_until_the_end
            b024_a_settled_stream_gives_the_rest_back
            b025_of_two_endings_one_counts
            b028_orphan_holds_are_gone_after_expiry_and_sweep
            b030_a_reset_stays_and_holds_settle_after_it
            b031_a_hold_that_expires_under_a_running_call
            b031_a_renewed_hold_is_seen_and_settles
            b087_money_adds_up_to_the_last_unit
            b088_the_smallest_charges_count
            b181_two_counters_roll_over_by_themselves
            b182_steady_traffic_under_the_limit_is_never_refused
            b183_a_budget_does_not_refill
            b184_time_never_goes_back_for_a_window
            b185_a_clock_that_jumps_back_and_forth
            b187_a_call_that_crosses_midnight
            b189_a_new_day_needs_no_job
            b211_a_changed_limit_meets_what_was_used
        );
        $crate::engine_suite_cases!($stamp $factory, faults:
            l07_a_denial_names_due_holds
            l10_held_is_the_sum_after_any_mix_of_endings
            l10_repair_loses_a_race_harmlessly
            l11_a_negative_held_counts_as_zero
            l14_a_denial_tells_the_room_of_every_leg
            l14_a_likely_wait_is_within_bounds
            a_reservation_and_an_account_can_be_inspected
            a_shard_can_be_surveyed
            a_large_shard_is_surveyed_whole_or_cut
            unsupported_verbs_say_so
            every_reply_carries_the_engine_time
        );
        $crate::engine_suite_cases!($stamp $factory, plans:
            l01_a_strict_window_keeps_the_door_second
            l04_settle_corrects_the_input_in_its_second
            l05_output_is_planned_into_its_seconds
            l06_l07_input_goes_back_unless_it_was_sent
            l09_a_plan_does_not_grow_by_renewal
            l12_a_step_back_keeps_what_landed
            l14_a_plan_in_the_way_is_a_firm_wait
            l15_the_estimate_gives_way_to_the_limit
            progress_replaces_plan_by_fact_once
            plans_survive_a_kill_and_die_by_themselves
            a_stream_that_outgrows_its_forecast_teaches_the_next_call
            every_estimator_learns_its_way
        );
        $crate::engine_suite_cases!($stamp $factory, bursts:
            l01_200_parallel_calls_against_room_for_10_requests
            l01_200_parallel_calls_against_room_for_10_slots
            l01_200_parallel_calls_against_room_for_10_estimates
            b001_a_burst_against_a_token_limit
            b002_a_burst_of_first_calls_against_money
        );
        $crate::engine_suite_lockstep!($stamp $factory);
    };
}
