//! The port between those who book calls and those who keep the book.
//!
//! One trait, one conformance suite (`testing/engine-suite`), any number of adapters. Callers pass durations, never
//! instants: the engine owns time (L12). Every reply carries the engine's epoch and now. An error says whether the verb
//! was applied: `No`, or `Unknown`, which means: repeat with the same id.
//! Knows no driver, no HTTP, no money.

mod error;
mod journal;
mod lost;
mod recovery;
mod survey;
mod verb;

use std::future::Future;
use std::pin::Pin;

pub use error::{Applied, EngineError, ErrorKind, Loss};
pub use journal::{Cursor, ENTRY_MAX, JournalRecord, SEQ_ADJUST, SEQ_END, SEQ_LATE, SEQ_UNBOOKED, Source};
pub use lost::LostShards;
pub use recovery::{PeriodSum, RESTORED_ONCE, Recovery, ShardState};
pub use survey::{ATTEMPTS_SHOWN, Learned, LiveHold, LiveLeg, Survey};
pub use tollbook_ledger as ledger;
use tollbook_ledger::{AccountId, Expired, Leg, Renewed, ReservationId, Settled};
pub use verb::{
    AdjustCall, Balance, Claim, Drift, DueHold, ExpireCall, ExpireNow, Inspection, ProgressCall, RebookCall,
    Receipt, ReleaseCall, RenewCall, Repair, Reply, ReserveCall, RestoreCall, RestoredState, SETTLE_AGE_MAX,
    SettleCall, Shard, Standing, Verdict,
};

/// A verb under way.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<Reply<T>, EngineError>> + Send + 'a>>;

/// Keeps the book. Object safe; shared by every task of a gateway.
///
/// Every verb is atomic within its shard and idempotent by (id, attempt) or by the id it names. A verb that was
/// answered survives what the engine's durability setting says it survives.
pub trait Engine: Send + Sync + 'static {
    /// Decides all legs together: all holds are written, or nothing is (L1, L2).
    fn reserve<'a>(&'a self, call: &'a ReserveCall) -> Answer<'a, Verdict>;
    /// Ends attempt n and decides attempt n + 1 in one step; a denial writes nothing at all (L18).
    fn rebook<'a>(&'a self, call: &'a RebookCall) -> Answer<'a, Verdict>;
    /// Extends lives and grows holds; one answer per call, in order (L7, L9).
    fn renew<'a>(&'a self, calls: &'a [RenewCall]) -> Answer<'a, Vec<Renewed>>;
    /// Replaces plan by fact on forecast accounts, each batch once.
    fn progress<'a>(&'a self, call: &'a ProgressCall) -> Answer<'a, ()>;
    /// Posts the truth and writes the entry in the same step (L3–L5, L8).
    fn settle<'a>(&'a self, call: &'a SettleCall) -> Answer<'a, Settled>;
    /// Frees the holds; `failed` writes the entry, `never_sent` writes none (L3, L6).
    fn release<'a>(&'a self, call: &'a ReleaseCall) -> Answer<'a, Settled>;
    /// Expires what is due; one answer per call, in order (L7).
    fn expire<'a>(&'a self, calls: &'a [ExpireCall]) -> Answer<'a, Vec<Expired>>;
    /// Expires one that was sent, due or not, and writes the entry given in the same step; one at the door is not due (L7). May
    /// answer `Unsupported`.
    fn expire_now<'a>(&'a self, _call: &'a ExpireNow) -> Answer<'a, Expired> {
        Box::pin(std::future::ready(Err(EngineError::not_applied(ErrorKind::Unsupported))))
    }
    /// Writes a reservation as its voucher tells, without deciding. May answer `Unsupported` where nothing can be lost.
    fn restore<'a>(&'a self, call: &'a RestoreCall) -> Answer<'a, ()>;
    /// Posts a signed difference to a quota, once per id; true if this call did it.
    fn adjust<'a>(&'a self, call: &'a AdjustCall) -> Answer<'a, bool>;

    /// Balances of the named accounts; `None` for one that was never opened.
    fn balances<'a>(&'a self, shard: Shard, accounts: &'a [AccountId]) -> Answer<'a, Vec<Option<Balance>>>;
    /// What legs would ask for now, by what was learned; decides and writes nothing. May answer `Unsupported`.
    fn demands<'a>(&'a self, _shard: Shard, _legs: &'a [Leg]) -> Answer<'a, Vec<u64>> {
        Box::pin(std::future::ready(Err(EngineError::not_applied(ErrorKind::Unsupported))))
    }
    /// Holds that are due in a shard, at most `max`, oldest first.
    fn due(&self, shard: Shard, max: usize) -> Answer<'_, Vec<DueHold>>;
    /// The shards this engine keeps, for those who sweep.
    fn shards(&self) -> Vec<Shard>;
    /// Everything about one reservation or one account, for people.
    fn inspect<'a>(&'a self, shard: Shard, what: &'a Inspection) -> Answer<'a, String>;
    /// What of a reservation has not ended, of its first [`ATTEMPTS_SHOWN`] attempts; for people. May answer `Unsupported`.
    fn live(&self, _shard: Shard, _id: ReservationId) -> Answer<'_, Vec<LiveHold>> {
        Box::pin(std::future::ready(Err(EngineError::not_applied(ErrorKind::Unsupported))))
    }
    /// What is kept of a shard, at most `max` of each kind; for people, and not for the way of a call. May answer
    /// `Unsupported`.
    fn survey(&self, shard: Shard, max: usize) -> Answer<'_, Survey> {
        let _ = (shard, max);
        Box::pin(std::future::ready(Err(EngineError::not_applied(ErrorKind::Unsupported))))
    }
    /// One step of a check that held is the sum of live holds: at most `max` reservations or accounts are looked at (L10).
    /// A check begins at cursor 0 and goes on where the last step says.
    fn drift(&self, shard: Shard, cursor: u64, max: usize) -> Answer<'_, Drift>;
    /// Sets one account's held to the sum confirmed, if its version is still the one seen (L10).
    fn repair<'a>(&'a self, call: &'a Repair) -> Answer<'a, bool>;

    /// Ended calls on their way to the journal, after `after`, oldest first.
    fn journal_read(&self, shard: Shard, after: Cursor, max: usize) -> Answer<'_, Vec<JournalRecord>>;
    /// The journal's store has everything up to `upto`; the engine may forget it.
    fn journal_trim(&self, shard: Shard, upto: Cursor) -> Answer<'_, ()>;
    /// Whether a shard would take a verb that writes; writes nothing itself. Asked while it does not, so that who waits for
    /// it need not lose a call to find out.
    fn takes(&self, shard: Shard) -> Answer<'_, ()> {
        Box::pin(async move {
            let reply = self.balances(shard, &[]).await?;
            Ok(Reply { epoch: reply.epoch, now: reply.now, value: () })
        })
    }
    /// Makes everything acknowledged so far durable; at shutdown.
    fn flush(&self) -> Answer<'_, ()>;
}
