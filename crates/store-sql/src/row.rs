//! Rows as the port's types.

use tollbook_ledger::{AccountId, Posted, ReservationId, SubjectId};
use tollbook_store::{
    Call, CallPage, CallPlace, Day, Entry, EntryBody, EntryKey, EntryPlace, Name, Origin, PostedSum, Side,
    Total, Usage, UsageSum,
};

use crate::db::Row;
use crate::line::PostedLine;

type Result<T> = std::result::Result<T, sqlx::Error>;

/// An entry and its place.
pub(crate) fn entry(row: &Row) -> Result<(EntryPlace, Entry)> {
    let body = row.text("body")?;
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
        requests: row.int("requests")?,
        posted: posted.into_iter().map(leg).collect::<Result<_>>()?,
        body,
    };
    let place = EntryPlace { ended_at: entry.ended_at, number: row.int("place")? };
    Ok((place, entry))
}

/// A page of calls from the rows of their entries, which stand together; the page is full at `max`.
pub(crate) fn calls(rows: &[Row], max: usize) -> Result<CallPage> {
    let entries = rows.iter().map(|row| Ok((call_place(row)?, entry(row)?.1))).collect::<Result<Vec<_>>>()?;
    let (places, entries): (Vec<CallPlace>, Vec<Entry>) = entries.into_iter().unzip();
    let calls: Vec<Call> =
        entries.chunk_by(|one, other| one.reservation == other.reservation).filter_map(Call::of).collect();
    let next = places.last().copied().filter(|_| calls.len() == max);
    Ok(CallPage { calls, next })
}

fn call_place(row: &Row) -> Result<CallPlace> {
    Ok(CallPlace { admitted_at: number(row, "call_admitted_at")?, number: row.int("call_place")? })
}

pub(crate) fn key(row: &Row) -> Result<EntryKey> {
    Ok(EntryKey {
        reservation: bytes(row, "reservation").map(u128::from_be_bytes).map(ReservationId)?,
        side: Side::of(number(row, "side")?),
        attempt: number(row, "attempt")?,
        seq: number(row, "seq")?,
        unbooked: row.int("unbooked")? != 0,
    })
}

/// What an entry posted, as stored.
pub(crate) fn posted(row: &Row) -> Result<Vec<PostedLine>> {
    let posted = row.text("posted")?;
    serde_json::from_str(posted).map_err(|e| damaged("posted", Box::new(e)))
}

fn leg((subject, account, period, amount): PostedLine) -> Result<Posted> {
    let account = AccountId { subject: SubjectId(subject.cast_unsigned()), name: account.cast_unsigned() };
    let period = u64::try_from(period).map_err(|e| damaged("posted", Box::new(e)))?;
    Ok(Posted { account, period, amount })
}

pub(crate) fn posted_sum(row: &Row) -> Result<PostedSum> {
    let subject = SubjectId(row.int("subject")?.cast_unsigned());
    let name = row.int("account")?.cast_unsigned();
    Ok(PostedSum {
        account: AccountId { subject, name },
        period: number(row, "period")?,
        amount: row.int("amount")?,
    })
}

pub(crate) fn total(row: &Row) -> Result<Total> {
    Ok(Total {
        day: Day(number(row, "day")?),
        side: Side::of(number(row, "side")?),
        tenant: name(row, "tenant")?,
        pool: name(row, "pool")?,
        model: name(row, "model")?,
        entries: row.int("entries")?,
        requests: row.int("requests")?,
        usage: usage(row)?,
        cost_nano: row.int("cost_nano")?,
    })
}

pub(crate) fn usage_sum(row: &Row) -> Result<UsageSum> {
    Ok(UsageSum { requests: row.int("requests")?, usage: usage(row)?, cost_nano: row.int("cost_nano")? })
}

pub(crate) fn name(row: &Row, column: &'static str) -> Result<Name> {
    row.text(column).map(Name::from)
}

/// An integer that must fit a smaller type.
pub(crate) fn number<T: TryFrom<i64>>(row: &Row, column: &'static str) -> Result<T>
where
    T::Error: std::error::Error + Send + Sync + 'static,
{
    T::try_from(row.int(column)?).map_err(|e| damaged(column, Box::new(e)))
}

pub(crate) fn bytes<const N: usize>(row: &Row, column: &'static str) -> Result<[u8; N]> {
    row.bytes(column)?.try_into().map_err(|e: std::array::TryFromSliceError| damaged(column, Box::new(e)))
}

fn usage(row: &Row) -> Result<Usage> {
    Ok(Usage {
        input: row.int("input")?,
        cached: row.int("cached")?,
        cache_write: row.int("cache_write")?,
        cache_write_1h: row.int("cache_write_1h")?,
        output: row.int("output")?,
        reasoning: row.int("reasoning")?,
        audio_input: row.int("audio_input")?,
        audio_output: row.int("audio_output")?,
        image_input: row.int("image_input")?,
        web_searches: row.int("web_searches")?,
    })
}

fn damaged(column: &str, source: Box<dyn std::error::Error + Send + Sync>) -> sqlx::Error {
    sqlx::Error::ColumnDecode { index: column.to_owned(), source }
}
