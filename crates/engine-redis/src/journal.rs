//! Entries of the stream of ended calls, as the journal takes them.
//!
//! The streams have no bound of their own: an entry that is dropped is money that nobody sees. What bounds them is the
//! memory of the server, which refuses verbs when it is full. So it is told early that they grow.

use futures_util::future::try_join_all;
use redis::Value;
use tollbook_engine::ledger::{Attempt, Posted, ReservationId};
use tollbook_engine::{Cursor, EngineError, JournalRecord, Shard, Source};

use crate::engine::{RedisEngine, SEQ_BITS};
use crate::keys::{self, ACCOUNT_BYTES, CLAIM_BYTES};
use crate::number::whole;
use crate::reply::{Items, Odd};

/// Entries that may wait for the journal in all streams together, before it is told that the server may become full.
pub const STREAMS_MAX: u64 = 1_000_000;
/// Streams that are asked at a time.
const ASKED_AT_ONCE: usize = 64;

impl RedisEngine {
    /// Entries that wait for the journal, of all shards.
    ///
    /// # Errors
    /// As any verb.
    pub async fn journal_waiting(&self) -> Result<u64, EngineError> {
        self.inside(async {
            let shards: Vec<Shard> = (0..=u8::MAX).map(Shard).collect();
            let mut waiting = 0_u64;
            for some in shards.chunks(ASKED_AT_ONCE) {
                let lengths = some.iter().map(async |shard| {
                    match self.command("XLEN", &self.keys(*shard).own("j"), &[]).await? {
                        Value::Int(length) => u64::try_from(length).map_err(|_| Odd("length").into()),
                        _ => Err(EngineError::from(Odd("length"))),
                    }
                });
                waiting += try_join_all(lengths).await?.into_iter().sum::<u64>();
            }
            Ok(waiting)
        })
        .await
    }
}

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
