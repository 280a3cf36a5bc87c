//! Entries as the rows the insert statements take: JSON twins whose members are named as the columns.

use serde::Serialize;
use tollbook_ledger::{AMOUNT_MAX, Posted};
use tollbook_store::{Entry, Name, Side, Total, Usage, signed};

/// One row of `entry`.
#[derive(Serialize)]
pub(crate) struct EntryLine<'a> {
    reservation: String,
    side: u8,
    attempt: u16,
    seq: u16,
    unbooked: u8,
    origin: u8,
    day: u32,
    admitted_at: i64,
    ended_at: i64,
    requests: i64,
    request_id: &'a str,
    tenant: &'a str,
    project: &'a str,
    key_id: &'a str,
    service: &'a str,
    end_user: &'a str,
    model_asked: &'a str,
    model_priced: &'a str,
    model_used: &'a str,
    pool: &'a str,
    #[serde(flatten)]
    usage: UsageLine,
    cost_nano: i64,
    price_version: i64,
    hold_input: i64,
    hold_expected: i64,
    hold_worst: i64,
    hold_expected_cost_nano: i64,
    hold_worst_cost_nano: i64,
    charged_on_expiry: u8,
    figures: u8,
    ending: u8,
    overrun_llm_tokens: i64,
    overrun_cost_nano: i64,
    ladder: Vec<&'a str>,
    latency_ms: u32,
    ttft_ms: Option<u32>,
    attempts: u16,
    flags: u8,
}

/// The usage columns, the same in `entry` and `total`.
#[derive(Serialize)]
struct UsageLine {
    input: i64,
    cached: i64,
    cache_write: i64,
    cache_write_1h: i64,
    output: i64,
    reasoning: i64,
    audio_input: i64,
    audio_output: i64,
    image_input: i64,
    web_searches: i64,
}

/// One row of `total`.
#[derive(Serialize)]
pub(crate) struct TotalLine<'a> {
    day: u32,
    side: u8,
    tenant: &'a str,
    pool: &'a str,
    model: &'a str,
    entries: i64,
    requests: i64,
    #[serde(flatten)]
    usage: UsageLine,
    cost_nano: i64,
}

/// One row of `posted`: place, leg, subject, account, period, amount.
pub(crate) type PostedLine = (i64, usize, i64, i64, i64, i64);

pub(crate) fn entry_line(entry: &Entry) -> EntryLine<'_> {
    let body = &entry.body;
    let hold = &body.hold;
    EntryLine {
        reservation: entry.reservation.to_string(),
        side: body.side.code(),
        attempt: entry.attempt,
        seq: entry.seq,
        unbooked: u8::from(entry.is_unbooked()),
        origin: entry.origin.code(),
        day: entry.day().0,
        admitted_at: stored(entry.admitted_at),
        ended_at: stored(entry.ended_at),
        requests: bounded(entry.requests),
        request_id: &body.request_id,
        tenant: &body.tenant,
        project: &body.project,
        key_id: &body.key,
        service: &body.service,
        end_user: &body.user,
        model_asked: &body.model_asked,
        model_priced: &body.model_priced,
        model_used: &body.model_used,
        pool: &body.pool,
        usage: usage_line(&body.usage, bounded),
        cost_nano: bounded(body.cost_nano),
        price_version: body.price_version.cast_signed(),
        hold_input: signed(hold.input_llm_tokens),
        hold_expected: signed(hold.expected_llm_tokens),
        hold_worst: signed(hold.worst_llm_tokens),
        hold_expected_cost_nano: signed(hold.expected_cost_nano),
        hold_worst_cost_nano: signed(hold.worst_cost_nano),
        charged_on_expiry: u8::from(hold.charged_on_expiry),
        figures: body.figures.code(),
        ending: body.ending.code(),
        overrun_llm_tokens: signed(body.overrun.llm_tokens),
        overrun_cost_nano: signed(body.overrun.cost_nano),
        ladder: body.ladder.iter().map(|step| &**step).collect(),
        latency_ms: body.latency_ms,
        ttft_ms: body.ttft_ms,
        attempts: body.attempts,
        flags: body.flags.bits(),
    }
}

pub(crate) fn total_line(total: &Total) -> TotalLine<'_> {
    TotalLine {
        day: total.day.0,
        side: total.side.code(),
        tenant: &total.tenant,
        pool: &total.pool,
        model: &total.model,
        entries: total.entries,
        requests: total.requests,
        usage: usage_line(&total.usage, std::convert::identity),
        cost_nano: total.cost_nano,
    }
}

pub(crate) fn posted_line(place: i64, leg: usize, posted: &Posted) -> PostedLine {
    let account = posted.account;
    let period = stored(posted.period);
    (place, leg, account.subject.0.cast_signed(), account.name.cast_signed(), period, bounded(posted.amount))
}

/// What an entry adds to the totals, as stored.
pub(crate) fn total_of(entry: &Entry) -> Total {
    let body = &entry.body;
    Total {
        day: entry.day(),
        side: body.side,
        tenant: Name::clone(&body.tenant),
        pool: Name::clone(&body.pool),
        model: Name::clone(&body.model_used),
        entries: 1,
        requests: bounded(entry.requests),
        usage: usage_of(&usage_line(&body.usage, bounded)),
        cost_nano: bounded(body.cost_nano),
    }
}

/// Adds one total to another of the same day, side, tenant, pool and model.
pub(crate) fn total_add(to: &mut Total, more: &Total) {
    to.entries = to.entries.saturating_add(more.entries);
    to.requests = to.requests.saturating_add(more.requests);
    to.usage = to.usage.plus(&more.usage);
    to.cost_nano = to.cost_nano.saturating_add(more.cost_nano);
}

/// What makes a row of `total` unique.
pub(crate) fn total_key(total: &Total) -> (u32, Side, Name, Name, Name) {
    let Total { tenant, pool, model, .. } = total;
    (total.day.0, total.side, Name::clone(tenant), Name::clone(pool), Name::clone(model))
}

/// Times and period starts as columns; the largest stands for what is beyond it.
pub(crate) fn stored(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A signed amount within ±(2^53 − 1) (L13).
fn bounded(amount: i64) -> i64 {
    amount.clamp(-signed(AMOUNT_MAX), signed(AMOUNT_MAX))
}

fn usage_line(usage: &Usage, bound: fn(i64) -> i64) -> UsageLine {
    UsageLine {
        input: bound(usage.input),
        cached: bound(usage.cached),
        cache_write: bound(usage.cache_write),
        cache_write_1h: bound(usage.cache_write_1h),
        output: bound(usage.output),
        reasoning: bound(usage.reasoning),
        audio_input: bound(usage.audio_input),
        audio_output: bound(usage.audio_output),
        image_input: bound(usage.image_input),
        web_searches: bound(usage.web_searches),
    }
}

fn usage_of(line: &UsageLine) -> Usage {
    Usage {
        input: line.input,
        cached: line.cached,
        cache_write: line.cache_write,
        cache_write_1h: line.cache_write_1h,
        output: line.output,
        reasoning: line.reasoning,
        audio_input: line.audio_input,
        audio_output: line.audio_output,
        image_input: line.image_input,
        web_searches: line.web_searches,
    }
}
