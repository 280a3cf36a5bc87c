//! Ended calls on their way to the journal's store.
//!
//! Invariants: cursors are consecutive from 1; a record is here from the verb that wrote it until the store has it,
//! also over a restart; number and bytes are bounded.
//! When full: verbs that would end a call are refused before anything is written, so nothing is lost.

use std::collections::VecDeque;
use std::sync::Arc;

use tollbook_engine::{Cursor, JournalRecord, Source};
use tollbook_ledger::{AccountId, Attempt, LEGS_MAX, Micros, Posted, ReservationId, SubjectId};

use crate::wire::{Malformed, Read, Reader, Writer};

/// Most bytes a record has besides its body.
pub(crate) const RECORD_OVERHEAD_MAX: usize = 64 + LEGS_MAX * 40;

const SOURCES: [(Source, u8); 7] = [
    (Source::Settled, 1),
    (Source::Released, 2),
    (Source::Expired, 3),
    (Source::Rebooked, 4),
    (Source::Late, 5),
    (Source::Adjusted, 6),
    (Source::Unbooked, 7),
];

/// A record before it has its cursor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) id: ReservationId,
    pub(crate) attempt: Attempt,
    pub(crate) seq: u16,
    pub(crate) source: Source,
    pub(crate) admitted: Micros,
    pub(crate) ended: Micros,
    pub(crate) posted: &'a [Posted],
    pub(crate) body: &'a [u8],
}

impl Entry<'_> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let mut to = Writer::new(out);
        to.fixed128(self.id.0);
        to.u64(u64::from(self.attempt));
        to.u64(u64::from(self.seq));
        to.u8(SOURCES.iter().find(|(source, _)| *source == self.source).map_or(0, |(_, code)| *code));
        to.u64(self.admitted);
        to.u64(self.ended);
        to.count(self.posted.len());
        for posted in self.posted {
            to.fixed64(posted.account.subject.0);
            to.fixed64(posted.account.name);
            to.u64(posted.period);
            to.i64(posted.amount);
        }
        to.bytes(self.body);
    }
}

fn decode(cursor: Cursor, bytes: &[u8]) -> Read<JournalRecord> {
    let mut from = Reader::new(bytes);
    let id = ReservationId(from.fixed128("id")?);
    let attempt = from.u16("attempt")?;
    let seq = from.u16("seq")?;
    let code = from.u8("source")?;
    let source = SOURCES.iter().find(|(_, known)| *known == code).map(|(source, _)| *source);
    let source = source.ok_or(Malformed { what: "source" })?;
    let admitted = from.u64("admitted")?;
    let ended = from.u64("ended")?;
    let count = from.count("posted")?;
    let mut posted = Vec::with_capacity(count.min(LEGS_MAX));
    for _ in 0..count {
        let subject = SubjectId(from.fixed64("subject")?);
        let account = AccountId { subject, name: from.fixed64("account")? };
        posted.push(Posted { account, period: from.u64("period")?, amount: from.i64("amount")? });
    }
    let body = from.bytes("body")?.to_vec();
    from.end("end of entry")?;
    Ok(JournalRecord { cursor, id, attempt, seq, source, admitted, ended, posted, body })
}

/// Bounds of one shard's queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) records: usize,
    pub(crate) bytes: usize,
}

/// Consecutive records as their bytes.
#[derive(Debug)]
pub(crate) struct Encoded {
    /// Cursor of the first.
    first: u64,
    records: Vec<Arc<[u8]>>,
}

impl Encoded {
    pub(crate) fn decode(&self) -> Read<Vec<JournalRecord>> {
        (self.first..).zip(&self.records).map(|(at, bytes)| decode(Cursor(at), bytes)).collect()
    }
}

/// One shard's records that wait, as their bytes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct JournalQueue {
    /// Cursor of the last record trimmed.
    trimmed: u64,
    waiting: VecDeque<Arc<[u8]>>,
    bytes: usize,
}

impl JournalQueue {
    /// A queue that goes on behind `trimmed`.
    pub(crate) fn after(trimmed: Cursor) -> Self {
        Self { trimmed: trimmed.0, ..Self::default() }
    }

    pub(crate) fn trimmed(&self) -> Cursor {
        Cursor(self.trimmed)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether one more record with a body of `body` bytes fits.
    pub(crate) fn has_room(&self, body: usize, bounds: Bounds) -> bool {
        let bytes = self.bytes.saturating_add(body).saturating_add(RECORD_OVERHEAD_MAX);
        self.waiting.len() < bounds.records && bytes <= bounds.bytes
    }

    /// Takes an encoded record after checking that it can be read.
    pub(crate) fn push_checked(&mut self, bytes: &[u8]) -> Read<()> {
        decode(Cursor(0), bytes)?;
        self.push(bytes);
        Ok(())
    }

    /// Takes an encoded record.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len());
        self.waiting.push_back(bytes.into());
    }

