//! Rows as the port's types.

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, Type, sqlite::Sqlite};
use tollbook_ledger::{AccountId, Posted, ReservationId, SubjectId};
use tollbook_store::{
    Day, Ending, Entry, EntryBody, EntryKey, EntryPlace, Figures, Flags, Hold, Name, Origin, Overrun,
    PostedSum, Side, Total, Usage, UsageSum,
};

type Result<T> = std::result::Result<T, sqlx::Error>;

/// An entry without what it posted, and its place.
pub(crate) fn entry(row: &SqliteRow) -> Result<(i64, Entry)> {
    let ladder: String = row.try_get("ladder")?;
    let ladder: Vec<String> = serde_json::from_str(&ladder).map_err(|e| damaged("ladder", Box::new(e)))?;
    let body = EntryBody {
        side: Side::of(number(row, "side")?),
        request_id: name(row, "request_id")?,
        tenant: name(row, "tenant")?,
        project: name(row, "project")?,
        key: name(row, "key_id")?,
        service: name(row, "service")?,
        user: name(row, "end_user")?,
        model_asked: name(row, "model_asked")?,
        model_priced: name(row, "model_priced")?,
        model_used: name(row, "model_used")?,
        pool: name(row, "pool")?,
        usage: usage(row)?,
        cost_nano: row.try_get("cost_nano")?,
        price_version: row.try_get::<i64, _>("price_version")?.cast_unsigned(),
        hold: Hold {
            input_llm_tokens: number(row, "hold_input")?,
            expected_llm_tokens: number(row, "hold_expected")?,
            worst_llm_tokens: number(row, "hold_worst")?,
            expected_cost_nano: number(row, "hold_expected_cost_nano")?,
            worst_cost_nano: number(row, "hold_worst_cost_nano")?,
            charged_on_expiry: row.try_get::<i64, _>("charged_on_expiry")? != 0,
        },
        figures: Figures::of(number(row, "figures")?),
        ending: Ending::of(number(row, "ending")?),
        overrun: Overrun {
            llm_tokens: number(row, "overrun_llm_tokens")?,
            cost_nano: number(row, "overrun_cost_nano")?,
        },
        ladder: ladder.into_iter().map(Name::from).collect(),
        latency_ms: number(row, "latency_ms")?,
        ttft_ms: row
            .try_get::<Option<i64>, _>("ttft_ms")?
            .map(|ms| u32::try_from(ms).map_err(|e| damaged("ttft_ms", Box::new(e))))
            .transpose()?,
        attempts: number(row, "attempts")?,
        flags: Flags::of(number(row, "flags")?),
    };
    let entry = Entry {
        reservation: reservation(row)?,
        attempt: number(row, "attempt")?,
        seq: number(row, "seq")?,
        origin: Origin::of(number(row, "origin")?),
        admitted_at: number(row, "admitted_at")?,
        ended_at: number(row, "ended_at")?,
        requests: row.try_get("requests")?,
        posted: Vec::new(),
        body,
    };
    Ok((row.try_get("place")?, entry))
}

/// The key and the place of an entry that was inserted.
pub(crate) fn inserted(row: &SqliteRow) -> Result<(EntryKey, i64)> {
    let key = EntryKey {
        reservation: reservation(row)?,
        side: Side::of(number(row, "side")?),
        attempt: number(row, "attempt")?,
        seq: number(row, "seq")?,
        unbooked: row.try_get::<i64, _>("unbooked")? != 0,
    };
    Ok((key, row.try_get("place")?))
}

pub(crate) fn place(number: i64, entry: &Entry) -> EntryPlace {
    EntryPlace { ended_at: entry.ended_at, number }
}

/// What one leg posted, and the place of its entry.
pub(crate) fn posted(row: &SqliteRow) -> Result<(i64, Posted)> {
    let PostedSum { account, period, amount } = posted_sum(row)?;
    Ok((row.try_get("place")?, Posted { account, period, amount }))
}

pub(crate) fn posted_sum(row: &SqliteRow) -> Result<PostedSum> {
    let subject = SubjectId(row.try_get::<i64, _>("subject")?.cast_unsigned());
    let name = row.try_get::<i64, _>("account")?.cast_unsigned();
    Ok(PostedSum {
        account: AccountId { subject, name },
        period: number(row, "period")?,
        amount: row.try_get("amount")?,
    })
}

pub(crate) fn total(row: &SqliteRow) -> Result<Total> {
    Ok(Total {
        day: Day(number(row, "day")?),
        side: Side::of(number(row, "side")?),
        tenant: name(row, "tenant")?,
        pool: name(row, "pool")?,
        model: name(row, "model")?,
        entries: row.try_get("entries")?,
        requests: row.try_get("requests")?,
        usage: usage(row)?,
        cost_nano: row.try_get("cost_nano")?,
    })
}

pub(crate) fn usage_sum(row: &SqliteRow) -> Result<UsageSum> {
    Ok(UsageSum {
        requests: row.try_get("requests")?,
        usage: usage(row)?,
        cost_nano: row.try_get("cost_nano")?,
    })
}

pub(crate) fn name(row: &SqliteRow, column: &str) -> Result<Name> {
    row.try_get::<&str, _>(column).map(Name::from)
}

/// An integer that must fit a smaller type.
pub(crate) fn number<T: TryFrom<i64>>(row: &SqliteRow, column: &'static str) -> Result<T>
where
    T::Error: std::error::Error + Send + Sync + 'static,
    i64: Type<Sqlite>,
{
    T::try_from(row.try_get::<i64, _>(column)?).map_err(|e| damaged(column, Box::new(e)))
}

pub(crate) fn bytes<const N: usize>(row: &SqliteRow, column: &'static str) -> Result<[u8; N]> {
    row.try_get::<&[u8], _>(column)?
        .try_into()
        .map_err(|e: std::array::TryFromSliceError| damaged(column, Box::new(e)))
}

fn reservation(row: &SqliteRow) -> Result<ReservationId> {
    bytes(row, "reservation").map(u128::from_be_bytes).map(ReservationId)
}

fn usage(row: &SqliteRow) -> Result<Usage> {
    Ok(Usage {
        input: row.try_get("input")?,
        cached: row.try_get("cached")?,
        cache_write: row.try_get("cache_write")?,
        cache_write_1h: row.try_get("cache_write_1h")?,
        output: row.try_get("output")?,
        reasoning: row.try_get("reasoning")?,
        audio_input: row.try_get("audio_input")?,
        audio_output: row.try_get("audio_output")?,
        image_input: row.try_get("image_input")?,
        web_searches: row.try_get("web_searches")?,
    })
}

fn damaged(column: &str, source: Box<dyn std::error::Error + Send + Sync>) -> sqlx::Error {
    sqlx::Error::ColumnDecode { index: column.to_owned(), source }
}
