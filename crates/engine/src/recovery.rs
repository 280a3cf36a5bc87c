//! The port to a book whose store can lose what it acknowledged: how it is found out, and how the shard is made whole.
//!
//! Epochs say how often a shard was made whole; SQL has the truth of them, the store a copy, and every verb carries the one
//! its gateway knows. A store that has none, or an older one, has lost everything. A store whose server is not the one that
//! the shard was opened on may have lost its last writes. Either way verbs answer [`crate::ErrorKind::Lost`] and write
//! nothing, until one gateway has begun a rebuild, every live one has restored its vouchers, and the shard is opened.
//! Who does that in which order is the business of a job; this port only gives it the steps.

use tollbook_ledger::{AccountId, Measure, Micros};

use crate::{Answer, Engine, Shard};

/// For so long after a store has taken an end it does not take it as a voucher a second time, whatever its verbs answer.
pub const RESTORED_ONCE: Micros = 55 * 60 * 1_000_000;

/// What a store says of one shard; asked without any check, so also of one that is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardState {
    /// 0: none, the shard was never opened or everything is gone.
    pub epoch: u64,
    /// The server that answers is the one that the shard was opened on.
    pub same_server: bool,
    /// A rebuild was begun and has not been opened.
    pub closed: bool,
    /// Engine time of the last write that is there; 0 if none is.
    pub seen: Micros,
}

/// What one period of a quota had, by the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeriodSum {
    pub account: AccountId,
    pub measure: Measure,
    /// Start and end of the period, UTC seconds; 0 and `u64::MAX` for lifetime.
    pub period: u64,
    pub end: u64,
    pub posted: i64,
}

/// Steps that make a shard whole again. Object safe.
pub trait Recovery: Engine {
    /// The epoch that this gateway's verbs carry from now on, unless they carry a newer one.
    fn expect(&self, shard: Shard, epoch: u64);
    /// The newest epoch that this gateway carries or was told by an answer; 0: none.
    fn epoch(&self, shard: Shard) -> u64;
    /// The book is that of the gateways of this `fleet` from now on, unless it is another's already: then false. Two that
    /// count epochs apart would each take what the other opened for lost.
    fn belongs(&self, fleet: u64) -> Answer<'_, bool>;
    /// What the store says of the shard.
    fn state(&self, shard: Shard) -> Answer<'_, ShardState>;
    /// Begins a rebuild: the shard belongs to `epoch` and to the server that answers, and is closed to every verb but
    /// `restore` and `adjust` of gateways that expect this epoch. With `clear` all accounts and live reservations are removed
    /// first; the stream of ended calls, their tombstones and the estimators stay, for the stream is to be drained before.
    /// Repeating it with the epoch that is there changes nothing. False if a newer epoch is there, or this one on another
    /// server, or without `clear` if the shard has lost something more than it had when it was judged by `known`: then the
    /// rebuild is to begin anew.
    fn begin(&self, shard: Shard, epoch: u64, clear: bool, known: ShardState) -> Answer<'_, bool>;
    /// Within the rebuild of this epoch, before anything is restored: what was posted to these periods *is* so much. Opens
    /// accounts and periods; writes no entry, the journal has them. False if the shard is not closed for this epoch.
    fn post<'a>(&'a self, shard: Shard, epoch: u64, sums: &'a [PeriodSum]) -> Answer<'a, bool>;
    /// Ends the rebuild of this epoch; false if another epoch is there.
    fn open(&self, shard: Shard, epoch: u64) -> Answer<'_, bool>;
}
