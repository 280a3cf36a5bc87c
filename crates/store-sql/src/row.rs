//! Rows as the port's types.

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, Type, sqlite::Sqlite};
use tollbook_ledger::{AccountId, Posted, ReservationId, SubjectId};
use tollbook_store::{
    Call, CallPage, CallPlace, Day, Entry, EntryBody, EntryKey, EntryPlace, Name, Origin, PostedSum, Side,
    Total, Usage, UsageSum,
};

use crate::line::PostedLine;

type Result<T> = std::result::Result<T, sqlx::Error>;

/// An entry and its place.
pub(crate) fn entry(row: &SqliteRow) -> Result<(EntryPlace, Entry)> {
    let body: &str = row.try_get("body")?;
    let body = EntryBody::decode(body.as_bytes()).map_err(|e| damaged("body", Box::new(e)))?;
    let posted = posted(row)?;
    let EntryKey { reservation, side: _, attempt, seq, unbooked: _ } = key(row)?;
    let entry = Entry {
        reservation,
        attempt,
        seq,
        origin: Origin::of(number(row, "origin")?),
        admitted_at: number(row, "admitted_at")?,
        ended_at: number(row, "ended_at")?,
        requests: row.try_get("requests")?,
        posted: posted.into_iter().map(leg).collect::<Result<_>>()?,
        body,
    };
    let place = EntryPlace { ended_at: entry.ended_at, number: row.try_get("place")? };
    Ok((place, entry))
}

/// A page of calls from the rows of their entries, which stand together; the page is full at `max`.
pub(crate) fn calls(rows: &[SqliteRow], max: usize) -> Result<CallPage> {
    let entries = rows.iter().map(|row| Ok((call_place(row)?, entry(row)?.1))).collect::<Result<Vec<_>>>()?;
    let (places, entries): (Vec<CallPlace>, Vec<Entry>) = entries.into_iter().unzip();
    let calls: Vec<Call> =
        entries.chunk_by(|one, other| one.reservation == other.reservation).filter_map(Call::of).collect();
    let next = places.last().copied().filter(|_| calls.len() == max);
    Ok(CallPage { calls, next })
}

fn call_place(row: &SqliteRow) -> Result<CallPlace> {
    Ok(CallPlace { admitted_at: number(row, "call_admitted_at")?, number: row.try_get("call_place")? })
}

pub(crate) fn key(row: &SqliteRow) -> Result<EntryKey> {
    Ok(EntryKey {
        reservation: bytes(row, "reservation").map(u128::from_be_bytes).map(ReservationId)?,
        side: Side::of(number(row, "side")?),
        attempt: number(row, "attempt")?,
        seq: number(row, "seq")?,
        unbooked: row.try_get::<i64, _>("unbooked")? != 0,
    })
}

/// What an entry posted, as stored.
pub(crate) fn posted(row: &SqliteRow) -> Result<Vec<PostedLine>> {
    let posted: &str = row.try_get("posted")?;
    serde_json::from_str(posted).map_err(|e| damaged("posted", Box::new(e)))
}

fn leg((subject, account, period, amount): PostedLine) -> Result<Posted> {
    let account = AccountId { subject: SubjectId(subject.cast_unsigned()), name: account.cast_unsigned() };
    let period = u64::try_from(period).map_err(|e| damaged("posted", Box::new(e)))?;
    Ok(Posted { account, period, amount })
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