    /// Forgets records up to a cursor; true if there were any.
    pub(crate) fn trim(&mut self, upto: Cursor) -> bool {
        let mut any = false;
        while self.trimmed < upto.0 {
            let Some(gone) = self.waiting.pop_front() else { break };
            self.bytes = self.bytes.saturating_sub(gone.len());
            self.trimmed += 1;
            any = true;
        }
        any
    }

    /// Records after a cursor, oldest first, as they are kept: taking them costs a verb of the shard no time to speak of.
    pub(crate) fn after_cursor(&self, after: Cursor, max: usize) -> Encoded {
        let skip = usize::try_from(after.0.saturating_sub(self.trimmed))
            .unwrap_or(usize::MAX)
            .min(self.waiting.len());
        let first = self.trimmed.saturating_add(1).saturating_add(skip as u64);
        Encoded { first, records: self.waiting.iter().skip(skip).take(max).cloned().collect() }
    }

    /// The encoded records, oldest first.
    pub(crate) fn encoded(&self) -> impl Iterator<Item = &[u8]> {
        self.waiting.iter().map(AsRef::as_ref)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(n: u8, body: &[u8]) -> Vec<u8> {
        let account = AccountId { subject: SubjectId(u64::MAX), name: 7 };
        let posted = [Posted { account, period: 1 << 40, amount: -5 }; 2];
        let entry = Entry {
            id: ReservationId(u128::from(n)),
            attempt: u16::MAX,
            seq: 1,
            source: Source::Late,
            admitted: 10,
            ended: 20,
            posted: &posted,
            body,
        };
        let mut out = Vec::new();
        entry.encode(&mut out);
        out
    }

    #[test]
    fn records_keep_their_cursors_through_trims() {
        let mut queue = JournalQueue::default();
        (1..=5).for_each(|n| queue.push(&encoded(n, b"body")));
        let read = |queue: &JournalQueue, after, max| -> Vec<(u64, u128)> {
            queue
                .after_cursor(Cursor(after), max)
                .decode()
                .unwrap()
                .iter()
                .map(|record| (record.cursor.0, record.id.0))
                .collect()
        };
        assert_eq!(read(&queue, 0, 2), [(1, 1), (2, 2)]);
        assert_eq!(read(&queue, 3, 9), [(4, 4), (5, 5)]);
        assert!(queue.trim(Cursor(3)));
        assert!(!queue.trim(Cursor(3)));
        assert_eq!(read(&queue, 0, 9), [(4, 4), (5, 5)]);
        assert_eq!(read(&queue, 5, 9), []);
        assert_eq!(read(&queue, u64::MAX, 9), []);
        assert!(queue.trim(Cursor(u64::MAX)));
        queue.push(&encoded(6, b""));
        assert_eq!(read(&queue, 0, 9), [(6, 6)]);
    }

    #[test]
    fn a_record_survives_whole() {
        let mut queue = JournalQueue::after(Cursor(41));
        queue.push_checked(&encoded(9, b"abc")).unwrap();
        let record = queue.after_cursor(Cursor(0), 1).decode().unwrap().remove(0);
        assert_eq!((record.cursor, record.attempt, record.seq), (Cursor(42), u16::MAX, 1));
        assert_eq!((record.source, record.admitted, record.ended), (Source::Late, 10, 20));
        assert_eq!((record.posted.len(), record.posted[1].amount), (2, -5));
        assert_eq!(record.body, b"abc");
    }

    #[test]
    fn the_bounds_hold_at_the_bound() {
        let bounds = Bounds { records: 2, bytes: 10_000 };
        let mut queue = JournalQueue::default();
        assert!(queue.has_room(10_000 - RECORD_OVERHEAD_MAX, bounds));
        assert!(!queue.has_room(10_001 - RECORD_OVERHEAD_MAX, bounds));
        queue.push(&encoded(1, b""));
        assert!(queue.has_room(0, bounds));
        queue.push(&encoded(2, b""));
        assert!(!queue.has_room(0, bounds));
        queue.trim(Cursor(1));
        assert!(queue.has_room(0, bounds));
        assert!(encoded(1, b"").len() <= RECORD_OVERHEAD_MAX);
    }

    #[test]
    fn a_damaged_record_is_an_error() {
        let good = encoded(1, b"body");
        for len in 0..good.len() {
            assert!(JournalQueue::default().push_checked(&good[..len]).is_err());
        }
    }
}
