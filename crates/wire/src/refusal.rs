//! What an upstream's refusal means, and how long to wait.
//!
//! Classes follow what the refusal says in its body first, then its status. Hints are read from
//! `retry-after-ms`, `retry-after`, and else from the reset times of the budgets that are used up.
//! Invariants: a hint is at most `WAIT_MS_MAX`; junk is no hint, never a wait of zero. The clock is the caller's.

use crate::body::read_usage;
use crate::instant::{duration_ms, http_date, number_ms, rfc3339};
use crate::meter::UpstreamErrorFacts;
use crate::surface::{Dialect, Surface};

/// Longest wait that is taken from an upstream: one day.
pub const WAIT_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// A wait above this is no matter of a minute's window.
const MINUTE_MS: u64 = 60_000;
/// Plain numbers from here on are points in time, not durations.
const EPOCH_FROM_S: u64 = 1_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalClass {
    /// A window is full: wait, or try another target.
    Wait,
    /// A day's or month's quota is used up.
    ExhaustedUntil,
    /// Money or account trouble: waiting does not help.
    Permanent,
    /// The upstream has too much to do; this says nothing about our quota.
    Overload,
    /// The rate rose too fast.
    Ramp,
    /// This one request is larger than the limit.
    TooLarge,
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub class: RefusalClass,
    /// How long the upstream asks to wait, if it said so in a way that can be read.
    pub wait_ms: Option<u64>,
    pub facts: UpstreamErrorFacts,
}

/// Reads a refusal. `headers` are all header lines of the answer, names in any case, repeated ones included;
/// `now_ms` is the Unix time, for hints that name an instant.
pub fn classify_refusal(
    dialect: Dialect,
    status: u16,
    headers: &[(&str, &str)],
    body: &[u8],
    now_ms: u64,
) -> Refusal {
    let surface = match dialect {
        Dialect::OpenAi => Surface::Chat,
        Dialect::Anthropic => Surface::Messages,
    };
    let facts = read_usage(surface, body).error.unwrap_or_default();
    let wait_ms = wait_hint(headers, now_ms).map(|ms| ms.min(WAIT_MS_MAX));
    Refusal { class: classify(status, &facts, wait_ms), wait_ms, facts }
}

const PERMANENT: [&str; 9] = [
    "insufficient_quota",
    "billing_error",
    "billing_hard_limit_reached",
    "billing_not_active",
    "exceeded_current_quota_error",
    "Arrearage",
    "AccountOverdueError",
    "access_terminated",
    "1113",
];
const SPENT: [&str; 2] = ["enforced_spend_limit_reached", "contract_spend_limit_reached"];
const RAMP: [&str; 4] =
    ["ramp_limit_exceeded", "limit_burst_rate", "Throttling.BurstRate", "RequestBurstTooFast"];
const OVERLOAD: [&str; 5] =
    ["overloaded_error", "engine_overloaded_error", "ServerOverloaded", "UNAVAILABLE", "1305"];

fn classify(status: u16, facts: &UpstreamErrorFacts, wait_ms: Option<u64>) -> RefusalClass {
    let is = |words: &[&str]| words.contains(&facts.code.as_str()) || words.contains(&facts.kind.as_str());
    let says = |phrase: &str| contains_ignore_case(&facts.message, phrase);
    if is(&SPENT) {
        RefusalClass::ExhaustedUntil
    } else if is(&PERMANENT) || status == 402 || (status == 400 && says("specified API usage limits")) {
        RefusalClass::Permanent
    } else if is(&RAMP) || (matches!(status, 429 | 503) && says("slow down")) {
        RefusalClass::Ramp
    } else if status == 413 || (status == 429 && says("request too large")) {
        RefusalClass::TooLarge
    } else if is(&OVERLOAD) || matches!(status, 503 | 529) {
        RefusalClass::Overload
    } else if status == 429 {
        let daily = ["per day", "(RPD)", "(TPD)", "PerDay", "daily"].iter().any(|phrase| says(phrase));
        if daily || wait_ms.is_some_and(|ms| ms > MINUTE_MS) {
            RefusalClass::ExhaustedUntil
        } else {
            RefusalClass::Wait
        }
    } else {
        RefusalClass::Other
    }
}

fn contains_ignore_case(text: &str, phrase: &str) -> bool {
    text.as_bytes().windows(phrase.len()).any(|window| window.eq_ignore_ascii_case(phrase.as_bytes()))
}

fn wait_hint(headers: &[(&str, &str)], now_ms: u64) -> Option<u64> {
    let lines = |name: &str| {
        let name = name.to_owned();
        headers.iter().filter(move |(key, _)| key.eq_ignore_ascii_case(&name)).map(|(_, value)| value.trim())
    };
    // Of several lines the longest wait counts.
    let exact = lines("retry-after-ms").filter_map(|value| number_ms(value, 1)).max();
    let seconds = || lines("retry-after").filter_map(|value| retry_after(value, now_ms)).max();
    exact.or_else(seconds).or_else(|| reset_hint(headers, now_ms))
}

/// Seconds, also fractional, or an HTTP date. A date in the past is a wait of zero.
fn retry_after(value: &str, now_ms: u64) -> Option<u64> {
    number_ms(value, 1000).or_else(|| http_date(value).map(|at| at.saturating_sub(now_ms)))
}

/// The latest reset among the budgets that are used up. One with something left does not count; one
/// that does not tell what is left does.
fn reset_hint(headers: &[(&str, &str)], now_ms: u64) -> Option<u64> {
    let find =
        |name: &str| headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, v)| v.trim());
    let mut latest = None;
    for (key, value) in headers {
        let key = key.to_ascii_lowercase();
        let remaining = if let Some(budget) = key.strip_prefix("x-ratelimit-reset-") {
            find(&format!("x-ratelimit-remaining-{budget}"))
        } else if key.starts_with("anthropic-") && key.ends_with("-reset") {
            find(&key.replace("-reset", "-remaining"))
        } else {
            continue;
        };
        if remaining.is_some_and(|n| n != "0") {
            continue;
        }
        latest = latest.max(reset(value.trim(), now_ms));
    }
    latest
}

/// `6m0s`, `60` (seconds), `1705312200` (an instant) or RFC 3339.
fn reset(value: &str, now_ms: u64) -> Option<u64> {
    if let Some(ms) = number_ms(value, 1000) {
        let instant = ms >= EPOCH_FROM_S * 1000;
        return Some(if instant { ms.saturating_sub(now_ms) } else { ms });
    }
    duration_ms(value).or_else(|| rfc3339(value).map(|at| at.saturating_sub(now_ms)))
}
