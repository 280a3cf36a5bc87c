//! One shard: its book, its journal queue, its end of the log, and the verbs that keep the three together.
//!
//! Invariants: a verb's event and its journal record are one record of the log; both are applied or neither is. Room
//! in the log and in the queue is taken before the book changes, so nothing can fail after the book has decided.
//! When the log or the queue is full: the verb is refused as `Away` and changed nothing. When a sync failed, or a verb
//! panicked, the shard refuses every verb: what is in memory may no longer be what is on the disk.

use tollbook_engine::{
    AdjustCall, Balance, Claim, Cursor, Drift, DueHold, ENTRY_MAX, EngineError, ErrorKind, Inspection,
    ProgressCall, RebookCall, ReleaseCall, RenewCall, Repair, ReserveCall, SEQ_ADJUST, SEQ_END, SEQ_LATE,
    SEQ_UNBOOKED, SETTLE_AGE_MAX, SettleCall, Shard, Source, Standing, Verdict,
};
use tollbook_ledger::event::Pruned;
use tollbook_ledger::units::CONTEXT_MAX;
use tollbook_ledger::{
    self as ledger, AccountId, Book, Event, Expired, Full, Growth, Log, Met, Micros, Posted, Refusal,
    ReleaseWhy, Renewed, Settled,
};

use crate::codec::encode;
use crate::journal::{Bounds, Entry, JournalQueue, RECORD_OVERHEAD_MAX};
use crate::log::frame::Kind;
use crate::log::replay::{Image, time_of};
use crate::log::shard_log::ShardLog;
use crate::wire::Writer;

/// What one lock guards.
#[derive(Debug)]
pub(crate) struct ShardState {
    pub(crate) book: Book,
    pub(crate) journal: JournalQueue,
    /// `None`: nothing is kept on disk.
    pub(crate) log: Option<ShardLog>,
    pub(crate) bounds: Bounds,
    /// Engine time of the book's last event.
    seen: Micros,
    /// Unbooked entries since the start (L8).
    pub(crate) unbooked: u64,
    /// Why the shard takes no verbs.
    pub(crate) failed: Option<String>,
    scratch: Vec<u8>,
}

/// Where the book puts the event of the verb under way.
struct Sink<'a> {
    log: Option<&'a mut ShardLog>,
    seen: &'a mut Micros,
    /// Bytes that may follow the event in its record.
    more: usize,
    staged: bool,
}

impl Log for Sink<'_> {
    fn append(&mut self, event: &Event<'_>) -> Result<(), Full> {
        if let Some(log) = &mut self.log {
            encode(event, log.stage(Kind::Event));
            log.hold_room(self.more)?;
        }
        *self.seen = time_of(event);
        self.staged = true;
        Ok(())
    }
}

/// A verb under way: room for its entry is held.
struct Step<'a> {
    book: &'a mut Book,
    sink: Sink<'a>,
    journal: &'a mut JournalQueue,
    scratch: &'a mut Vec<u8>,
}

impl Step<'_> {
    /// Whether the book has staged an event, so that this verb changed something.
    fn changed(&self) -> bool {
        self.sink.staged
    }

    /// Writes the record: the event if there is one, the entry if there is one.
    fn finish(self, entry: Option<&Entry<'_>>) -> Result<(), EngineError> {
        let Self { mut sink, journal, scratch, .. } = self;
        if let Some(entry) = entry {
            scratch.clear();
            entry.encode(scratch);
        }
        if let Some(log) = &mut sink.log {
            match (sink.staged, entry.is_some()) {
                (false, false) => return Ok(()),
                (true, false) => {}
                (true, true) => {
                    log.staged().extend_from_slice(scratch);
                    log.set_kind(Kind::EventAndEntry);
                }
                (false, true) => {
                    log.stage(Kind::Entry).extend_from_slice(scratch);
                    log.hold_room(0).map_err(|Full| log_full(log))?;
                }
            }
            log.commit();
        }
        if entry.is_some() {
            journal.push(scratch);
        }
        Ok(())
    }
}

fn away(why: impl Into<String>) -> EngineError {
    EngineError::not_applied(ErrorKind::Away(why.into()))
}

