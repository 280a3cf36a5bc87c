//! An engine and a store that fail when told to.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use tollbook_engine::{
    AdjustCall, Answer as Verb, Balance, Claim, Cursor, Drift, DueHold, Engine, EngineError, ErrorKind,
    ExpireCall, Inspection, JournalRecord, ProgressCall, RebookCall, ReleaseCall, RenewCall, Repair, Reply,
    ReserveCall, RestoreCall, SettleCall, Shard, Source, Verdict,
};
use tollbook_ledger::{AccountId, Expired, Renewed, ReservationId, Settled};
use tollbook_store::{
    Answer, Appended, CallPage, CallPlace, CallsQuery, Entry, EntryKey, EntryPlace, Journal, Name, Page,
    PostedSum, Span, StoreError, StoreErrorKind, Total, TotalsQuery, UsageQuery, UsageSum,
};

/// An engine of scripted shards: what is due, what has ended, what drifts. Verbs of calls are not its business.
#[derive(Default)]
pub(crate) struct Scripted {
    pub(crate) records: Mutex<BTreeMap<u8, Vec<JournalRecord>>>,
    /// Holds due per shard; an expiry takes one away.
    pub(crate) due: Mutex<BTreeMap<u8, u32>>,
    /// Times each shard was asked for due holds.
    pub(crate) asked: Mutex<BTreeMap<u8, Vec<tokio::time::Instant>>>,
    /// Shards whose verbs fail.
    pub(crate) away: Mutex<Vec<u8>>,
    /// Trims that still fail.
    pub(crate) trims_fail: AtomicU32,
    /// Answers `NotDue` to every expiry.
    pub(crate) renewed: bool,
    /// Batches of the drift check.
    pub(crate) drift: Mutex<Vec<Drift>>,
    pub(crate) checks: AtomicU32,
}

pub(crate) fn record(cursor: u64, id: u128, body: Vec<u8>) -> JournalRecord {
    JournalRecord {
        cursor: Cursor(cursor),
        id: ReservationId(id),
        attempt: 0,
        seq: 0,
        source: Source::Settled,
        admitted: 1,
        ended: 2,
        posted: Vec::new(),
        body,
    }
}

impl Scripted {
    pub(crate) fn with_shards(shards: &[u8]) -> Self {
        let scripted = Self::default();
        for shard in shards {
            scripted.records.lock().unwrap().insert(*shard, Vec::new());
        }
        scripted
    }

    pub(crate) fn waiting(&self) -> usize {
        self.records.lock().unwrap().values().map(Vec::len).sum()
    }

    fn reply<T: Send + 'static>(&self, shard: Shard, value: T) -> Verb<'_, T> {
        let away = self.away.lock().unwrap().contains(&shard.0);
        let answer = if away { Err(away_error()) } else { Ok(Reply { epoch: 1, now: 0, value }) };
        Box::pin(std::future::ready(answer))
    }
}

fn away_error() -> EngineError {
    EngineError::not_applied(ErrorKind::Away("scripted".to_owned()))
}

fn unsupported<'a, T: Send + 'a>() -> Verb<'a, T> {
    Box::pin(std::future::ready(Err(EngineError::not_applied(ErrorKind::Unsupported))))
}

impl Engine for Scripted {
    fn reserve<'a>(&'a self, _: &'a ReserveCall) -> Verb<'a, Verdict> {
        unsupported()
    }
    fn rebook<'a>(&'a self, _: &'a RebookCall) -> Verb<'a, Verdict> {
        unsupported()
    }
    fn renew<'a>(&'a self, _: &'a [RenewCall]) -> Verb<'a, Vec<Renewed>> {
        unsupported()
    }
    fn progress<'a>(&'a self, _: &'a ProgressCall) -> Verb<'a, ()> {
        unsupported()
    }
    fn settle<'a>(&'a self, _: &'a SettleCall) -> Verb<'a, Settled> {
        unsupported()
    }
    fn release<'a>(&'a self, _: &'a ReleaseCall) -> Verb<'a, Settled> {
        unsupported()
    }
    fn restore<'a>(&'a self, _: &'a RestoreCall) -> Verb<'a, ()> {
        unsupported()
    }
    fn adjust<'a>(&'a self, _: &'a AdjustCall) -> Verb<'a, bool> {
        unsupported()
    }
    fn balances<'a>(&'a self, _: Shard, _: &'a [AccountId]) -> Verb<'a, Vec<Option<Balance>>> {
        unsupported()
    }
    fn inspect<'a>(&'a self, _: Shard, _: &'a Inspection) -> Verb<'a, String> {
        unsupported()
    }
    fn repair<'a>(&'a self, _: &'a Repair) -> Verb<'a, bool> {
        unsupported()
    }
    fn flush(&self) -> Verb<'_, ()> {
        unsupported()
    }

    fn expire<'a>(&'a self, calls: &'a [ExpireCall]) -> Verb<'a, Vec<Expired>> {
        let shard = calls[0].claim.shard;
        let mut due = self.due.lock().unwrap();
        let answers = calls
            .iter()
            .map(|_| match due.get_mut(&shard.0) {
                Some(left) if !self.renewed && *left > 0 => {
                    *left -= 1;
                    Expired::Expired { posted: Vec::new(), context: Vec::new(), admitted: 0, sent: true }
                }
                _ => Expired::NotDue,
            })
            .collect();
        self.reply(shard, answers)
    }

    fn due(&self, shard: Shard, max: usize) -> Verb<'_, Vec<DueHold>> {
        self.asked.lock().unwrap().entry(shard.0).or_default().push(tokio::time::Instant::now());
        let left = self.due.lock().unwrap().get(&shard.0).copied().unwrap_or(0);
        let hold = |id| DueHold {
            claim: Claim { shard, id: ReservationId(u128::from(id)), attempt: 0 },
            subjects: Vec::new(),
        };
        self.reply(shard, (0..left).take(max).map(hold).collect())
    }

    fn shards(&self) -> Vec<Shard> {
        self.records.lock().unwrap().keys().map(|shard| Shard(*shard)).collect()
    }

    fn drift(&self, shard: Shard, cursor: u64, max: usize) -> Verb<'_, Drift> {
        assert!(max <= 1024);
        self.checks.fetch_add(1, Ordering::SeqCst);
        let at = usize::try_from(cursor).unwrap();
        let batch = self.drift.lock().unwrap().get(at).cloned();
        self.reply(shard, batch.unwrap_or(Drift { differences: Vec::new(), unconfirmed: 0, next: None }))
    }

    fn journal_read(&self, shard: Shard, after: Cursor, max: usize) -> Verb<'_, Vec<JournalRecord>> {
        let records = self.records.lock().unwrap();
        let all = records.get(&shard.0).into_iter().flatten();
        let read = all.filter(|r| r.cursor > after).take(max).cloned().collect();
        self.reply(shard, read)
    }

    fn journal_trim(&self, shard: Shard, upto: Cursor) -> Verb<'_, ()> {
        let fails = self.trims_fail.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        if fails.is_ok() {
            return Box::pin(std::future::ready(Err(away_error())));
        }
        if let Some(records) = self.records.lock().unwrap().get_mut(&shard.0) {
            records.retain(|r| r.cursor > upto);
        }
        self.reply(shard, ())
    }
}

