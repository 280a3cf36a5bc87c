//! Entries of the stream of ended calls, as the journal takes them.

use serde::Deserialize;
use tollbook_engine::ledger::{AccountId, Posted, ReservationId, SubjectId};
use tollbook_engine::{Cursor, JournalRecord, Source};

use crate::engine::SEQ_BITS;
use crate::reply::{Items, Odd, digest};

const SOURCES: [Source; 7] = [
    Source::Settled,
    Source::Released,
    Source::Expired,
    Source::Rebooked,
    Source::Late,
    Source::Adjusted,
    Source::Unbooked,
];

/// Id, attempt, seq, source, admitted, ended, and subject, account, period, amount of what was posted.
#[derive(Deserialize)]
struct Row(String, u16, u16, usize, u64, u64, Vec<(String, String, u64, i64)>);

/// One entry of a stream: its id, and the fields `e` and `b`.
pub(crate) fn record(items: &mut Items) -> Result<JournalRecord, Odd> {
    let mut items = items.items()?;
    let cursor = cursor(&items.text()?).ok_or(Odd("stream id"))?;
    let mut fields = items.items()?;
    let (_, row, _, body) = (fields.text()?, fields.bytes()?, fields.text()?, fields.bytes()?);
    let row: Row = rmp_serde::from_slice(&row).map_err(|_| Odd("journal entry"))?;
    let Row(id, attempt, seq, source, admitted, ended, posted) = row;
    let id = u128::from_str_radix(&id, 16).map_err(|_| Odd("journal entry"))?;
    let source = source.checked_sub(1).and_then(|code| SOURCES.get(code)).ok_or(Odd("source"))?;
    let posted: Result<Vec<Posted>, Odd> = posted
        .iter()
        .map(|(subject, name, period, amount)| {
            let account = AccountId { subject: SubjectId(digest(subject)?), name: digest(name)? };
            Ok(Posted { account, period: *period, amount: *amount })
        })
        .collect();
    let (id, posted) = (ReservationId(id), posted?);
    Ok(JournalRecord { cursor, id, attempt, seq, source: *source, admitted, ended, posted, body })
}

fn cursor(id: &str) -> Option<Cursor> {
    let (millis, seq) = id.split_once('-')?;
    let (millis, seq): (u64, u64) = (millis.parse().ok()?, seq.parse().ok()?);
    (seq < 1 << SEQ_BITS && millis < 1 << (u64::BITS - SEQ_BITS)).then_some(Cursor(millis << SEQ_BITS | seq))
}