fn log_full(log: &ShardLog) -> EngineError {
    away(format!("the log takes no record: {}", log.last_error()))
}

pub(crate) fn damaged(what: &impl ToString) -> EngineError {
    EngineError::not_applied(ErrorKind::Damaged(what.to_string()))
}

impl ShardState {
    /// The state that replay has read, and the log that goes on behind it.
    pub(crate) fn new(image: Image, log: Option<ShardLog>, bounds: Bounds) -> Self {
        let Image { book, journal, seen, .. } = image;
        let scratch = Vec::new();
        Self { book, journal, log, bounds, seen, unbooked: 0, failed: None, scratch }
    }

    /// A place in the log behind everything written so far.
    pub(crate) fn position(&self) -> u64 {
        self.log.as_ref().map_or(0, ShardLog::position)
    }

    fn usable(&self) -> Result<(), EngineError> {
        self.failed.as_ref().map_or(Ok(()), |why| Err(away(why.clone())))
    }

    /// Whether a verb that writes would find room in the log.
    pub(crate) fn takes(&mut self) -> Result<(), EngineError> {
        self.usable()?;
        match &mut self.log {
            Some(log) => log.hold_any().map_err(|Full| log_full(log)),
            None => Ok(()),
        }
    }

    /// Begins a verb that writes no entry.
    fn step(&mut self) -> Result<Step<'_>, EngineError> {
        self.usable()?;
        Ok(self.step_with(0))
    }

    /// Begins a verb that may write an entry with a body of at most `body` bytes.
    fn step_with_entry(&mut self, body: usize) -> Result<Step<'_>, EngineError> {
        self.usable()?;
        if body > ENTRY_MAX {
            return Err(EngineError::not_applied(ErrorKind::EntryTooLong));
        }
        if !self.journal.has_room(body, self.bounds) {
            return Err(away("too many ended calls wait for the journal's store"));
        }
        Ok(self.step_with(body.saturating_add(RECORD_OVERHEAD_MAX)))
    }

    fn step_with(&mut self, more: usize) -> Step<'_> {
        Step {
            book: &mut self.book,
            sink: Sink { log: self.log.as_mut(), seen: &mut self.seen, more, staged: false },
            journal: &mut self.journal,
            scratch: &mut self.scratch,
        }
    }

    /// A refusal of the book, with the log's reason where it is that.
    fn refused(&self, refusal: Refusal) -> EngineError {
        match (refusal, &self.log) {
            (Refusal::LogFull, Some(log)) => log_full(log),
            _ => refusal.into(),
        }
    }

    /// Runs a verb that writes no entry.
    fn plain<T>(
        &mut self,
        verb: impl FnOnce(&mut Book, &mut Sink<'_>) -> Result<T, Refusal>,
    ) -> Result<T, EngineError> {
        let mut step = self.step()?;
        match verb(step.book, &mut step.sink) {
            Ok(value) => step.finish(None).map(|()| value),
            Err(refusal) => Err(self.refused(refusal)),
        }
    }

    pub(crate) fn reserve(&mut self, now: Micros, call: &ReserveCall) -> Result<Verdict, EngineError> {
        let verdict = self.plain(|book, sink| book.reserve(now, &call.reserve, sink))?;
        Ok(verdict_of(&self.book, call.shard, verdict))
    }

    pub(crate) fn rebook(&mut self, now: Micros, call: &RebookCall) -> Result<Verdict, EngineError> {
        let ended = call.receipt.claim();
        let command = ledger::Rebook {
            ended: ended.attempt,
            actual: call.actual.clone(),
            landed: call.landed,
            reserve: call.next.reserve.clone(),
        };
        let body = call.entry.as_deref();
        let mut step = self.step_with_entry(body.map_or(0, <[u8]>::len))?;
        let (verdict, settled) = match step.book.rebook(now, &command, &mut step.sink) {
            Ok(done) => done,
            Err(refusal) => return Err(self.refused(refusal)),
        };
        let entry = match (&settled, body) {
            (Some(settled), Some(body)) if step.changed() && settled.before == Met::Held => {
                Some(entry_of(ended, SEQ_END, Source::Rebooked, now, settled, body))
            }
            _ => None,
        };
        step.finish(entry.as_ref())?;
        Ok(verdict_of(&self.book, call.next.shard, verdict))
    }

    pub(crate) fn renew(&mut self, now: Micros, call: &RenewCall) -> Result<Renewed, EngineError> {
        let command = ledger::Renew {
            id: call.claim.id,
            attempt: call.claim.attempt,
            life: call.life,
            sent: call.sent,
            growth: call.output_expected.map_or(Growth::Unchanged, Growth::Output),
            outgrown: call.outgrown,
        };
        self.plain(|book, sink| book.renew(now, &command, sink))
    }

    pub(crate) fn progress(&mut self, now: Micros, call: &ProgressCall) -> Result<(), EngineError> {
        self.plain(|book, sink| book.progress(now, &call.batches, sink))
    }

    pub(crate) fn settle(&mut self, now: Micros, call: &SettleCall) -> Result<Settled, EngineError> {
        if call.age > SETTLE_AGE_MAX {
            return self.unbooked(now, call.claim, Some(&call.entry));
        }
        let command = ledger::Settle {
            id: call.claim.id,
            attempt: call.claim.attempt,
            actual: call.actual.clone(),
            landed: call.landed,
            learn: call.learn,
        };
        let mut step = self.step_with_entry(call.entry.len())?;
        let settled = match step.book.settle(now, &command, &mut step.sink) {
            Ok(settled) => settled,
            Err(refusal) => return Err(self.refused(refusal)),
        };
        let entry = match settled.before {
            Met::Held => Some(entry_of(call.claim, SEQ_END, Source::Settled, now, &settled, &call.entry)),
            Met::Late => Some(entry_of(call.claim, SEQ_LATE, Source::Late, now, &settled, &call.entry)),
            Met::Ended(_) => None,
            Met::Unknown => return self.unbooked(now, call.claim, Some(&call.entry)),
        };
        step.finish(entry.as_ref())?;
        Ok(settled)
    }

    pub(crate) fn release(&mut self, now: Micros, call: &ReleaseCall) -> Result<Settled, EngineError> {
        let command = ledger::Release { id: call.claim.id, attempt: call.claim.attempt, why: call.why };
        let body = call.entry.as_deref().unwrap_or_default();
        let mut step = self.step_with_entry(body.len())?;
        let settled = match step.book.release(now, &command, &mut step.sink) {
            Ok(settled) => settled,
            Err(refusal) => return Err(self.refused(refusal)),
        };
        let entry = match (settled.before, call.why) {
            (Met::Held, ReleaseWhy::Failed) => {
                Some(entry_of(call.claim, SEQ_END, Source::Released, now, &settled, body))
            }
            // The expiry has written an entry; what takes its charge back must not be missing.
            (Met::Late, _) => Some(entry_of(call.claim, SEQ_LATE, Source::Late, now, &settled, body)),
            (Met::Unknown, _) => return self.unbooked(now, call.claim, call.entry.as_deref()),
            (Met::Held, ReleaseWhy::NeverSent) | (Met::Ended(_), _) => None,
        };
        step.finish(entry.as_ref())?;
        Ok(settled)
    }

    /// A claim that changes no account: its entry is kept apart (L8).
    fn unbooked(&mut self, now: Micros, claim: Claim, body: Option<&[u8]>) -> Result<Settled, EngineError> {
        let settled = Settled { before: Met::Unknown, overrun: Vec::new(), posted: Vec::new(), admitted: 0 };
        if let Some(body) = body {
            let step = self.step_with_entry(body.len())?;
            let entry = entry_of(claim, SEQ_UNBOOKED, Source::Unbooked, now, &settled, body);
            step.finish(Some(&entry))?;
        }
        self.unbooked = self.unbooked.saturating_add(1);
        Ok(settled)
    }

    /// `early`: due or not, if it was sent, with this entry.
    pub(crate) fn expire(
        &mut self,
        now: Micros,
        claim: Claim,
        early: Option<&[u8]>,
    ) -> Result<Expired, EngineError> {
        let command = ledger::ExpireOne { id: claim.id, attempt: claim.attempt };
        let mut step = self.step_with_entry(early.map_or(CONTEXT_MAX, <[u8]>::len))?;
        let expired = match early {
            None => step.book.expire(now, &command, &mut step.sink),
            Some(_) => step.book.expire_now(now, &command, &mut step.sink),
        };
        let expired = match expired {
            Ok(expired) => expired,
            Err(refusal) => return Err(self.refused(refusal)),
        };
        let entry = match &expired {
            Expired::Expired { posted, context, admitted, sent: true } => Some(Entry {
                id: claim.id,
                attempt: claim.attempt,
                seq: SEQ_END,
                source: Source::Expired,
                admitted: *admitted,
                ended: now,
                posted,
                body: early.unwrap_or(context),
            }),
            // At the door nothing was sent and everything is given back.
            Expired::Expired { sent: false, .. } | Expired::NotDue | Expired::Ended(_) | Expired::Unknown => {
                None
            }
        };
        step.finish(entry.as_ref())?;
        Ok(expired)
    }

    pub(crate) fn adjust(&mut self, now: Micros, call: &AdjustCall) -> Result<bool, EngineError> {
        let mut step = self.step_with_entry(call.entry.len())?;
        let applied = match step.book.adjust(now, &call.adjust, &mut step.sink) {
            Ok(applied) => applied,
            Err(refusal) => return Err(self.refused(refusal)),
        };
        let posted =
            Posted { account: call.adjust.account, period: call.adjust.period, amount: call.adjust.delta };
        let entry = Entry {
            id: ledger::ReservationId(call.adjust.id),
            attempt: 0,
            seq: SEQ_ADJUST,
            source: Source::Adjusted,
            admitted: 0,
            ended: now,
            posted: &[posted],
            body: &call.entry,
        };
        step.finish(applied.then_some(&entry))?;
        Ok(applied)
    }

    pub(crate) fn repair(&mut self, now: Micros, call: &Repair) -> Result<bool, EngineError> {
        let wanted = (call.account, call.period, call.version);
        let (found, _) = self.book.drift(0, u32::MAX);
        let seen =
            found.into_iter().find(|drift| (drift.account, drift.period, u64::from(drift.version)) == wanted);
        match seen {
            Some(seen) => self.plain(|book, sink| book.repair(now, &seen, sink)),
            None => Ok(false),
        }
    }

    /// Tells the book of a time that went back. It notices by events only, and an idle one would hold what is due.
    pub(crate) fn notice_step_back(&mut self, now: Micros) -> Result<(), EngineError> {
        if now >= self.seen {
            return Ok(());
        }
        let (estimators, accounts, trimmed) = (&[], &[], &[]);
        let event = Event::Pruned(Pruned { now, tombstones: 0, adjusts: 0, estimators, accounts, trimmed });
        self.plain(|book, sink| {
            sink.append(&event).map_err(|Full| Refusal::LogFull)?;
            book.apply(&event);
            Ok(())
        })
    }

    /// Forgets at most `max` things; whether there may be more.
    pub(crate) fn prune(&mut self, now: Micros, max: usize) -> Result<bool, EngineError> {
        self.notice_step_back(now)?;
        let count = self.plain(|book, sink| book.prune(now, max, sink))?;
        let done = [count.tombstones, count.adjusts, count.estimators, count.accounts];
        let done: u64 = done.into_iter().map(u64::from).sum();
        Ok(done >= max as u64)
    }

    pub(crate) fn journal_trim(&mut self, upto: Cursor) -> Result<(), EngineError> {
        self.usable()?;
        if upto <= self.journal.trimmed() || self.journal.len() == 0 {
            return Ok(());
        }
        if let Some(log) = &mut self.log {
            Writer::new(log.stage(Kind::Trim)).u64(upto.0);
            log.hold_room(0).map_err(|Full| log_full(log))?;
            log.commit();
        }
        self.journal.trim(upto);
        Ok(())
    }

    pub(crate) fn due(&mut self, shard: Shard, now: Micros, max: usize) -> Result<Vec<DueHold>, EngineError> {
        self.notice_step_back(now)?;
        let due = self.book.due(now, max);
        Ok(due.into_iter().map(|due| due_hold(&self.book, shard, due)).collect())
    }

    pub(crate) fn balance(&self, now: Micros, account: AccountId) -> Option<Balance> {
        self.book.balance(now, account).map(balance_of)
    }

    pub(crate) fn demands(&self, now: Micros, legs: &[ledger::Leg]) -> Vec<u64> {
        legs.iter().map(|leg| self.book.demand(now, leg)).collect()
    }

    pub(crate) fn drift(&mut self, cursor: u64, max: usize) -> Drift {
        let (found, next) = self.book.audit(cursor, u32::try_from(max).unwrap_or(u32::MAX));
        let differences = found
            .into_iter()
            .map(|drift| (drift.account, drift.period, drift.held, drift.sum, u64::from(drift.version)))
            .collect();
        Drift { differences, unconfirmed: 0, next }
    }

    /// Sets `held` as no verb would; logged, so that it is there again after a restart.
    pub(crate) fn corrupt_held(&mut self, now: Micros, account: AccountId, period: u64, held: i64) -> bool {
        let mut found = None;
        self.book.inspect_account(account, &mut |row| {
            if let Event::Account(row) = row {
                found = Some(row.opened.slot);
            }
        });
        let Some(slot) = found else { return false };
        let event = Event::Repaired { now, slot, period, held };
        let done = self.plain(|book, sink| {
            sink.append(&event).map_err(|Full| Refusal::LogFull)?;
            book.apply(&event);
            Ok(())
        });
        done.is_ok()
    }

    /// Text for people: an account's figures, or the rows that name a reservation.
    pub(crate) fn inspect(&self, now: Micros, what: &Inspection) -> String {
        let mut rows = Vec::new();
        let what = match what {
            Inspection::Account(account) => {
                rows.extend(self.book.balance(now, *account).map(|balance| format!("{balance:#?}")));
                self.book.inspect_account(*account, &mut |row| rows.push(format!("{row:#?}")));
                "account"
            }
            Inspection::Reservation(id) => {
                self.book.inspect_reservation(*id, &mut |row| rows.push(format!("{row:#?}")));
                "reservation"
            }
        };
        if rows.is_empty() { format!("no such {what}") } else { rows.join("\n") }
    }
}

