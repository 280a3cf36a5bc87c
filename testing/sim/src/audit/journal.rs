//! What the journal must say, and what has come out of the engine so far.

use std::collections::BTreeMap;

use tollbook_engine::ledger::{AccountId, Micros, Posted};
use tollbook_engine::{Cursor, JournalRecord, SEQ_UNBOOKED, Source};

use super::books::Key;
use super::{Checked, ensure};

/// One entry that was promised.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Line {
    source: Source,
    admitted: Micros,
    ended: Micros,
    posted: Vec<Posted>,
    body: Vec<u8>,
}

impl Line {
    pub(crate) fn new(
        source: Source,
        admitted: Micros,
        ended: Micros,
        posted: Vec<Posted>,
        body: &[u8],
    ) -> Self {
        Self { source, admitted, ended, posted, body: body.to_vec() }
    }
}

/// Entries by their unique key, and the sums that are in no entry.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    promised: BTreeMap<(Key, u16), Line>,
    /// Entries of claims that changed no account; a repeat writes the same again.
    unbooked: Vec<(Key, Line)>,
    /// What the store has.
    stored: BTreeMap<(Key, u16), Line>,
    stored_unbooked: Vec<(Key, Line)>,
    /// Cursor of the last record seen, by shard.
    cursors: BTreeMap<u8, u64>,
    /// Requests that stayed posted though the call was given back, because they were no longer there to take.
    kept: BTreeMap<(u8, AccountId, u64), i64>,
}

impl Journal {
    /// A verb has promised an entry; its key must be new.
    pub(crate) fn expect(&mut self, key: Key, seq: u16, line: Line) -> Checked {
        let before = self.promised.insert((key, seq), line);
        ensure!(before.is_none(), "{key:?} has two entries of seq {seq}: {before:?}");
        Ok(())
    }

    pub(crate) fn unbooked(&mut self, key: Key, now: Micros, body: &[u8]) {
        self.unbooked.push((key, Line::new(Source::Unbooked, 0, now, Vec::new(), body)));
    }

    /// An end without an entry that left something posted all the same.
    pub(crate) fn kept(&mut self, key: Key, posted: &[Posted]) {
        for posted in posted {
            *self.kept.entry((key.shard, posted.account, posted.period)).or_default() += posted.amount;
        }
    }

    /// The store takes a batch; one that it has already must be the same. How many were repeats.
    pub(crate) fn append(&mut self, shard: u8, records: &[JournalRecord]) -> Result<u64, String> {
        let mut repeats = 0;
        for record in records {
            let seen = self.cursors.entry(shard).or_default();
            let Cursor(cursor) = record.cursor;
            ensure!(cursor <= *seen + 1, "the journal of shard {shard} jumps from {seen} to {cursor}");
            let is_new = cursor == *seen + 1;
            *seen = cursor.max(*seen);
            let key = Key { shard, id: record.id, attempt: record.attempt };
            let line = Line {
                source: record.source,
                admitted: record.admitted,
                ended: record.ended,
                posted: record.posted.clone(),
                body: record.body.clone(),
            };
            if !is_new {
                repeats += 1;
            } else if record.seq == SEQ_UNBOOKED {
                self.stored_unbooked.push((key, line.clone()));
            } else {
                let before = self.stored.insert((key, record.seq), line.clone());
                ensure!(before.is_none(), "{key:?} was journaled twice with seq {}", record.seq);
            }
            let is_promised = match record.seq {
                SEQ_UNBOOKED => self.unbooked.contains(&(key, line.clone())),
                seq => self.promised.get(&(key, seq)) == Some(&line),
            };
            ensure!(is_promised, "{key:?} has an entry that no verb promised: {line:?}");
        }
        Ok(repeats)
    }

    /// Everything that was promised has come.
    pub(crate) fn is_complete(&self) -> Checked {
        let missing = self.promised.keys().find(|key| !self.stored.contains_key(key));
        ensure!(missing.is_none(), "the entry {missing:?} never came");
        let (want, is) = (self.unbooked.len(), self.stored_unbooked.len());
        ensure!(want == is, "{is} unbooked entries came, not {want}");
        Ok(())
    }

    /// Sums of what the store has, per shard, account and period.
    pub(crate) fn sums(&self) -> BTreeMap<(u8, AccountId, u64), i64> {
        let mut sums = self.kept.clone();
        for ((key, _), line) in &self.stored {
            for posted in &line.posted {
                *sums.entry((key.shard, posted.account, posted.period)).or_default() += posted.amount;
            }
        }
        sums
    }
}