/// A journal in memory that can be away, and can refuse one call for good.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) entries: Mutex<BTreeMap<EntryKey, Entry>>,
    /// Appends that still fail.
    pub(crate) away: AtomicU32,
    pub(crate) refused: Option<ReservationId>,
    pub(crate) appends: AtomicU32,
}

impl Kept {
    pub(crate) fn len(&self) -> usize {
        self.entries.lock().unwrap().len()
    }

    fn take(&self, batch: &[Entry]) -> Result<Appended, StoreError> {
        self.appends.fetch_add(1, Ordering::SeqCst);
        let away = self.away.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        if away.is_ok() {
            return Err(StoreError::unknown(StoreErrorKind::Away("scripted".to_owned())));
        }
        if batch.iter().any(|e| Some(e.reservation) == self.refused) {
            return Err(StoreError::not_applied(StoreErrorKind::Refused("scripted")));
        }
        let mut entries = self.entries.lock().unwrap();
        let mut appended = Appended::default();
        for entry in batch {
            match entries.entry(entry.key()) {
                std::collections::btree_map::Entry::Occupied(_) => appended.repeated += 1,
                std::collections::btree_map::Entry::Vacant(free) => {
                    free.insert(entry.clone());
                    appended.inserted += 1;
                }
            }
        }
        Ok(appended)
    }
}

fn none<'a, T: Send + 'a>() -> Answer<'a, T> {
    Box::pin(std::future::ready(Err(StoreError::not_applied(StoreErrorKind::Refused("not scripted")))))
}

impl Journal for Kept {
    fn append<'a>(&'a self, batch: &'a [Entry]) -> Answer<'a, Appended> {
        Box::pin(std::future::ready(self.take(batch)))
    }
    fn by_reservation(&self, id: ReservationId) -> Answer<'_, Vec<Entry>> {
        let entries = self.entries.lock().unwrap();
        let found = entries.values().filter(|e| e.reservation == id).cloned().collect();
        Box::pin(std::future::ready(Ok(found)))
    }
    fn by_request<'a>(&'a self, _: &'a str) -> Answer<'a, Vec<Entry>> {
        none()
    }
    fn entries(&self, _: Span, _: EntryPlace, _: usize) -> Answer<'_, Page> {
        none()
    }
    fn totals<'a>(&'a self, _: &'a TotalsQuery) -> Answer<'a, Vec<Total>> {
        none()
    }
    fn posted_sums(&self, _: u64, _: Option<(AccountId, u64)>, _: usize) -> Answer<'_, Vec<PostedSum>> {
        none()
    }
    fn posted_sum(&self, _: AccountId, _: u64) -> Answer<'_, i64> {
        none()
    }
    fn usage_sum<'a>(&'a self, _: &'a UsageQuery) -> Answer<'a, UsageSum> {
        none()
    }
    fn users<'a>(&'a self, _: &'a str, _: Span, _: &'a str, _: usize) -> Answer<'a, Vec<Name>> {
        none()
    }
    fn tenants<'a>(&'a self, _: &'a str, _: usize) -> Answer<'a, Vec<Name>> {
        none()
    }
    fn calls<'a>(&'a self, _: &'a CallsQuery, _: CallPlace, _: usize) -> Answer<'a, CallPage> {
        none()
    }
}