fn entry_of<'a>(
    claim: Claim,
    seq: u16,
    source: Source,
    ended: Micros,
    settled: &'a Settled,
    body: &'a [u8],
) -> Entry<'a> {
    let (id, attempt) = (claim.id, claim.attempt);
    Entry { id, attempt, seq, source, admitted: settled.admitted, ended, posted: &settled.posted, body }
}

fn verdict_of(book: &Book, shard: Shard, verdict: ledger::Verdict) -> Verdict {
    match verdict {
        // One process over one log: what was acknowledged is there, so the epoch never changes.
        ledger::Verdict::Admit(receipt) => {
            Verdict::Admit(tollbook_engine::Receipt { shard, epoch: EPOCH, receipt })
        }
        ledger::Verdict::Ended(end) => Verdict::Ended(end),
        ledger::Verdict::Conflict(leg) => Verdict::Conflict(leg),
        ledger::Verdict::Recalendar => Verdict::Recalendar,
        ledger::Verdict::Deny(denial) => {
            let due = denial.due.iter().map(|due| due_hold(book, shard, *due)).collect();
            Verdict::Deny { denial, due }
        }
    }
}

/// The epoch of every reply.
pub(crate) const EPOCH: u64 = 1;

fn due_hold(book: &Book, shard: Shard, due: ledger::Due) -> DueHold {
    let claim = Claim { shard, id: due.id, attempt: due.attempt };
    DueHold { claim, subjects: book.subjects(due.id, due.attempt) }
}

pub(crate) fn balance_of(balance: ledger::Balance) -> Balance {
    Balance {
        account: balance.account,
        measure: balance.measure,
        shape: balance.shape,
        standing: Standing {
            period: balance.period.map_or(0, |(start, _)| start),
            posted: balance.posted,
            held: balance.held,
            reset: balance.reset,
        },
        live_holds: u64::from(balance.live_holds),
        shadow_denied: balance.shadow_denied,
        shadow_demand: balance.shadow_demand,
        version: u64::from(balance.version),
    }
}
