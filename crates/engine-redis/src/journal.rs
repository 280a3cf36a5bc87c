//! Entries of the stream of ended calls, as the journal takes them.

use tollbook_engine::ledger::{Attempt, Posted, ReservationId};
use tollbook_engine::{Cursor, JournalRecord, Source};

use crate::engine::SEQ_BITS;
use crate::keys::{self, ACCOUNT_BYTES, CLAIM_BYTES};
use crate::number::whole;
use crate::reply::{Items, Odd};

const SOURCES: [Source; 7] = [
    Source::Settled,
    Source::Released,
    Source::Expired,
    Source::Rebooked,
    Source::Late,
    Source::Adjusted,
    Source::Unbooked,
];

/// What the book says of an end: the claim, seq, source, admitted, ended, and account, period, amount of what was posted.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) id: ReservationId,
    pub(crate) attempt: Attempt,
    pub(crate) seq: u16,
    pub(crate) source: Source,
    pub(crate) admitted: u64,
    pub(crate) ended: u64,
    pub(crate) posted: Vec<Posted>,
}

const POSTED_BYTES: usize = ACCOUNT_BYTES + 16;

impl Head {
    pub(crate) fn of(text: &[u8]) -> Result<Self, Odd> {
        Self::read(text).ok_or(Odd("journal entry"))
    }

    fn read(text: &[u8]) -> Option<Self> {
        let (claim, rest) = text.split_at_checked(CLAIM_BYTES)?;
        let (id, attempt) = keys::claim_of(claim)?;
        let (seq, rest) = rest.split_first_chunk()?;
        let (source, rest) = rest.split_first()?;
        let (admitted, rest) = rest.split_first_chunk()?;
        let (ended, rest) = rest.split_first_chunk()?;
        let (rows, odd) = rest.as_chunks::<POSTED_BYTES>();
        let posted: Option<Vec<Posted>> = rows.iter().map(|row| posted(row)).collect();
        Some(Self {
            id,
            attempt,
            seq: u16::from_le_bytes(*seq),
            source: *SOURCES.get(usize::from(source.checked_sub(1)?))?,
            admitted: u64::try_from(whole(*admitted)?).ok()?,
            ended: u64::try_from(whole(*ended)?).ok()?,
            posted: odd.is_empty().then_some(posted?)?,
        })
    }
}

fn posted(row: &[u8]) -> Option<Posted> {
    let (account, rest) = row.split_at_checked(ACCOUNT_BYTES)?;
    let (period, amount) = rest.split_first_chunk()?;
    let period = u64::try_from(whole(*period)?).ok()?;
    Some(Posted { account: keys::account_of(account)?, period, amount: whole(amount.try_into().ok()?)? })
}

/// One entry of a stream: its id, and the fields `e` and `b`.
pub(crate) fn record(items: &mut Items) -> Result<JournalRecord, Odd> {
    let mut items = items.items()?;
    let cursor = cursor(&items.text()?).ok_or(Odd("stream id"))?;
    let mut fields = items.items()?;
    let (_, head, _, body) = (fields.text()?, fields.bytes()?, fields.text()?, fields.bytes()?);
    let Head { id, attempt, seq, source, admitted, ended, posted } = Head::of(&head)?;
    Ok(JournalRecord { cursor, id, attempt, seq, source, admitted, ended, posted, body })
}

fn cursor(id: &str) -> Option<Cursor> {
    let (millis, seq) = id.split_once('-')?;
    let (millis, seq): (u64, u64) = (millis.parse().ok()?, seq.parse().ok()?);
    (seq < 1 << SEQ_BITS && millis < 1 << (u64::BITS - SEQ_BITS)).then_some(Cursor(millis << SEQ_BITS | seq))
}
