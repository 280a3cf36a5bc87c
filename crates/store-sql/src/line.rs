//! Entries as the columns and the JSON lines that the statements take.

use serde::Serialize;
use tollbook_ledger::{AMOUNT_MAX, Posted};
use tollbook_store::{Entry, EntryBody, Name, Side, StoreError, StoreErrorKind, Total, Usage, signed};

/// One leg as stored: subject, account, period, amount.
pub(crate) type PostedLine = (i64, i64, i64, i64);

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
    cost_nano: i64,
}

/// A body as its column's text.
pub(crate) fn body_text(body: &EntryBody) -> Result<String, StoreError> {
    String::from_utf8(encoded(body)).map_err(|_| not_json())
}

fn encoded(body: &EntryBody) -> Vec<u8> {
    let (usage, cost_nano) = (bounded_usage(&body.usage), bounded(body.cost_nano));
    if usage == body.usage && cost_nano == body.cost_nano {
        return body.encode();
    }
    EntryBody { usage, cost_nano, ..body.clone() }.encode()
}

pub(crate) fn posted_line(posted: &Posted) -> PostedLine {
    let account = posted.account;
    let period = stored(posted.period);
    (account.subject.0.cast_signed(), account.name.cast_signed(), period, bounded(posted.amount))
}

pub(crate) fn total_line(total: &Total) -> TotalLine<'_> {
    let usage = &total.usage;
    TotalLine {
        day: total.day.0,
        side: total.side.code(),
        tenant: &total.tenant,
        pool: &total.pool,
        model: &total.model,
        entries: total.entries,
        requests: total.requests,
        input: usage.input,
        cached: usage.cached,
        cache_write: usage.cache_write,
        cache_write_1h: usage.cache_write_1h,
        output: usage.output,
        reasoning: usage.reasoning,
        audio_input: usage.audio_input,
        audio_output: usage.audio_output,
        image_input: usage.image_input,
        web_searches: usage.web_searches,
        cost_nano: total.cost_nano,
    }
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
        usage: bounded_usage(&body.usage),
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

pub(crate) fn json<T: Serialize>(rows: &T) -> Result<String, StoreError> {
    serde_json::to_string(rows).map_err(|_| not_json())
}

/// Times and period starts as columns; the largest stands for what is beyond it.
pub(crate) fn stored(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn not_json() -> StoreError {
    StoreError::not_applied(StoreErrorKind::Refused("the rows cannot be written as JSON"))
}

/// A signed amount within ±(2^53 − 1) (L13).
pub(crate) fn bounded(amount: i64) -> i64 {
    amount.clamp(-signed(AMOUNT_MAX), signed(AMOUNT_MAX))
}

fn bounded_usage(usage: &Usage) -> Usage {
    Usage {
        input: bounded(usage.input),
        cached: bounded(usage.cached),
        cache_write: bounded(usage.cache_write),
        cache_write_1h: bounded(usage.cache_write_1h),
        output: bounded(usage.output),
        reasoning: bounded(usage.reasoning),
        audio_input: bounded(usage.audio_input),
        audio_output: bounded(usage.audio_output),
        image_input: bounded(usage.image_input),
        web_searches: bounded(usage.web_searches),
    }
}
