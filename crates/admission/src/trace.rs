//! What a trace is told of the book: the hold at the door, the charge at the end.

use tollbook_telemetry::trace::{CallTrace, Key};

use crate::charge::Charge;
use crate::outcome::{Ending, Outcome};
use crate::ticket::Open;

/// A call was let in.
pub(crate) fn admitted(call: &CallTrace, open: &Open) {
    let names = open.bound.entry_names();
    call.put(Key::Decision, "admit");
    call.put(Key::Tenant, &names.tenant);
    call.put(Key::Project, &names.project);
    call.put(Key::Pool, &names.pool);
    call.put(Key::Generation, open.bound.snapshot.generation);
    call.put(Key::HoldLlmTokens, open.hold.expected_llm_tokens);
    call.put(Key::HoldWorstLlmTokens, open.hold.worst_llm_tokens);
    if open.bound.price.is_some() {
        call.put(Key::HoldNano, open.hold.expected_cost_nano);
    }
}

/// A call is over.
pub(crate) fn ended(call: &CallTrace, open: &Open, outcome: &Outcome, charge: &Charge) {
    call.put(Key::Ending, outcome.ending.word());
    call.put(Key::Figures, charge.figures().word());
    call.put(Key::Attempts, u64::from(open.attempts));
    if let Some(first) = outcome.first_output {
        let millis = first.saturating_duration_since(open.started).as_millis();
        call.put(Key::FirstOutput, u64::try_from(millis).unwrap_or(u64::MAX));
    }
    match charge {
        Charge::Release(_) => call.put(Key::ActualLlmTokens, 0),
        Charge::Settle(settle) => {
            if let Some(usage) = &settle.usage {
                call.put(Key::ActualLlmTokens, usage.input.saturating_add(usage.output));
                call.put(Key::InputUsage, usage.input);
                call.put(Key::OutputUsage, usage.output);
                for (key, part) in [
                    (Key::CacheReadUsage, usage.cached),
                    (Key::CacheWriteUsage, usage.cache_write),
                    (Key::ReasoningUsage, usage.reasoning),
                ] {
                    if part > 0 {
                        call.put(key, part);
                    }
                }
            }
            if open.bound.price.is_some() {
                call.put(Key::ActualNano, settle.cost(open));
            }
        }
    }
    // A stop at a limit is a clean end, which was asked for.
    if !matches!(outcome.ending, Ending::Complete | Ending::StoppedAtLimit) {
        call.fail(outcome.ending.word());
    }
    call.end();
}
